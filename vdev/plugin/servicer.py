"""The five RPCs of one resource, and its open ListAndWatch streams.

A servicer answers from the resource as it is now and decides nothing. A new state is a new value of `resource`, which
is sent to every open stream. Sockets are the business of `sockets.socket_server`, registration that of `service`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol

import grpc
import structlog

from ..aio.clock import SYSTEM, Clock
from ..core.allocation.edits import container_edits
from ..core.allocation.request import allocate
from ..core.inventory.list_size import LIST_LIMIT
from ..core.inventory.resources import Resource
from ..core.model.faults.fault_answers import CallFault
from ..core.model.faults.fault_effects import Register, Rpc, Stream, StreamFault
from ..errors import InjectedError, VdevError
from ..pb import deviceplugin_v1beta1_pb2 as pb
from ..sockets.held_calls import HeldCalls, RuleHooks
from . import faulty_answers
from .encode import allocate_response
from .requests import Requests

log = structlog.get_logger(__name__)

_PRE_START = 28.0  # seconds; the kubelet waits 30
_SERVICE = "v1beta1.DevicePlugin"
_Handler = Callable[[Any], Awaitable[Any]]
"""Answers a request with a message."""


class FaultHooks(RuleHooks, Protocol):
    """Where failures on demand reach the plugin: what is asked before something is done; `faults.engine` answers.

    Who implements it calls `ResourceService.poke` when an answer changes.
    """

    def on_call(self, rpc: Rpc, resource: str, /) -> CallFault | None:
        """What happens to this call; asked once per call."""

    def on_register(self, resource: str) -> tuple[str, Register] | None:
        """What happens to the registration that is due, and by which rule; asked again after `ResourceService.poke`."""

    def on_stream(self, resource: str) -> Stream | None:
        """What happens to the resource's streams now."""

    def allocated(self, resource: str, ids: Iterable[str]) -> None:
        """These devices were given to a pod."""


def _ids(request: object) -> Sequence[str] | None:
    """The device ids that a request names; None where it may be about any."""
    match request:
        case pb.AllocateRequest():
            return [each for container in request.container_requests for each in container.devices_ids]
        case pb.PreferredAllocationRequest():
            return None
    return ()


def _serialized(message: Any) -> bytes:
    encoded: bytes = message.SerializeToString()
    return encoded


class Servicer:
    """Serves one resource; `streams` counts the open ListAndWatch calls.

    `encoded` is the list of the resource's devices as it is sent. `on_stream` is called when a stream begins and when
    it ends.
    """

    def __init__(
        self,
        resource: Resource,
        encoded: bytes,
        requests: Requests,
        *,
        on_stream: Callable[[], None],
        faults: FaultHooks,
        clock: Clock = SYSTEM,
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
        self._list = encoded
        self._version = 0
        self._news: dict[asyncio.Event, None] = {}  # of the streams, the oldest first
        self._cut = 0  # how often streams were closed on purpose

    def update(self, resource: Resource, encoded: bytes) -> None:
        """Serve this state from now on; every open stream gets the list when it differs from the last one.

        A list that is over the kubelet's limit is never sent: it would end the stream and take the whole resource down.
        Then the last list stays in force. Lists that are too long from the start never get here; one that grows does,
        because `Unhealthy` is a longer word than `Healthy`.
        """
        self.resource = resource
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
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            Rpc.OPTIONS.value: self._unary(Rpc.OPTIONS, self._get_options, pb.Empty),
            Rpc.LIST.value: grpc.unary_stream_rpc_method_handler(self._list_and_watch, pb.Empty.FromString, None),
            Rpc.PREFERRED.value: self._unary(Rpc.PREFERRED, self._get_preferred, pb.PreferredAllocationRequest),
            Rpc.ALLOCATE.value: self._unary(Rpc.ALLOCATE, self._allocate, pb.AllocateRequest),
            Rpc.PRE_START.value: self._unary(Rpc.PRE_START, self._pre_start, pb.PreStartContainerRequest),
        }
        return (grpc.method_handlers_generic_handler(_SERVICE, methods),)

    def _unary(self, rpc: Rpc, handler: _Handler, request: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(self._guard(rpc, handler), request.FromString, _serialized)

    def _guard(
        self, rpc: Rpc, handler: _Handler
    ) -> Callable[[Any, grpc.aio.ServicerContext[Any, Any]], Coroutine[Any, Any, Any]]:
        """Turn errors, in this one place, into a gRPC status and a sentence that a pod's event can show."""
        clock, name = self._clock, rpc.value

        async def guarded(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            begun, code = clock.now(), "OK"
            fault = self._faults.on_call(rpc, self.resource.name)
            try:
                if fault is not None:
                    return await self._with_fault(fault, request, handler)
                return await handler(request)
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
                log.error("request timed out", rpc=name, resource=self.resource.name)
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

    async def _with_fault(self, fault: CallFault, request: Any, handler: _Handler) -> Any:
        """Apply a fault to a call. The call is in flight from the beginning, so that its devices are not dropped."""
        with self._requests.in_request(self.resource.name, _ids(request)):
            wrong = fault.effect.faulty_answer if await self._held.hold(fault) else None
            right = await handler(request)
            return right if wrong is None else faulty_answers.answer(wrong, request, right)

    async def _get_options(self, _request: pb.Empty) -> pb.DevicePluginOptions:
        self.options_calls += 1
        return self.options()

    async def _list_and_watch(
        self, _request: pb.Empty, context: grpc.aio.ServicerContext[Any, Any]
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
                await self._held.hold(fault)
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

    async def _get_preferred(self, request: pb.PreferredAllocationRequest) -> pb.PreferredAllocationResponse:
        with self._requests.in_request(self.resource.name, None):
            async with self._clock.timeout(self._requests.allocate_deadline):
                answers = [
                    await self._requests.prefer(
                        self.resource, each.available_deviceIDs, each.must_include_deviceIDs, each.allocation_size
                    )
                    for each in request.container_requests
                ]
        containers = [pb.ContainerPreferredAllocationResponse(deviceIDs=ids) for ids in answers]
        return pb.PreferredAllocationResponse(container_responses=containers)

    async def _allocate(self, request: pb.AllocateRequest) -> pb.AllocateResponse:
        wanted = [list(each.devices_ids) for each in request.container_requests]
        resource = self.resource
        with self._requests.in_request(resource.name, _ids(request)):
            edits = [container_edits(allocate(resource, ids)) for ids in wanted]
            for ids in wanted:
                self._requests.allocated(resource, ids)
                self._faults.allocated(resource.name, ids)
            if resource.acts_on_handovers:  # nothing else in here waits, so nothing else needs a deadline
                async with self._clock.timeout(self._requests.allocate_deadline):
                    for ids in wanted:
                        await self._requests.handed_over(resource, ids)
        return allocate_response(edits)

    async def _pre_start(self, request: pb.PreStartContainerRequest) -> pb.PreStartContainerResponse:
        async with self._clock.timeout(_PRE_START):
            await self._requests.pre_start(self.resource, request.devices_ids)
        return pb.PreStartContainerResponse()
