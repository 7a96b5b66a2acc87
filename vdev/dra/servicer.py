"""What the kubelet calls on a driver's socket: DRAPlugin v1 and v1beta1, and the health stream in both versions.

The versions say the same in other messages, so there is one implementation of each call. Errors of a claim go into the
answer, in a sentence for the pod's event; each claim that was asked for is in the answer.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import grpc
import structlog

from ..aio.clock import Timing
from ..deviceplugin.socket_server import HeldCalls, RuleHooks
from ..errors import InjectedError
from ..faults.effects import ClaimCall, FaultyClaims, HealthStreamFault
from ..faults.rules import CallFault
from ..pb import dra_health_v1_pb2, dra_health_v1alpha1_pb2, dra_v1_pb2, dra_v1beta1_pb2
from .claim import PreparedClaim
from .claims import ClaimRef, Claims


class FaultHooks(RuleHooks, Protocol):
    """The questions. Who implements them calls `DraDriver.poke` when an answer changes."""

    def on_call(self, call: ClaimCall, driver: str, /) -> CallFault | None:
        """What happens to this call; asked once per call."""

    def on_health(self, driver: str) -> HealthStreamFault | None:
        """What happens to the driver's health streams now."""

    def allocated(self, driver: str, ids: Iterable[str], /) -> None:
        """Devices of these ids were prepared for a claim that had none before."""


_TIMES = 3  # a message may get lost, or be late


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHealth:
    """The health of a published device; `healthy` None: it is not known. `message` says more, for people."""

    pool: str
    device: str
    healthy: bool | None = True
    message: str = ""


Health = Sequence[DeviceHealth]
Encode = Callable[[Health, int, int], bytes]
"""From devices, the time in seconds since 1970, and the time-out in seconds, to a message of one version."""


class HealthStreams:
    """The open streams, and what they say."""

    def __init__(self, driver: str, faults: FaultHooks, timing: Timing) -> None:
        self.open = 0
        self._driver = driver
        self._faults = faults
        self._every = timing.intervals.repeat_health
        self._clock = timing.clock
        self._devices: Health = ()
        self._news: dict[asyncio.Event, None] = {}  # of the streams, the oldest first
        self._closing = False

    def update(self, devices: Health) -> None:
        """Say this from now on; every stream gets it at once when it is something else."""
        if tuple(devices) != tuple(self._devices):
            self._devices = tuple(devices)
            self.poke()

    def poke(self) -> None:
        """Say it again, and ask the fault hooks again."""
        for event in self._news:
            event.set()

    def open_again(self) -> None:
        self._closing = False

    def close(self) -> None:
        """End all streams, until `open_again`."""
        self._closing = True
        self.poke()

    async def watch(self, encode: Encode) -> AsyncGenerator[bytes, None]:
        """One stream, until it is closed or the kubelet goes."""
        news = asyncio.Event()
        self._news[news] = None
        self.open += 1
        try:
            while not self._closing:
                fault = self._faults.on_health(self._driver)
                if fault is HealthStreamFault.ENDED:
                    return
                news.clear()
                if fault is None:
                    yield encode(self._devices, int(self._clock.wall()), int(_TIMES * self._every))
                cancel = self._clock.call_later(self._every, news.set)
                try:
                    await news.wait()
                finally:
                    cancel()
        finally:
            self._news.pop(news, None)
            self.open -= 1


log = structlog.get_logger(__name__)

PLUGIN, HEALTH = "DRAPlugin", "DRAResourceHealth"
VERSIONS = {"v1": dra_v1_pb2, "v1beta1": dra_v1beta1_pb2}
HEALTH_VERSIONS = {"v1alpha1": dra_health_v1alpha1_pb2, "v1": dra_health_v1_pb2}
SERVICES = (*(f"{each}.{PLUGIN}" for each in VERSIONS), *(f"{each}.{HEALTH}" for each in HEALTH_VERSIONS))
"""As they are announced. A kubelet takes the first one that it knows."""
BOGUS = "vdev-bogus"  # a device that exists nowhere
ALL_AT_ONCE = "*"  # a request that no container can name: for those that use the claim as a whole
_Handler = Callable[[Any, FaultyClaims | None], Awaitable[Any]]
"""Answers a request, or does it wrong on purpose."""
ObserveRpc = Callable[[str, str, str, float], None]
"""Is told each call: its name, the driver, the status code and the seconds that it took."""


