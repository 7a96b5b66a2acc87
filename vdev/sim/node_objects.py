"""Connects an embedded kubelet to the embedded API server: its Node, and the Pods that clients create.

Status, claims and events of pods are written to the API server. A deleted Pod exists until the kubelet has stopped it.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Mapping
from typing import Any

from .api.kinds import BY_NAME, ApiKind, Document
from .api.store import timestamp
from .device_manager.device_table import KubeletPanic
from .kubelet.kubelet import Kubelet
from .kubelet.pod_workers import CLAIMS_REASON
from .objects.pods import ContainerStatus, Kind, Phase, PodStatus

_NODE, _POD, _EVENT = BY_NAME["Node"], BY_NAME["Pod"], BY_NAME["Event"]
_KILLED = 137  # exit code of a container
_OWN = "default-scheduler"  # the default of schedulerName
_KUBELET, _SCHEDULER = "kubelet", "kube-scheduler"
_POLL_SECONDS = 0.5

_EMPTY_INFO = ("bootID", "kernelVersion", "kubeProxyVersion", "machineID", "systemUUID")  # the API requires them
_NODE_INFO = {
    **dict.fromkeys(_EMPTY_INFO, ""),
    "architecture": "amd64",
    "containerRuntimeVersion": "vdev://sim",
    "operatingSystem": "linux",
    "osImage": "vdev sim",
}


class NodeObjects:
    """Reconciles a kubelet with its Node and Pods in the API server."""

    def __init__(self, kubelet: Kubelet) -> None:
        self._kubelet = kubelet
        self._objects = kubelet.objects.store
        self._written_events = len(kubelet.journal.events)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        self.register()
        journal = self._kubelet.journal
        stop = self._objects.listen(journal.changed)
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._sync(group)
                    await journal.next_change(at_most=_POLL_SECONDS)  # some changes do not notify the journal
        finally:
            stop()

    def register(self) -> None:
        """Create the Node if it does not exist, like a starting kubelet."""
        name = self._kubelet.node_name
        if not self._objects.has(_NODE, "", name):
            labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
            first = {
                "conditions": [_ready("False", "KubeletNotReady", "the embedded kubelet starts")],
                "capacity": _machine() | {key: str(amount) for key, amount in self._kubelet.capacity.items()},
            }
            self._objects.create(_NODE, "", {"metadata": {"name": name, "labels": labels}, "status": first}, _KUBELET)
        self._write_node()

    # --- the node -----------------------------------------------------------------------------------------------------

    def _write_node(self) -> None:
        """Write the devices and the condition Ready into the Node's status, and keep all other fields."""
        shown, old = self._kubelet.node(), self._objects.find(_NODE, "", self._kubelet.node_name)
        if old is None:
            return
        before = old.get("status") or {}
        status = {
            **before,
            "conditions": _with_ready(before.get("conditions") or [], is_ready=self._kubelet.alive),
            "nodeInfo": {**_NODE_INFO, **(before.get("nodeInfo") or {}), "kubeletVersion": self._kubelet.version},
        }
        for field, numbers in (("capacity", shown.capacity), ("allocatable", shown.allocatable)):
            # Like the real kubelet, add to allocatable the resources that other programs write into the capacity.
            status[field] = {**(before.get("capacity") or {}), **{name: str(count) for name, count in numbers.items()}}
        self._write(_NODE, old, {**old, "status": status})

    # --- pods ---------------------------------------------------------------------------------------------------------

    def _sync(self, group: asyncio.TaskGroup) -> None:
        """Reconcile once. All pods of the kubelet come from here."""
        self._write_node()
        mine = {each["metadata"]["uid"]: each for each in self._objects.all(_POD) if self._is_mine(each)}
        pods = {pod.uid: pod for pod in self._kubelet.pods()}
        keys = {pod.spec.key for pod in pods.values()}
        for uid, document in mine.items():
            meta, pod = document["metadata"], pods.get(uid)
            gone = bool(meta.get("deletionTimestamp"))
            if pod is not None and gone and not pod.terminating:
                self._delete(group, pod)
            elif pod is not None:
                self._write_pod(document, pod)
            elif gone:
                self._objects.delete(_POD, meta["namespace"], meta["name"])
            # Otherwise, pass the pod to the kubelet, unless an older pod of this name has not ended.
            elif f"{meta['namespace']}/{meta['name']}" not in keys:
                group.create_task(self._start(document), name=f"start pod {meta['name']}")
        for uid in pods.keys() - mine.keys():
            self._delete(group, pods[uid], force=True)
        events = self._kubelet.journal.events
        for each in events[self._written_events :]:
            self._write_event(each.pod, each.reason, each.message)
        self._written_events = len(events)

    def _is_mine(self, document: Document) -> bool:
        """Whether a pod is bound to this node or waits for the embedded scheduler."""
        spec = document["spec"]
        if node := spec.get("nodeName"):
            return bool(node == self._kubelet.node_name)
        return spec.get("schedulerName") == _OWN and not spec.get("schedulingGates")

    async def _start(self, document: Document) -> None:
        with contextlib.suppress(KubeletPanic):  # the journal has it, and the next kubelet process admits the pod
            await self._kubelet.run_pod(document, wait_for_devices=True)

    def _delete(self, group: asyncio.TaskGroup, pod: PodStatus, *, force: bool = False) -> None:
        async def delete() -> None:
            with contextlib.suppress(KeyError, KubeletPanic):  # the pod was deleted; a panic is in the journal
                await self._kubelet.delete_pod(pod.name, namespace=pod.namespace, force=force)
            self._kubelet.journal.changed()

        group.create_task(delete(), name=f"delete pod {pod.spec.key}")

    def _write_pod(self, old: Document, pod: PodStatus) -> None:
        node = {"nodeName": self._kubelet.node_name} if pod.bound else {}
        self._write(_POD, old, {**old, "spec": {**old["spec"], **node}, "status": pod_status(pod)})

    def _write(self, kind: ApiKind, old: Document, new: Document) -> None:
        if new != old:
            where = old["metadata"].get("namespace", ""), old["metadata"]["name"]
            self._objects.change(kind, where, new, manager=_KUBELET, subresource="status")

    # --- events -------------------------------------------------------------------------------------------------------

    def _write_event(self, pod: str, reason: str, message: str) -> None:
        namespace, _, name = pod.partition("/")
        if (found := self._objects.find(_POD, namespace, name)) is None:
            return
        component = _SCHEDULER if reason == "FailedScheduling" else _KUBELET
        uid, moment = found["metadata"]["uid"], timestamp()
        document = {
            "metadata": {"name": f"{name[:230].rstrip('-.')}.{time.time_ns():x}"},
            "involvedObject": {"kind": "Pod", "apiVersion": "v1", "namespace": namespace, "name": name, "uid": uid},
            "type": "Warning",
            "reason": reason,
            "message": message,
            "source": {"component": component},
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
        }
        self._objects.create(_EVENT, namespace, document, component)


