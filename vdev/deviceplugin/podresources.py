"""Which pods hold which devices, according to the kubelet's PodResources API.

The agent calls `List` alone, after changes and otherwise seldom: the kubelet allows 100 calls a second for all clients
together. The answer omits containers of finished pods, and ordinary init containers, whose devices an app container
reuses or frees.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from ..errors import HostError
from ..hostfs import read_plain
from ..model.device import Key
from ..pb import podresources_v1_pb2 as pb
from ..pb import podresources_v1_pb2_grpc as rpc
from ..planning.in_use import Holder, HoldersAnswer, KubeletCheckpoint, Use
from .registration import kubelet_channel


class RateLimited(Exception):
    """The kubelet's rate limit refused the question. The answer says nothing about pods."""


async def holders(socket: Path, *, within: float) -> HoldersAnswer | None:
    """Return what all active pods hold; None if the API does not answer `within` so many seconds.

    Raises RateLimited.
    """
    async with kubelet_channel(socket) as channel:
        try:
            answer = await rpc.PodResourcesListerStub(channel).List(pb.ListPodResourcesRequest(), timeout=within)
        except grpc.aio.AioRpcError as failed:
            if failed.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise RateLimited from failed
            return None
    return _understood(answer)


def _understood(answer: pb.ListPodResourcesResponse) -> HoldersAnswer:
    found: dict[Key, Holder] = {}
    claimed: list[Use] = []
    for pod in answer.pod_resources:
        name = f"{pod.namespace}/{pod.name}"
        for container in pod.containers:
            for devices in container.devices:
                for device in devices.device_ids:
                    found[devices.resource_name, device] = Holder(name, container.name)
            for claim in container.dynamic_resources:
                for each in claim.claim_resources:
                    names = claim.claim_name, each.driver_name, each.pool_name, each.device_name
                    claimed.append(Use(name, container.name, *names))
    return HoldersAnswer(found, tuple(claimed))


@dataclass(frozen=True, slots=True)
class KubeletDevice:
    """A device that the kubelet knows of, of whatever plugin."""

    resource: str
    id: str
    numa: tuple[int, ...] = ()
    healthy: bool = True


async def listed(socket: Path, *, within: float) -> list[KubeletDevice] | None:
    """The devices that the kubelet tells of: the healthy ones, and of others those that pods hold.

    None when the API does not answer `within` so many seconds.
    """
    async with kubelet_channel(socket) as channel:
        stub = rpc.PodResourcesListerStub(channel)
        try:
            offered = await stub.GetAllocatableResources(pb.AllocatableResourcesRequest(), timeout=within)
            held = await stub.List(pb.ListPodResourcesRequest(), timeout=within)
        except grpc.aio.AioRpcError:
            return None
    numa: dict[Key, set[int]] = {}
    healthy = _add(numa, offered.devices)
    for pod in held.pod_resources:
        for container in pod.containers:
            _add(numa, container.devices)
    return [
        KubeletDevice(resource, device, tuple(sorted(numbers)), (resource, device) in healthy)
        for (resource, device), numbers in sorted(numa.items())
    ]


def _add(numa: dict[Key, set[int]], listed: Iterable[pb.ContainerDevices]) -> frozenset[Key]:
    """Add the NUMA nodes of these devices, and return the devices."""
    keys = set()
    for devices in listed:
        for each in devices.device_ids:
            keys.add(key := (devices.resource_name, each))
            numa.setdefault(key, set()).update(node.ID for node in devices.topology.nodes)
    return frozenset(keys)


FILE_NAME = "kubelet_internal_checkpoint"
MAX_BYTES = 64 * 1024 * 1024  # 110 pods with the largest answers that a plugin may give have a tenth of it


class CheckpointReader:
    """Reads the file in one directory.

    `trouble` says why it cannot be used as it is now; meanwhile what it said before counts, for that frees nothing.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self.trouble = ""
        self._last = KubeletCheckpoint()

    def read(self) -> KubeletCheckpoint:
        """What the file says now, or said when it was understood last. Blocks briefly."""
        trouble = ""
        try:
            text = read_plain(self.path, limit=MAX_BYTES)
            if text is not None:
                self._last = KubeletCheckpoint(_pods(json.loads(text)["Data"].get("PodDeviceEntries")))
        except HostError as failed:
            trouble = str(failed)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            trouble = f"the kubelet's checkpoint {self.path} has an unknown format"
        self.trouble = trouble  # only now, since others look at it while this thread reads
        return self._last


def _pods(entries: Any) -> Mapping[str, frozenset[Key]]:
    """What each pod (by its UID) has, in all its containers."""
    pods: dict[str, frozenset[Key]] = {}
    for entry in entries or ():
        uid, resource, ids = str(entry["PodUID"]), entry["ResourceName"], entry["DeviceIDs"] or ()
        keys = set()
        for devices in ids.values() if isinstance(ids, dict) else [ids]:
            for device in devices or ():
                if not (isinstance(resource, str) and isinstance(device, str)):
                    raise TypeError
                keys.add((resource, device))
        pods[uid] = pods.get(uid, frozenset()) | keys
    return pods
