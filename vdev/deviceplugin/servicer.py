"""The five RPCs of one resource, and its open ListAndWatch streams.

A servicer answers from the current `resource` and decides nothing. A new value is sent to every open stream.
`socket_server` has the sockets, `service` the registration.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import grpc
import structlog

from ..errors import InjectedError
from ..faults.effects import Answer, Rpc, StreamFaults
from ..model.device import Health, Slot
from ..pb import deviceplugin_v1beta1_pb2 as pb
from ..pb import deviceplugin_v1beta1_pb2_grpc as rpc
from ..planning.allocation import ContainerEdits, allocate, container_edits
from ..planning.resources import LIST_LIMIT, Resource
from .rpc import RIGHT, Context, RpcCalls

if TYPE_CHECKING:
    from ..agent.agent import Agent

log = structlog.get_logger(__name__)

_ALLOCATE = 5.0  # seconds; the kubelet itself has no deadline
_PRE_START = 28.0  # seconds; the kubelet waits 30
_LARGE = 256  # devices of a resource above which a choice is made in a thread, so that other resources do not wait


def list_response(slots: Iterable[Slot]) -> pb.ListAndWatchResponse:
    response = pb.ListAndWatchResponse()
    for slot in slots:
        device = response.devices.add(ID=slot.id, health="Healthy" if slot.health.healthy else "Unhealthy")
        for node in slot.device.raw.topology:
            device.topology.nodes.add(ID=node)
    return response


def allocate_response(containers: Iterable[ContainerEdits]) -> pb.AllocateResponse:
    """Return the answer to an Allocate, with the edits of each container."""
    response = pb.AllocateResponse()
    for edits in containers:
        container = response.container_responses.add()
        for key, value in edits.env.items():
            container.envs[key] = value
        for key, value in edits.annotations.items():
            container.annotations[key] = value
        for name in edits.cdi_devices:
            container.cdi_devices.add(name=name)
        for mount in edits.mounts.values():
            container.mounts.add(
                container_path=mount.container_path, host_path=mount.host_path, read_only=mount.read_only
            )
        for node in edits.nodes.values():
            container.devices.add(
                container_path=node.container_path, host_path=node.host_path, permissions=node.permissions
            )
    return response


BOGUS = "vdev-bogus"  # the prefix of ids, variables and paths that do not exist


def faulty_allocate(wrong: Answer, request: pb.AllocateRequest, right: pb.AllocateResponse) -> pb.AllocateResponse:
    count = len(request.container_requests)
    if wrong.empty:
        containers = []
    elif wrong.bogus_ids:
        variables = right.container_responses[0].envs if count else ()
        node = pb.DeviceSpec(container_path=f"/dev/{BOGUS}", host_path=f"/dev/{BOGUS}", permissions="rw")
        containers = [pb.ContainerAllocateResponse(envs=dict.fromkeys(variables, f"{BOGUS}-0"), devices=[node])] * count
    else:  # `oversized`: the check of the configuration allows no other
        containers = [pb.ContainerAllocateResponse(envs={"VDEV_OVERSIZED": "x" * (LIST_LIMIT + 1)})] * count
    return pb.AllocateResponse(container_responses=containers)


def faulty_preferred(wrong: Answer, request: pb.PreferredAllocationRequest) -> Sequence[Sequence[str]]:
    """Return the wrong ids for each container that a fault rule configures."""
    sizes = [each.allocation_size for each in request.container_requests]
    if wrong.empty:
        return []
    if wrong.bogus_ids:
        return [[f"{BOGUS}-{number}" for number in range(size)] for size in sizes]
    return [["x" * (LIST_LIMIT + 1)] for _ in sizes]  # `oversized`


def faulty_list(fault: StreamFaults, slots: Sequence[Slot]) -> pb.ListAndWatchResponse:
    response = list_response(slots)
    if fault.duplicate_ids:
        opposite = (replace(slot, health=Health(healthy=not slot.health.healthy)) for slot in slots)
        response.MergeFrom(list_response(opposite))
    else:  # `oversized`: the other faults of streams do not change the list
        piece = pb.ListAndWatchResponse(devices=[pb.Device(ID=BOGUS, health="Unhealthy")]).SerializeToString()
        response.MergeFromString(piece * (LIST_LIMIT // len(piece) + 1))
    return response


class Servicer(rpc.DevicePluginServicer):
    """Serves one resource on one socket; `streams` counts the open ListAndWatch calls.

    `response` is the list that streams get. `on_stream` is called when a stream begins and when
    it ends. `calls.wake()` lets streams and calls check their state again.
    """

    def __init__(
        self, resource: Resource, response: pb.ListAndWatchResponse, agent: "Agent", *, on_stream: Callable[[], None]
    ) -> None:
        self.resource = resource
        self.streams = 0
        self.streams_opened = 0
        self._agent = agent
        self._on_stream = on_stream
        self._faults = faults = agent.faults.engine
        self._clock = clock = agent.options.clock
        self.calls = RpcCalls(resource.name, kind="resource", faults=faults, metrics=agent.metrics, clock=clock)
        self.response = response
        self._version = 0
        self._cut = 0  # how often streams were closed on purpose

    def update(self, resource: Resource) -> None:
        """Serve this state from now on; every open stream gets the list if it differs from the last one.

        A list over the kubelet's limit is not sent, because it would end the stream and take the resource down; the
        last list stays. The configuration is checked for that, but retired devices may make a list longer.
        """
        response = list_response(resource.slots)
        self.resource = resource
        if (size := response.ByteSize()) > LIST_LIMIT:
            log.error("list not sent; the kubelet could not receive it", resource=resource.name, bytes=size)
        elif response != self.response:
            self.response = response
            self.list_again()

    def list_again(self) -> None:
        """Send the list to every open stream: the kubelet then writes its checkpoint."""
        self._version += 1
        self.calls.wake()

    def close_streams(self) -> None:
        """End the streams that are open now; the kubelet may open new ones."""
        self._cut += 1
        self.calls.wake()

    def options(self) -> pb.DevicePluginOptions:
        """The options for the registration and GetDevicePluginOptions; the kubelet reads only the latter."""
        return pb.DevicePluginOptions(
            pre_start_required=self.resource.pre_start_required, get_preferred_allocation_available=True
        )

    async def GetDevicePluginOptions(self, request: pb.Empty, context: Context) -> pb.DevicePluginOptions:
        async with self.calls.answering(Rpc.OPTIONS, context):
            return self.options()

    async def ListAndWatch(self, request: pb.Empty, context: Context) -> AsyncIterator[pb.ListAndWatchResponse]:
        self.streams += 1
        self.streams_opened += 1
        sent = None
        cut = self._cut
        try:
            self._on_stream()
            await self.calls.inject(Rpc.LIST)
            while not self.calls.closing and cut == self._cut:
                woken = self.calls.woken  # taken before the state is read, so that no change after it is missed
                fault_now = self._faults.on_stream(self.resource.name)
                due = (self._version, fault_now)
                if fault_now is not None and fault_now.flood is not None:
                    yield self.response
                    await self._clock.sleep(1.0 / fault_now.flood)
                    continue
                if due != sent and (fault_now is None or not fault_now.stall):
                    sent = due
                    yield self.response if fault_now is None else faulty_list(fault_now, self.resource.slots)
                    continue  # a newer list may have come while this one was written
                await woken.wait()
        except InjectedError as injected:
            await context.abort(grpc.StatusCode[injected.code], str(injected))
        finally:
            self.streams -= 1
            self._on_stream()

    async def GetPreferredAllocation(
        self, request: pb.PreferredAllocationRequest, context: Context
    ) -> pb.PreferredAllocationResponse:
        name = self.resource.name
        available = [(name, each) for asked in request.container_requests for each in asked.available_deviceIDs]
        with self._agent.holders.in_request(available):
            async with self.calls.answering(Rpc.PREFERRED, context, deadline=_ALLOCATE) as wrong:
                answers: list[Sequence[str]] = []
                for asked in request.container_requests:
                    ids, must = asked.available_deviceIDs, asked.must_include_deviceIDs
                    prefer = functools.partial(self.resource.preferred, ids, must, asked.allocation_size)
                    answers.append(prefer() if len(self.resource.slots) < _LARGE else await asyncio.to_thread(prefer))
                if wrong is not RIGHT:
                    answers = list(faulty_preferred(wrong, request))
                containers = [pb.ContainerPreferredAllocationResponse(deviceIDs=ids) for ids in answers]
                return pb.PreferredAllocationResponse(container_responses=containers)

    async def Allocate(self, request: pb.AllocateRequest, context: Context) -> pb.AllocateResponse:
        name, wanted = self.resource.name, [list(each.devices_ids) for each in request.container_requests]
        keys = [(name, each) for ids in wanted for each in ids]
        # Only `Handovers.granted` waits, for the state file; without it, no deadline is needed.
        deadline = _ALLOCATE if self.resource.acts_on_handovers else None
        # In flight before a fault may delay the call, so that none of its devices is dropped in the meantime.
        with self._agent.holders.in_request(keys):
            async with self.calls.answering(Rpc.ALLOCATE, context, deadline=deadline) as wrong:
                resource = self.resource
                edits = [container_edits(resource, allocate(resource, ids)) for ids in wanted]
                self._agent.holders.note_allocated(keys)
                for ids in wanted:
                    self._faults.note_allocate(name, ids)
                if resource.acts_on_handovers:
                    for ids in wanted:
                        await self._agent.handovers.granted(resource, ids)
                right = allocate_response(edits)
                return right if wrong is RIGHT else faulty_allocate(wrong, request, right)

    async def PreStartContainer(
        self, request: pb.PreStartContainerRequest, context: Context
    ) -> pb.PreStartContainerResponse:
        async with self.calls.answering(Rpc.PRE_START, context, deadline=_PRE_START):
            await self._agent.handovers.pre_start(self.resource, request.devices_ids)
            return pb.PreStartContainerResponse()
