"""The services for claims and health that the kubelet calls on the socket of a driver.

The response to a call about claims contains each claim of the request. If a claim fails, its error is a sentence for
the pod's Event.
"""

import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import grpc

from ..deviceplugin.rpc import Context, RpcCalls
from ..faults.effects import Rpc
from ..pb import dra_health_v1_pb2, dra_health_v1_pb2_grpc, dra_health_v1alpha1_pb2, dra_health_v1alpha1_pb2_grpc
from ..pb import dra_v1_pb2 as pb
from ..pb import dra_v1_pb2_grpc as rpc
from .claim import PreparedClaim
from .claims import Claims

if TYPE_CHECKING:
    from ..agent.agent import Agent

SERVICES = ("v1.DRAPlugin", "v1alpha1.DRAResourceHealth", "v1.DRAResourceHealth")
"""The services that the driver registers. A kubelet uses the first version of a service that it supports."""
BOGUS = "vdev-bogus"  # a device that does not exist, for the fault `wrongDevice`
ALL_AT_ONCE = "*"  # not a valid request name; for containers that use the claim as a whole
_TIMES = 3  # intervals without a health message after which the kubelet sets the health to Unknown


class DraServicer(rpc.DRAPluginServicer):
    """The services of one driver: DRAPlugin v1, and both versions of the health stream."""

    def __init__(self, agent: "Agent", driver: str, claims: Claims) -> None:
        intervals, clock = agent.options.timing
        self.health_streams = 0  # open streams; a 1.36 kubelet opens one
        self._driver = driver
        self._pool = agent.options.node_name
        self._claims = claims
        self._faults = faults = agent.faults.engine
        self.calls = RpcCalls(driver, kind="driver", faults=faults, metrics=agent.metrics, clock=clock)
        self._repeat_health = intervals.repeat_health
        self._clock = clock

    def add_to(self, server: grpc.aio.Server) -> None:
        rpc.add_DRAPluginServicer_to_server(self, server)
        alpha, v1 = self._health_service(dra_health_v1alpha1_pb2), self._health_service(dra_health_v1_pb2)
        dra_health_v1alpha1_pb2_grpc.add_DRAResourceHealthServicer_to_server(alpha, server)
        dra_health_v1_pb2_grpc.add_DRAResourceHealthServicer_to_server(v1, server)

    # --- claims -------------------------------------------------------------------------------------------------------

    async def NodePrepareResources(self, request: pb.NodePrepareResourcesRequest, context: Context) -> Any:
        async with self.calls.answering(Rpc.PREPARE, context) as wrong:
            if wrong.claim_error:
                claims = {each.uid: pb.NodePrepareResourceResponse(error=wrong.claim_error) for each in request.claims}
                return pb.NodePrepareResourcesResponse(claims=claims)
            before = self._claims.prepared
            answers = await self._claims.prepare(request.claims)
            for uid, each in answers.items():
                if isinstance(each, PreparedClaim) and uid not in before:
                    self._faults.note_allocate(self._driver, [device.id for device in each.devices])
            claims = {uid: _prepare_response(each, wrong.fault) for uid, each in answers.items()}
            return pb.NodePrepareResourcesResponse(claims=_without_skipped(claims, request, wrong.fault))

    async def NodeUnprepareResources(self, request: pb.NodeUnprepareResourcesRequest, context: Context) -> Any:
        async with self.calls.answering(Rpc.UNPREPARE, context) as wrong:
            if wrong.claim_error:
                errors = {each.uid: wrong.claim_error for each in request.claims}
            else:
                errors = _without_skipped(await self._claims.unprepare(request.claims), request, wrong.fault)
            claims = {uid: pb.NodeUnprepareResourceResponse(error=error or "") for uid, error in errors.items()}
            return pb.NodeUnprepareResourcesResponse(claims=claims)

    # --- health -------------------------------------------------------------------------------------------------------

    def _health_service(self, version: Any) -> Any:
        """The service with NodeWatchResources, for the messages of one version."""

        async def watch(_request: Any, _context: Context) -> AsyncIterator[Any]:
            self.health_streams += 1
            try:
                while not self.calls.closing:
                    changed = self.calls.woken
                    fault = self._faults.on_health(self._driver)
                    if fault == "ended":
                        return
                    if fault is None:
                        yield self._health_message(version)
                    with contextlib.suppress(TimeoutError):
                        async with self._clock.timeout(self._repeat_health):
                            await changed.wait()
            finally:
                self.health_streams -= 1

        return SimpleNamespace(NodeWatchResources=watch)

    def _health_message(self, version: Any) -> Any:
        message = version.NodeWatchResourcesResponse()
        for each in self._claims.pool.devices:
            message.devices.add(
                device={"pool_name": self._pool, "device_name": each.name},
                health=version.HEALTHY if each.health.healthy else version.UNHEALTHY,
                health_check_timeout_seconds=int(_TIMES * self._repeat_health),
                message=each.health.reason,
                last_updated_time=int(self._clock.wall()),
            )
        return message


def _without_skipped(claims: dict[str, Any], request: Any, wrong: str) -> dict[str, Any]:
    """The claims of a response, without the first claim of the request if a fault removes it."""
    if wrong == "skipClaim" and request.claims:
        claims.pop(request.claims[0].uid)
    return claims


def _prepare_response(answer: PreparedClaim | str | None, wrong: str) -> pb.NodePrepareResourceResponse:
    if not isinstance(answer, PreparedClaim):
        return pb.NodePrepareResourceResponse(error=answer or "")
    message = pb.NodePrepareResourceResponse()
    for each in answer.devices:
        message.devices.add(
            request_names=each.requests,
            pool_name=each.pool,
            device_name=each.device,
            cdi_device_ids=each.cdi,
            share_id=each.share_id or None,
        )
    if answer.together:
        last = message.devices.add()
        last.CopyFrom(message.devices[-2])
        last.request_names[:] = [ALL_AT_ONCE]
        last.cdi_device_ids.append(answer.together)  # last: the pod's status shows the first id
    if wrong == "wrongDevice":
        for device in message.devices:
            device.device_name = BOGUS
            device.cdi_device_ids[:] = [f"{each.partition('=')[0]}={BOGUS}" for each in device.cdi_device_ids]
    return message