def _machine() -> dict[str, str]:
    """Return the CPUs and the memory of this machine, which a kubelet reports."""
    kilobytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024
    return {"cpu": str(os.cpu_count() or 1), "memory": f"{kilobytes}Ki"}


def pod_status(pod: PodStatus) -> dict[str, Any]:
    status: dict[str, Any] = {"phase": pod.phase.value}
    scheduled = {"type": "PodScheduled", "status": "True" if pod.bound else "False"}
    if pod.reason == "Unschedulable":
        status["conditions"] = [{**scheduled, "reason": pod.reason, "message": pod.message}]
    else:
        status["conditions"] = [scheduled]
        # The real kubelet only logs why it cannot delete a pod.
        message = "" if pod.terminating else pod.message
        status |= {key: text for key, text in (("reason", pod.reason), ("message", message)) if text}
    for each in pod.containers if pod.admitted else ():
        key = "containerStatuses" if each.kind is Kind.APP else "initContainerStatuses"
        status.setdefault(key, []).append(_container(each, pod))
    if pod.claims:
        rows = [{"name": name, "resourceClaimName": claim} for name, claim in pod.claims.items()]
        status["resourceClaimStatuses"] = rows
    if pod.extended is not None:
        keys = ("containerName", "resourceName", "requestName")
        mappings = [dict(zip(keys, each, strict=True)) for each in pod.extended.mappings]
        status["extendedResourceClaimStatus"] = {"resourceClaimName": pod.extended.name, "requestMappings": mappings}
    return status


def _container(container: ContainerStatus, pod: PodStatus) -> dict[str, Any]:
    if container.running:
        state: dict[str, Any] = {"running": {}}
    elif container.done or pod.phase is Phase.SUCCEEDED:
        state = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    elif pod.phase is Phase.FAILED or (pod.terminating and not container.waiting):
        # A pod with a reason was rejected and its containers were killed.
        state = {"terminated": {"exitCode": _KILLED if pod.reason or pod.terminating else 1, "reason": "Error"}}
    else:
        state = {"waiting": {"reason": container.waiting or CLAIMS_REASON}}
        if container.message and container.waiting != CLAIMS_REASON:  # failed preparations are events
            state["waiting"]["message"] = container.message
    found = {"name": container.name, "image": "", "imageID": "", "ready": container.running, "state": state}
    found["restartCount"] = container.restarts
    if rows := container.allocated_resources_status:
        found["allocatedResourcesStatus"] = rows
    return found


def _with_ready(conditions: list[Mapping[str, Any]], *, is_ready: bool) -> list[Mapping[str, Any]]:
    """Return the conditions of a Node. Ready is replaced if its status has changed."""
    old = next((each for each in conditions if each["type"] == "Ready"), None)
    wanted = "True" if is_ready else "Unknown"
    if old is not None and old["status"] == wanted:
        return conditions
    why = ("KubeletReady", "the embedded kubelet runs") if is_ready else ("NodeStatusUnknown", "it does not run")
    return [*(each for each in conditions if each is not old), _ready(wanted, *why)]


def _ready(status: str, reason: str, message: str) -> dict[str, str]:
    since = {"lastHeartbeatTime": timestamp(), "lastTransitionTime": timestamp()}  # there are no further heartbeats
    return {"type": "Ready", "status": status, "reason": reason, "message": message, **since}