class DraServicer:
    """The services of one driver."""

    def __init__(
        self,
        driver: str,
        claims: Claims,
        *,
        faults: FaultHooks,
        observe: ObserveRpc,
        timing: Timing,
    ) -> None:
        self.health = HealthStreams(driver, faults, timing)
        self._driver = driver
        self._claims = claims
        self._faults = faults
        self._observe = observe
        self._clock = timing.clock
        self._held = HeldCalls(faults, timing.clock)

    def poke(self) -> None:
        """Ask the fault hooks again: their answers for streams and hanging calls may have changed."""
        self._held.poke()
        self.health.poke()

    def close(self) -> None:
        """End streams and hanging calls, until `open`."""
        self._held.close()
        self.health.close()

    def open(self) -> None:
        self._held.closing = False
        self.health.open_again()

    def handlers(self) -> Sequence[grpc.GenericRpcHandler]:
        plugins = [self._plugin(pb) for pb in VERSIONS.values()]
        return [*plugins, *(self._health(pb) for pb in HEALTH_VERSIONS.values())]

    # --- prepare and unprepare ----------------------------------------------------------------------------------------

    def _plugin(self, pb: Any) -> grpc.GenericRpcHandler:
        async def prepare(request: Any, wrong: FaultyClaims | None) -> Any:
            before = self._claims.prepared
            answers = await self._claims.prepare(_refs(request))
            for uid, each in answers.items():
                if isinstance(each, PreparedClaim) and uid not in before:
                    self._faults.allocated(self._driver, [device.id for device in each.devices])
            return pb.NodePrepareResourcesResponse(
                claims={uid: _prepared(pb, each, wrong) for uid, each in answers.items()}
            )

        async def unprepare(request: Any, _wrong: FaultyClaims | None) -> Any:
            answers = await self._claims.unprepare(_refs(request))
            return pb.NodeUnprepareResourcesResponse(
                claims={uid: pb.NodeUnprepareResourceResponse(error=error) for uid, error in answers.items()}
            )

        calls = {
            ClaimCall.PREPARE: (prepare, pb.NodePrepareResourcesRequest, pb.NodePrepareResourcesResponse),
            ClaimCall.UNPREPARE: (unprepare, pb.NodeUnprepareResourcesRequest, pb.NodeUnprepareResourcesResponse),
        }
        methods: dict[str, Any] = {
            call.value: grpc.unary_unary_rpc_method_handler(
                self._guard(call, handler, answer), request.FromString, lambda answer: answer.SerializeToString()
            )
            for call, (handler, request, answer) in calls.items()
        }
        return grpc.method_handlers_generic_handler(_name(pb, PLUGIN), methods)

    def _guard(
        self, call: ClaimCall, handler: _Handler, answer: Any
    ) -> Callable[[Any, grpc.aio.ServicerContext[Any, Any]], Awaitable[Any]]:
        """Apply faults, and turn what is left of errors into a gRPC status and a sentence."""

        async def guarded(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            begun, code = self._clock.now(), "OK"
            try:
                fault = self._faults.on_call(call, self._driver)
                if fault is None:
                    return await handler(request, None)
                return await self._with_fault(fault, request, handler, answer)
            except InjectedError as aborted:
                code = aborted.code
                await context.abort(grpc.StatusCode[code], str(aborted))
            except asyncio.CancelledError:
                code = "CANCELLED"
                raise
            except Exception as failed:
                code = "INTERNAL"
                log.exception("request failed", rpc=call.value, driver=self._driver)
                await context.abort(grpc.StatusCode.INTERNAL, f"vdev failed in {call.value}: {failed}")
            finally:
                self._observe(call.value, self._driver, code, self._clock.now() - begun)
            raise AssertionError("abort raises")

        return guarded

    async def _with_fault(self, fault: CallFault, request: Any, handler: _Handler, answer: Any) -> Any:
        if not await self._held.hold(fault):
            return await handler(request, None)
        asked = fault.rule.answer
        if asked is not None and asked.claim_error:
            return answer(claims={each.uid: {"error": asked.claim_error} for each in request.claims})
        wrong = asked.claims if asked is not None else None
        right = await handler(request, wrong)
        if wrong is FaultyClaims.SKIP_CLAIM and request.claims:
            right.claims.pop(request.claims[0].uid)
        return right

    # --- health -------------------------------------------------------------------------------------------------------

    def _health(self, pb: Any) -> grpc.GenericRpcHandler:
        said: list[Any] = [None, 0, None]  # the devices and the time-out of the last message, and that

        def encode(devices: Health, now: int, timeout: int) -> bytes:
            if said[0] is not devices or said[1] != timeout:
                said[:] = devices, timeout, made(devices, timeout)
            message = said[2]
            for each in message.devices:
                each.last_updated_time = now
            whole: bytes = message.SerializeToString()
            return whole

        def made(devices: Health, timeout: int) -> Any:
            words = {True: pb.HEALTHY, False: pb.UNHEALTHY, None: pb.UNKNOWN}
            message = pb.NodeWatchResourcesResponse()
            for each in devices:
                message.devices.add(
                    device={"pool_name": each.pool, "device_name": each.device},
                    health=words[each.healthy],
                    health_check_timeout_seconds=timeout,
                    message=each.message,
                )
            return message

        async def watch(_request: Any, _context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
            async with contextlib.aclosing(self.health.watch(encode)) as messages:
                async for message in messages:
                    yield message

        method: Any = grpc.unary_stream_rpc_method_handler(watch, pb.NodeWatchResourcesRequest.FromString, None)
        return grpc.method_handlers_generic_handler(_name(pb, HEALTH), {"NodeWatchResources": method})


def _name(pb: Any, service: str) -> str:
    name: str = pb.DESCRIPTOR.services_by_name[service].full_name
    return name


def _refs(request: Any) -> list[ClaimRef]:
    return [ClaimRef(each.namespace, each.uid, each.name) for each in request.claims]


def _prepared(pb: Any, answer: PreparedClaim | str, wrong: FaultyClaims | None) -> Any:
    if isinstance(answer, str):
        return pb.NodePrepareResourceResponse(error=answer)
    message = pb.NodePrepareResourceResponse()
    for each in answer.devices:
        device = message.devices.add(
            request_names=each.requests, pool_name=each.pool, device_name=each.device, cdi_device_ids=each.cdi
        )
        if each.share_id and "share_id" in device.DESCRIPTOR.fields_by_name:
            device.share_id = each.share_id
    if answer.together:
        last = message.devices.add()
        last.CopyFrom(message.devices[-2])
        last.request_names[:] = [ALL_AT_ONCE]
        last.cdi_device_ids.append(answer.together)  # after the device's own: the pod's status has the first one
    if wrong is FaultyClaims.WRONG_DEVICE:
        for device in message.devices:
            device.device_name = BOGUS
            device.cdi_device_ids[:] = [f"{each.partition('=')[0]}={BOGUS}" for each in device.cdi_device_ids]
    return message
