"""Reads which pods hold which devices from the kubelet's PodResources API and from its checkpoint.

The agent only calls `List`, after changes and otherwise rarely, because the kubelet limits all clients together to 100
calls a second. The answer omits containers of finished pods, and regular init containers, whose devices an app
container reuses or frees.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from ..errors import HostError
from ..hostfs import read_plain
from ..model.device import Key
from ..pb import podresources_v1_pb2 as pb
from ..pb import podresources_v1_pb2_grpc as rpc
from ..planning.in_use import Checkpoint, Holder, Use
from .registration import kubelet_channel


class RateLimited(Exception):
    """The kubelet's rate limit refused the call, so the holders are not known."""


Holders = tuple[Mapping[Key, Holder], tuple[Use, ...]]
"""The pod and the container of each device, and the devices that containers use through claims."""


async def holders(socket: Path, *, within: float) -> Holders | None:
    """Return the devices that active pods hold; None if the API does not answer `within` so many seconds.

    Raises RateLimited.
    """
    async with kubelet_channel(socket) as channel:
        try:
            answer = await rpc.PodResourcesListerStub(channel).List(pb.ListPodResourcesRequest(), timeout=within)
        except grpc.aio.AioRpcError as failed:
            if failed.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise RateLimited from failed
            return None
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
    return found, tuple(claimed)


@dataclass(frozen=True, slots=True)
class KubeletDevice:
    resource: str
    id: str
    numa: tuple[int, ...] = ()
    healthy: bool = True


async def listed(socket: Path, *, within: float) -> list[KubeletDevice] | None:
    """Return the devices that the kubelet knows: all healthy devices, and other devices that pods hold.

    None if the API does not answer `within` so many seconds.
    """
    async with kubelet_channel(socket) as channel:
        stub = rpc.PodResourcesListerStub(channel)
        try:
            offered = await stub.GetAllocatableResources(pb.AllocatableResourcesRequest(), timeout=within)
            held = await stub.List(pb.ListPodResourcesRequest(), timeout=within)
        except grpc.aio.AioRpcError:
            return None
    of_pods = [devices for pod in held.pod_resources for container in pod.containers for devices in container.devices]
    numa: defaultdict[Key, set[int]] = defaultdict(set)
    for devices in (*offered.devices, *of_pods):  # a device is repeated for each of its NUMA nodes
        for each in devices.device_ids:
            numa[devices.resource_name, each].update(node.ID for node in devices.topology.nodes)
    healthy = {(devices.resource_name, each) for devices in offered.devices for each in devices.device_ids}
    return [
        KubeletDevice(resource, device, tuple(sorted(numbers)), (resource, device) in healthy)
        for (resource, device), numbers in sorted(numa.items())
    ]


FILE_NAME = "kubelet_internal_checkpoint"
MAX_BYTES = 64 * 1024 * 1024  # ten times the size for 110 pods with the largest possible Allocate responses


class CheckpointReader:
    """Reads the checkpoint in one directory.

    `trouble` says why the current file cannot be used. Until it can, the last valid content is used, so that
    no device is freed too early.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self.trouble = ""
        self._last: Checkpoint = {}

    def read(self) -> Checkpoint:
        """Return the current content of the file, or the last valid one. Blocks briefly."""
        trouble = ""
        try:
            text = read_plain(self.path, limit=MAX_BYTES)
            if text is not None:
                self._last = _pods(json.loads(text)["Data"].get("PodDeviceEntries"))
        except HostError as failed:
            trouble = str(failed)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            trouble = f"the kubelet's checkpoint {self.path} has an unknown format"
        self.trouble = trouble  # set once at the end, because other threads may read it
        return self._last


def _pods(entries: Any) -> Checkpoint:
    """The devices of all containers of each pod, by the pod's UID."""
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
