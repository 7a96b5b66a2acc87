"""What the kubelet calls on a driver's socket: DRAPlugin v1 and v1beta1, and the health stream in both versions.

The versions say the same in other messages, so there is one implementation of each call. Errors of a claim go into the
answer, in a sentence for the pod's event; each claim that was asked for is in the answer.
"""

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc

from ..aio.clock import Timing
from ..deviceplugin.rpc import Context, ObserveRpc, RpcCalls
from ..faults.effects import ClaimCall
from ..faults.engine import Engine
from ..pb import dra_health_v1_pb2, dra_health_v1alpha1_pb2, dra_v1_pb2, dra_v1beta1_pb2
from .claim import PreparedClaim
from .claims import ClaimRef, Claims
from .health import Health, HealthStreams

PLUGIN, HEALTH = "DRAPlugin", "DRAResourceHealth"
VERSIONS = {"v1": dra_v1_pb2, "v1beta1": dra_v1beta1_pb2}
HEALTH_VERSIONS = {"v1alpha1": dra_health_v1alpha1_pb2, "v1": dra_health_v1_pb2}
SERVICES = (*(f"{each}.{PLUGIN}" for each in VERSIONS), *(f"{each}.{HEALTH}" for each in HEALTH_VERSIONS))
"""As they are announced. A kubelet takes the first one that it knows."""
BOGUS = "vdev-bogus"  # a device that exists nowhere
ALL_AT_ONCE = "*"  # a request that no container can name: for those that use the claim as a whole


class DraServicer:
    """The services of one driver."""

    def __init__(
        self,
        driver: str,
        claims: Claims,
        *,
        faults: Engine,
        observe: ObserveRpc,
        timing: Timing,
    ) -> None:
        self.health = HealthStreams(driver, faults, timing)
        self._driver = driver
        self._claims = claims
        self._faults = faults
        self._calls = RpcCalls(driver, kind="driver", faults=faults, observe=observe, clock=timing.clock)

    def poke(self) -> None:
        """Ask the fault rules again: their answers for streams and hanging calls may have changed."""
        self._calls.poke()
        self.health.poke()

    def close(self) -> None:
        """End streams and hanging calls, until `open`."""
        self._calls.close()
        self.health.close()

    def open(self) -> None:
        self._calls.open()
        self.health.open_again()

    def handlers(self) -> Sequence[grpc.GenericRpcHandler]:
        plugins = [self._plugin(pb) for pb in VERSIONS.values()]
        return [*plugins, *(self._health(pb) for pb in HEALTH_VERSIONS.values())]

    # --- prepare and unprepare ----------------------------------------------------------------------------------------

    def _plugin(self, pb: Any) -> grpc.GenericRpcHandler:
        """NodePrepareResources and NodeUnprepareResources in the messages of one version."""

        async def prepare(request: Any, context: Context) -> Any:
            async with self._calls.answering(ClaimCall.PREPARE, context) as wrong:
                if wrong.claim_error:
                    return _refused(pb.NodePrepareResourcesResponse, request, wrong.claim_error)
                before = self._claims.prepared
                answers = await self._claims.prepare(_refs(request))
                for uid, each in answers.items():
                    if isinstance(each, PreparedClaim) and uid not in before:
                        self._faults.allocated(self._driver, [device.id for device in each.devices])
                claims = {uid: _prepared(pb, each, wrong.fault) for uid, each in answers.items()}
                return pb.NodePrepareResourcesResponse(claims=_without_skipped(claims, request, wrong.fault))

        async def unprepare(request: Any, context: Context) -> Any:
            async with self._calls.answering(ClaimCall.UNPREPARE, context) as wrong:
                if wrong.claim_error:
                    return _refused(pb.NodeUnprepareResourcesResponse, request, wrong.claim_error)
                answers = await self._claims.unprepare(_refs(request))
                claims = {uid: pb.NodeUnprepareResourceResponse(error=error) for uid, error in answers.items()}
                return pb.NodeUnprepareResourcesResponse(claims=_without_skipped(claims, request, wrong.fault))

        handlers: dict[str, Any] = {
            ClaimCall.PREPARE.value: grpc.unary_unary_rpc_method_handler(
                prepare,
                pb.NodePrepareResourcesRequest.FromString,
                pb.NodePrepareResourcesResponse.SerializeToString,
            ),
            ClaimCall.UNPREPARE.value: grpc.unary_unary_rpc_method_handler(
                unprepare,
                pb.NodeUnprepareResourcesRequest.FromString,
                pb.NodeUnprepareResourcesResponse.SerializeToString,
            ),
        }
        return grpc.method_handlers_generic_handler(_name(pb, PLUGIN), handlers)

    # --- health -------------------------------------------------------------------------------------------------------

    def _health(self, pb: Any) -> grpc.GenericRpcHandler:
        """NodeWatchResources in the messages of one version."""
        words = {True: pb.HEALTHY, False: pb.UNHEALTHY, None: pb.UNKNOWN}

        def encode(devices: Health, now: int, timeout: int) -> bytes:
            message = pb.NodeWatchResourcesResponse()
            for each in devices:
                message.devices.add(
                    device={"pool_name": each.pool, "device_name": each.device},
                    health=words[each.healthy],
                    health_check_timeout_seconds=timeout,
                    message=each.message,
                    last_updated_time=now,
                )
            encoded: bytes = message.SerializeToString()
            return encoded

        async def watch(_request: Any, _context: Context) -> AsyncIterator[bytes]:
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


def _refused(response: Any, request: Any, why: str) -> Any:
    return response(claims={each.uid: {"error": why} for each in request.claims})


def _without_skipped(claims: dict[str, Any], request: Any, wrong: str) -> dict[str, Any]:
    """The claims of an answer; a fault may leave the first one of the request out."""
    if wrong == "skipClaim" and request.claims:
        claims.pop(request.claims[0].uid)
    return claims


def _prepared(pb: Any, answer: PreparedClaim | str, wrong: str) -> Any:
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
    if wrong == "wrongDevice":
        for device in message.devices:
            device.device_name = BOGUS
            device.cdi_device_ids[:] = [f"{each.partition('=')[0]}={BOGUS}" for each in device.cdi_device_ids]
    return message
