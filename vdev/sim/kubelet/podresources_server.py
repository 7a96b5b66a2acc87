"""The PodResources API (v1) on pod-resources/kubelet.sock. It lists the devices that containers hold."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import grpc
import grpc.aio

from ...aio.clock import SYSTEM
from ...aio.tasks import TokenBucket
from ...pb import podresources_v1_pb2 as v1
from ...pb import podresources_v1_pb2_grpc as v1_grpc
from ..device_manager.device_allocation import Allocator
from ..device_manager.device_table import NO_NUMA, Held, numa_nodes
from ..dra.driver_registry import PreparedDevice
from ..dra.dynamic_resources import DynamicResources
from ..kubelet_life import Life
from ..objects.pods import Kind
from .node_state import PodRecord

_CALLS_PER_SECOND, _BURST = 100, 10  # the real kubelet's rate limit
_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class PodResources(v1_grpc.PodResourcesListerServicer):
    def __init__(self, life: Life, allocator: Allocator, dra: DynamicResources) -> None:
        self._table = life.table
        self._allocator = allocator
        self._dra = dra
        self._pods = life.pods
        limited = life.kubelet.rate_limit
        self._limit = TokenBucket(SYSTEM, burst=_BURST, every=1 / _CALLS_PER_SECOND) if limited else None

    async def List(self, request: v1.ListPodResourcesRequest, context: _Context) -> v1.ListPodResourcesResponse:
        """List the active pods. Like the real server, this first frees the devices of other pods."""
        del request
        await self._admit(context)
        active = self._pods.active()
        self._allocator.free()
        return v1.ListPodResourcesResponse(pod_resources=[self._pod(pod) for pod in active])

    async def Get(self, request: v1.GetPodResourcesRequest, context: _Context) -> v1.GetPodResourcesResponse:
        """Get one active pod. Like the real server, this does not free devices."""
        await self._admit(context)
        key = f"{request.pod_namespace}/{request.pod_name}"
        pod = next((each for each in self._pods.active() if each.spec.key == key), None)
        if pod is None:
            text = f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
            await context.abort(grpc.StatusCode.UNKNOWN, text)
        return v1.GetPodResourcesResponse(pod_resources=self._pod(pod))

    async def GetAllocatableResources(
        self, request: v1.AllocatableResourcesRequest, context: _Context
    ) -> v1.AllocatableResourcesResponse:
        """List all healthy devices, including held ones."""
        del request
        await self._admit(context)
        table = self._table
        return v1.AllocatableResourcesResponse(
            devices=[
                _device(resource, id_, node)
                for resource, ids in sorted(table.healthy.items())
                for id_ in sorted(ids)
                for node in numa_nodes(table.devices[resource][id_]) or (None,)
            ]
        )

    async def _admit(self, context: _Context) -> None:
        if self._limit is not None and not self._limit.try_take():
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")

    def _pod(self, pod: PodRecord) -> v1.PodResources:
        """Return a pod with its containers, except regular init containers.

        As in the real kubelet, a container has all devices of a claim, even if it uses only one request of the claim.
        """
        return v1.PodResources(
            name=pod.name,
            namespace=pod.namespace,
            containers=[
                v1.ContainerResources(
                    name=each.name,
                    devices=_devices(self._table.held_by(pod.uid, each.name)),
                    dynamic_resources=[
                        v1.DynamicResource(
                            claim_name=name,
                            claim_namespace=pod.namespace,
                            claim_resources=_claimed(self._dra.prepared(pod.namespace, name)),
                        )
                        for name in dict.fromkeys(claim.claim for claim in pod.container_claims(each.name))
                    ],
                )
                for each in pod.containers
                if each.kind is not Kind.INIT
            ],
        )


def _devices(held: Iterable[Held]) -> Iterator[v1.ContainerDevices]:
    """Yield one entry per device and NUMA node. As in the kubelet, node -1 means no NUMA node."""
    for each in held:
        for node, ids in each.by_numa:
            yield from (_device(each.resource, id_, None if node == NO_NUMA else node) for id_ in ids)


def _device(resource: str, id_: str, node: int | None) -> v1.ContainerDevices:
    """Return the entry of a device at a NUMA node. Without a node, it has no topology."""
    topology = None if node is None else v1.TopologyInfo(nodes=[v1.NUMANode(ID=node)])
    return v1.ContainerDevices(resource_name=resource, device_ids=[id_], topology=topology)


def _claimed(devices: Iterable[PreparedDevice]) -> Iterator[v1.ClaimResource]:
    """Yield one entry per device. As in the real kubelet, it repeats the CDI names of the driver's previous devices."""
    names: dict[str, list[v1.CDIDevice]] = {}
    for device in devices:
        so_far = names.setdefault(device.driver, [])
        so_far += (v1.CDIDevice(name=name) for name in device.cdi)
        yield v1.ClaimResource(
            cdi_devices=so_far,
            driver_name=device.driver,
            pool_name=device.pool,
            device_name=device.device,
            share_id=device.share or None,
        )
