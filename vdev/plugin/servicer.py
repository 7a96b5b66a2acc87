"""The five RPCs of one resource, and its open ListAndWatch streams.

A servicer answers from the resource as it is now and decides nothing. A new state is a new value of `resource`, which
is sent to every open stream. Sockets are the business of `sockets.socket_server`, registration that of `service`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import grpc
import structlog

from ..aio.clock import SYSTEM, Clock
from ..aio.deadline import within
from ..core.allocation.edits import container_edits
from ..core.allocation.request import allocate
from ..core.inventory.list_size import LIST_LIMIT
from ..core.inventory.resources import Resource
from ..core.model.faults.fault_answers import CallFault
from ..core.model.faults.fault_effects import Rpc, StreamFault
from ..errors import InjectedError, VdevError
from ..pb import deviceplugin_v1beta1_pb2 as pb
from ..sockets.held_calls import HeldCalls
from . import faulty_answers
from .encode import ListEncoder, allocate_response, keep_ready
from .fault_hooks import NO_FAULTS, FaultHooks

log = structlog.get_logger(__name__)

_PRE_START = 28.0  # seconds; the kubelet waits 30
_SERVICE = "v1beta1.DevicePlugin"
_Handler = Callable[[Any], Coroutine[Any, Any, bytes]]
"""Answers a request with the bytes of a message."""
_AtOnce = Callable[[bytes], bytes | None]
"""The answer to the bytes of a request, where it is ready."""


class RequestHandler(Protocol):
    """What a servicer needs from the agent: preferences, work before a container starts, and a record of requests."""

    allocate_deadline: float
    """Seconds after which an Allocate or a preference is given up; the kubelet itself has no deadline."""

    async def prefer(
        self, resource: Resource, available: Sequence[str], required: Sequence[str], size: int
    ) -> Sequence[str]:
        """The devices to prefer, or nothing."""

    def in_request(self, resource: str, ids: Sequence[str] | None) -> AbstractContextManager[None]:
        """While the context lasts, an RPC that names these ids (None: any of the resource) is in flight."""

    def allocated(self, resource: Resource, ids: Sequence[str]) -> None:
        """A request was granted."""

    async def handed_over(self, resource: Resource, ids: Sequence[str]) -> None:
        """Do what must be done when devices change hands, before the answer; for a resource that acts on it."""

    async def pre_start(self, resource: Resource, ids: Sequence[str]) -> None:
        """Do what must be done before a container with these devices starts."""

    def observe_rpc(self, rpc: str, resource: str, code: str, seconds: float) -> None:
        """An RPC ended."""


def _ids(request: object) -> Sequence[str] | None:
    """The device ids that a request names; None where it may be about any."""
    match request:
        case pb.AllocateRequest():
            return [each for container in request.container_requests for each in container.devices_ids]
        case pb.PreferredAllocationRequest():
            return None
    return ()


def _nothing_ready(_request: bytes) -> bytes | None:
    return None


async def _no_answer(_request: object) -> bytes:
    """A stream has begun; there is nothing to send yet."""
    return b""


class Servicer:
    """Serves one resource; `streams` counts the open ListAndWatch calls.

    `on_stream` is called when a stream begins and when it ends.
    """

    def __init__(
        self,
        resource: Resource,
        requests: RequestHandler,
        *,
        on_stream: Callable[[], None],
        faults: FaultHooks = NO_FAULTS,
        clock: Clock = SYSTEM,
        encoder: ListEncoder | None = None,
    ) -> None:
        self.resource = resource
        self.streams = 0
        self.streams_opened = 0  # since the start
        self.options_calls = 0  # each registration begins with one
        self._requests = requests
        self._on_stream = on_stream
        self._faults = faults
        self._clock = clock
        self._held = HeldCalls(faults, clock)
        self._encoder = encoder or ListEncoder()
        self._list = self._encoder.encode(resource.slots)
        self._version = 0
        self._news: dict[asyncio.Event, None] = {}  # of the streams, the oldest first
        self._cut = 0  # how often streams were closed on purpose

    def update(self, resource: Resource) -> None:
        """Serve this state from now on; every open stream gets the list when it differs from the last one.

        A list that is over the kubelet's limit is never sent: it would end the stream and take the whole resource down.
        Then the last list stays in force. Lists that are too long from the start never get here; one that grows does,
        because `Unhealthy` is a longer word than `Healthy`.
        """
        self.resource = resource
        encoded = self._encoder.encode(resource.slots)
        if len(encoded) > LIST_LIMIT:
            log.error("list not sent; the kubelet could not receive it", resource=resource.name, bytes=len(encoded))
        elif encoded != self._list:
            self._list = encoded
            self._version += 1
            self._wake_streams()

    def list_again(self) -> None:
        """Send the list once more to every open stream."""
        self._version += 1
        self._wake_streams()

    def poke(self) -> None:
        """Ask the fault hooks again: their answers for streams and hanging calls may have changed."""
        self._held.poke()
        self._wake_streams()

    def close_streams(self) -> None:
        """End the streams that are open now; the kubelet may open new ones."""
        self._cut += 1
        self._wake_streams()

    def close(self) -> None:
        self._held.close()
        self._wake_streams()

    def _wake_streams(self) -> None:
        for event in self._news:
            event.set()

    def options(self) -> pb.DevicePluginOptions:
        """The same in the registration and in GetDevicePluginOptions; the kubelet reads only the latter."""
        return pb.DevicePluginOptions(
            pre_start_required=self.resource.pre_start_required, get_preferred_allocation_available=True
        )

    def handlers(self) -> Sequence[grpc.GenericRpcHandler]:
        deadline = self._requests.allocate_deadline
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            Rpc.OPTIONS.value: self._unary(Rpc.OPTIONS, self._get_options, pb.Empty, deadline),
            Rpc.LIST.value: grpc.unary_stream_rpc_method_handler(self._list_and_watch, pb.Empty.FromString, None),
            Rpc.PREFERRED.value: self._unary(
                Rpc.PREFERRED, self._get_preferred, pb.PreferredAllocationRequest, deadline
            ),
            Rpc.ALLOCATE.value: self._unary(
                Rpc.ALLOCATE, self._allocate, pb.AllocateRequest, deadline, self._allocate_at_once
            ),
            Rpc.PRE_START.value: self._unary(Rpc.PRE_START, self._pre_start, pb.PreStartContainerRequest, _PRE_START),
        }
        return (grpc.method_handlers_generic_handler(_SERVICE, methods),)

    def _unary(
        self, rpc: Rpc, handler: _Handler, request: Any, deadline: float, at_once: _AtOnce = _nothing_ready
    ) -> Any:
        guarded = self._guard(rpc, handler, request.FromString, deadline, at_once)
        return grpc.unary_unary_rpc_method_handler(guarded, None, None)

    def _guard(
        self, rpc: Rpc, handler: _Handler, read: Callable[[bytes], Any], deadline: float, at_once: _AtOnce
    ) -> Callable[[bytes, grpc.aio.ServicerContext[Any, Any]], Coroutine[Any, Any, bytes]]:
        """Turn errors, in this one place, into a gRPC status and a sentence that a pod's event can show."""
        clock, name = self._clock, rpc.value

        async def guarded(raw: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
            begun, code = clock.now(), "OK"
            fault = self._faults.on_call(rpc, self.resource.name)
            try:
                if fault is not None:
                    return await self._with_fault(fault, read(raw), handler, deadline)
                ready = at_once(raw)
                return await within(clock, deadline, handler(read(raw))) if ready is None else ready
            except InjectedError as injected:
                code = injected.code
                await context.abort(grpc.StatusCode[code], str(injected))
            except asyncio.CancelledError:
                code = "CANCELLED"
                raise
            except VdevError as refusal:
                code = refusal.grpc_status
                log.warning("request refused", rpc=name, resource=self.resource.name, reason=str(refusal))
                await context.abort(grpc.StatusCode[code], str(refusal))
            except TimeoutError:
                code = "DEADLINE_EXCEEDED"
                log.error("request timed out", rpc=name, resource=self.resource.name)  # noqa: TRY400 - a trace says nothing here
                await context.abort(
                    grpc.StatusCode.DEADLINE_EXCEEDED,
                    f"vdev did not answer {name} for {self.resource.name} in time",
                )
            except Exception as failed:
                code = "INTERNAL"
                log.exception("request failed", rpc=name, resource=self.resource.name)
                await context.abort(
                    grpc.StatusCode.INTERNAL, f"vdev failed in {name} for {self.resource.name}: {failed}"
                )
            finally:
                self._requests.observe_rpc(name, self.resource.name, code, clock.now() - begun)
            raise AssertionError("abort raises")

        return guarded

    async def _with_fault(self, fault: CallFault, request: Any, handler: _Handler, deadline: float) -> bytes:
        """Apply a fault to a call. The call is in flight from the beginning, so that its devices are not dropped."""
        with self._requests.in_request(self.resource.name, _ids(request)):
            wrong = fault.effect.faulty_answer if await self._held.hold(fault) else None
            right = await within(self._clock, deadline, handler(request))
            return right if wrong is None else faulty_answers.answer(wrong, request, right)

    async def _get_options(self, _request: pb.Empty) -> bytes:
        self.options_calls += 1
        return self.options().SerializeToString()

    async def _list_and_watch(
        self, request: pb.Empty, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[bytes]:
        news = asyncio.Event()
        self._news[news] = None
        self.streams += 1
        self.streams_opened += 1
        sent = None
        cut = self._cut
        fault = self._faults.on_call(Rpc.LIST, self.resource.name)
        try:
            self._on_stream()
            if fault is not None:
                await self._with_fault(fault, request, _no_answer, self._requests.allocate_deadline)
            while not self._held.closing and cut == self._cut:
                fault_now = self._faults.on_stream(self.resource.name)
                due = (self._version, fault_now)
                if fault_now is not None and fault_now.fault is StreamFault.FLOOD:
                    yield self._list
                    await self._clock.sleep(1.0 / fault_now.rate)
                    continue
                if due != sent and (fault_now is None or fault_now.fault is not StreamFault.STALL):
                    sent = due
                    right = self._list
                    slots = self.resource.slots
                    yield right if fault_now is None else faulty_answers.device_list(fault_now.fault, slots, right)
                    continue  # a newer list may have come while this one was written
                news.clear()
                await news.wait()
        except InjectedError as injected:
            await context.abort(grpc.StatusCode[injected.code], str(injected))
        finally:
            self._news.pop(news, None)
            self.streams -= 1
            self._on_stream()

    async def _get_preferred(self, request: pb.PreferredAllocationRequest) -> bytes:
        with self._requests.in_request(self.resource.name, None):
            answers = [
                await self._requests.prefer(
                    self.resource, each.available_deviceIDs, each.must_include_deviceIDs, each.allocation_size
                )
                for each in request.container_requests
            ]
        containers = [pb.ContainerPreferredAllocationResponse(deviceIDs=ids) for ids in answers]
        return pb.PreferredAllocationResponse(container_responses=containers).SerializeToString()

    def _allocate_at_once(self, request: bytes) -> bytes | None:
        """The answer for one healthy device, once it is ready. Nothing is awaited, so no turn sees it in flight."""
        resource = self.resource
        known = resource.ready.get(request)
        if known is None or not resource.by_id[known[0]].health.healthy:
            return None
        slot, answer = known
        self._granted(resource, (slot,))
        return answer

    async def _allocate(self, request: pb.AllocateRequest) -> bytes:
        wanted = [list(each.devices_ids) for each in request.container_requests]
        resource = self.resource
        with self._requests.in_request(resource.name, wanted[0] if len(wanted) == 1 else _ids(request)):
            edits = [container_edits(allocate(resource, ids)) for ids in wanted]
            for ids in wanted:
                self._granted(resource, ids)
                if resource.acts_on_handovers:
                    await self._requests.handed_over(resource, ids)
        answer = allocate_response(edits)
        if len(wanted) == 1 and len(wanted[0]) == 1:
            keep_ready(resource, wanted[0][0], answer)
        return answer

    def _granted(self, resource: Resource, ids: Sequence[str]) -> None:
        self._requests.allocated(resource, ids)
        self._faults.allocated(resource.name, ids)

    async def _pre_start(self, request: pb.PreStartContainerRequest) -> bytes:
        await self._requests.pre_start(self.resource, request.devices_ids)
        return pb.PreStartContainerResponse().SerializeToString()
