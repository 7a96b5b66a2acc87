"""The pods of the fleet's nodes, and what is written on them about their devices.

The annotation `vdev.dev/devices` names the devices of a pod, also for the next controller. If a pod's status lists its
containers, as KWOK's stages write them, `allocatedResourcesStatus` has the health of each device, as from a kubelet.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from ..aio.clock import Clock
from ..kube import EVENTS, PODS, Api, Conflict, Informer, Missing, event, key_of, timestamp
from ..model.problem import Problem
from ..model.telemetry import Range
from ..planning.resources import Inventory
from ..telemetry.pod_loads import annotated_load
from .pod_devices import NOTE, Assignment, Devices, Pod, Role, note, read_pod
from .scope import MAKER

log = structlog.get_logger(__name__)

Document = Mapping[str, Any]
_REASON = "UnexpectedAdmissionError"
_STATUSES = "allocatedResourcesStatus"


@dataclass(frozen=True, slots=True)
class AskingPod:
    """A pod that asks for devices: its annotation, and the statuses of its containers at that version."""

    pod: Pod
    text: str
    version: str
    statuses: tuple[Document, ...]


@dataclass(frozen=True, slots=True)
class SeenPod:
    """What is kept of a pod: the devices that it asks for, and the load that its annotation asks for."""

    node: str
    key: str
    uid: str
    asks: AskingPod | None
    load: Range | Problem | None

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset({self.node})


def pod_of(document: Document) -> SeenPod | None:
    """What is kept of a pod; None if it asks for neither devices nor a load."""
    asks, load = _asking(document), annotated_load(document)
    if asks is None and load is None:
        return None
    node, uid = document["spec"].get("nodeName"), document["metadata"].get("uid")
    return SeenPod(str(node or ""), key_of(document), str(uid or ""), asks, load)


class SeenPods:
    """The pods of one node."""

    def __init__(self, informer: Informer[SeenPod], pods: Callable[[], Sequence[SeenPod]]) -> None:
        self._informer = informer
        self._pods = pods

    @property
    def by_uid(self) -> Mapping[str, AskingPod]:
        """The pods that ask for extended resources."""
        return {each.uid: each.asks for each in self._pods() if each.asks is not None}

    @property
    def pod_loads(self) -> Mapping[str, Range]:
        """The loads that pods ask for, by `namespace/name`."""
        return {each.key: each.load for each in self._pods() if isinstance(each.load, Range)}

    def wrote(self, document: Document) -> None:
        self._informer.wrote(document)

    def removed(self, pod: Pod) -> None:
        self._informer.removed(f"{pod.namespace}/{pod.name}")


class PodNotes:
    """Writes the devices of the pods of one node on these pods."""

    name = "writing the devices of pods"

    def __init__(self, api: Api, clock: Clock, pods: SeenPods, node: str) -> None:
        self._api = api
        self._clock = clock
        self._pods = pods
        self._node = node
        self._assigned = Assignment()
        self._health: Mapping[tuple[str, str], bool] = {}
        self._rejects = False
        self._reported: dict[str, bool] = {}  # refused pods with an Event, by uid, and whether they had to fail

    def update(self, assigned: Assignment, inventory: Inventory, *, rejects: bool) -> None:
        """Take a new assignment; `rejects`: pods that a kubelet would refuse must fail."""
        self._assigned, self._rejects = assigned, rejects
        self._health = {
            (name, slot.id): slot.health.healthy
            for name, resource in inventory.resources.items()
            for slot in resource.slots
        }

    @property
    def has_news(self) -> bool:
        """Whether something may have to be written."""
        return any(True for _ in self._due()) or any(map(self._is_unreported, self._assigned.rejected))

    async def catch_up(self) -> None:
        """Write what differs. Raises ApiServerError."""
        for seen, devices in list(self._due()):
            try:
                await self._write(seen, devices)
            except Missing:
                self._pods.removed(seen.pod)  # the watch has not reported it yet
        for uid, why in self._assigned.rejected.items():
            seen_pod = self._pods.by_uid.get(uid)
            if self._is_unreported(uid) and seen_pod is not None:
                await self._refuse(seen_pod.pod, why)
            self._reported[uid] = self._rejects
        self._reported = {uid: failed for uid, failed in self._reported.items() if uid in self._assigned.rejected}

    def _is_unreported(self, uid: str) -> bool:
        """Whether a refused pod still needs its Event, or must still fail."""
        return uid not in self._reported or (self._rejects and not self._reported[uid])

    def _due(self) -> Iterator[tuple[AskingPod, Devices]]:
        pods = self._pods.by_uid
        for uid, devices in self._assigned.devices.items():
            seen = pods.get(uid)
            if (
                seen is not None
                and any(devices.values())
                and (seen.text != note(devices) or self._new_statuses(seen, devices))
            ):
                yield seen, devices

    def _new_statuses(self, seen: AskingPod, devices: Devices) -> tuple[Document, ...] | None:
        """The statuses that the containers need; None if they have them already, or have none."""
        wanted = tuple(self._status(each, devices, seen.pod) for each in seen.statuses)
        return None if wanted == seen.statuses else wanted

    def _status(self, status: Document, devices: Devices, pod: Pod) -> Document:
        """Main containers have device health, init containers and sidecars do not (source: kubelet, status_manager)."""
        name = str(status.get("name"))
        is_main = any(each.name == name and each.role is Role.MAIN for each in pod.containers)
        of = devices.get(name) if is_main else None
        if not of:
            return status
        health = [
            {
                "name": resource,
                "resources": [
                    {
                        "resourceID": each,
                        "health": "Healthy" if self._health.get((resource, each), True) else "Unhealthy",
                    }
                    for each in ids
                ],
            }
            for resource, ids in sorted(of.items())
        ]
        return {**status, _STATUSES: health}

    async def _write(self, seen: AskingPod, devices: Devices) -> None:
        pod = seen.pod
        if seen.text != note(devices):
            noted = {"metadata": {"uid": pod.uid, "annotations": {NOTE: note(devices)}}}
            self._pods.wrote(await self._api.patch(PODS, pod.name, noted, namespace=pod.namespace))
            seen = self._pods.by_uid.get(pod.uid, seen)
        statuses = self._new_statuses(seen, devices)
        if statuses is not None:
            change = {
                "metadata": {"uid": pod.uid, "resourceVersion": seen.version},
                "status": {"containerStatuses": statuses},
            }
            answer = await self._api.patch(PODS, pod.name, change, namespace=pod.namespace, subresource="status")
            self._pods.wrote(answer)

    async def _refuse(self, pod: Pod, why: str) -> None:
        """Write a kubelet's Event for a refused pod, and let the pod fail if that is wanted."""
        message = f"Allocate failed due to {why}, which is unexpected"
        log.warning("a kubelet would refuse this pod", node=self._node, pod=f"{pod.namespace}/{pod.name}", reason=why)
        refusal = event(
            PODS,
            {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
            name=f"{pod.name[:200].rstrip('-.')}.{pod.uid[:8]}.refused",
            reason=_REASON,
            message=message,
            is_warning=True,
            component=MAKER,
            node=self._node,
            at=timestamp(self._clock.wall()),
        )
        try:
            await self._api.create(EVENTS, refusal, namespace=pod.namespace)
        except Conflict as known:
            if not known.exists:
                raise
        if self._rejects:
            status = {"phase": "Failed", "reason": _REASON, "message": f"Pod was rejected: {message}"}
            change = {"metadata": {"uid": pod.uid}, "status": status}
            answer = await self._api.patch(PODS, pod.name, change, namespace=pod.namespace, subresource="status")
            self._pods.wrote(answer)


def _asking(document: Document) -> AskingPod | None:
    pod = read_pod(document)
    if pod is None:
        return None
    metadata, status = document["metadata"], document.get("status") or {}
    text = str((metadata.get("annotations") or {}).get(NOTE) or "")
    statuses = tuple(status.get("containerStatuses") or ())
    return AskingPod(pod, text, str(metadata.get("resourceVersion") or "") if statuses else "", statuses)
