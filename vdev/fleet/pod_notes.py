"""Writes the devices of pods on a fleet's node into these pods.

The annotation `vdev.dev/devices` names the devices of a pod, also for the next controller. If a pod's status lists its
containers, as KWOK's stages write them, `allocatedResourcesStatus` has the health of each device, as from a kubelet.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

import structlog

from ..kube.api import Api
from ..kube.errors import Conflict, Missing
from ..kube.objects import EVENTS, PODS, timestamp
from ..node.api_applier import Writer
from ..node.event_applier import event
from ..node.events import EventText
from ..planning.resources import EMPTY, Inventory
from .cluster import Cluster
from .pod_devices import NOTE, Assignment, Devices, Pod, note
from .scope import MAKER

log = structlog.get_logger(__name__)

Document = Mapping[str, Any]
_REASON = "UnexpectedAdmissionError"
_STATUSES = "allocatedResourcesStatus"


class PodNotes(Writer):
    name = "writing the devices of pods"

    def __init__(self, api: Api, cluster: Cluster, node: str) -> None:
        super().__init__()
        self._api = api
        self._cluster = cluster
        self._node = node
        self._assigned = Assignment()
        self._inventory = EMPTY
        self._rejects = False
        self._reported: set[tuple[str, bool]] = set()  # refused pods with an Event, and whether they had to fail

    def update(self, assigned: Assignment, inventory: Inventory, *, rejects: bool) -> None:
        """Set a new assignment; `rejects`: pods that a kubelet would refuse must fail."""
        self._assigned, self._inventory, self._rejects = assigned, inventory, rejects
        if assigned.devices or assigned.rejected:
            self._is_due.set()

    async def _write_due(self) -> None:
        assigned, rejects = self._assigned, self._rejects  # `update` may replace them during a request
        pods = self._cluster.pods_of(self._node)
        for uid, devices in assigned.devices.items():
            if (pod := pods.get(uid)) is not None and any(devices.values()):
                try:
                    await self._write(pod, devices)
                except Missing:
                    self._cluster.pods.removed(pod.key)  # the watch has not reported it yet
        for uid, why in assigned.rejected.items():
            if (uid, rejects) not in self._reported:
                if refused := self._cluster.pods_of(self._node).get(uid):
                    await self._refuse(refused, why, must_fail=rejects)
                self._reported.add((uid, rejects))
        self._reported = {each for each in self._reported if each[0] in assigned.rejected}

    def _status(self, status: Document, devices: Devices, pod: Pod) -> Document:
        """The status that a container needs.

        Main containers have device health, init containers and sidecars do not (source: kubelet, status_manager).
        """
        name = str(status.get("name"))
        is_main = any(each.name == name and each.role == "main" for each in pod.containers)
        of = devices.get(name) if is_main else None
        if not of:
            return status
        health = [
            {"name": name, "resources": [{"resourceID": each, "health": self._health(name, each)} for each in ids]}
            for name, ids in sorted(of.items())
        ]
        return {**status, _STATUSES: health}

    def _health(self, resource: str, device: str) -> str:
        offered = self._inventory.resources.get(resource)
        slot = offered.by_id.get(device) if offered else None
        return "Healthy" if slot is None or slot.health.healthy else "Unhealthy"

    async def _write(self, pod: Pod, devices: Devices) -> None:
        if pod.annotation != note(devices):
            noted = {"metadata": {"uid": pod.uid, "annotations": {NOTE: note(devices)}}}
            self._cluster.pods.wrote(await self._api.patch(PODS, pod.name, noted, namespace=pod.namespace))
            pod = self._cluster.pods_of(self._node).get(pod.uid, pod)
        statuses = tuple(self._status(each, devices, pod) for each in pod.statuses)
        if statuses != pod.statuses:
            change = {
                "metadata": {"uid": pod.uid, "resourceVersion": pod.version},
                "status": {"containerStatuses": statuses},
            }
            answer = await self._api.patch(PODS, pod.name, change, namespace=pod.namespace, subresource="status")
            self._cluster.pods.wrote(answer)

    async def _refuse(self, pod: Pod, why: str, *, must_fail: bool) -> None:
        """Write a kubelet's Event for a refused pod, and let the pod fail if it must."""
        message = f"Allocate failed due to {why}, which is unexpected"
        log.warning("a kubelet would refuse this pod", node=self._node, pod=pod.key, reason=why)
        refusal = event(
            PODS,
            {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
            EventText(_REASON, message, warning=True),
            name=f"{pod.name[:200].rstrip('-.')}.{pod.uid[:8]}.refused",
            by=MAKER,
            node=self._node,
            at=timestamp(self._api.connection.timing.clock.wall()),
        )
        with contextlib.suppress(Conflict):
            await self._api.create(EVENTS, refusal, namespace=pod.namespace)
        if must_fail:
            status = {"phase": "Failed", "reason": _REASON, "message": f"Pod was rejected: {message}"}
            change = {"metadata": {"uid": pod.uid}, "status": status}
            answer = await self._api.patch(PODS, pod.name, change, namespace=pod.namespace, subresource="status")
            self._cluster.pods.wrote(answer)
