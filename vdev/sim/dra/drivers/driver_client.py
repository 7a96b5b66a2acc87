"""One connection from the kubelet to a DRA driver: Prepare and Unprepare with their deadline, and the health stream.

The connection is opened once, is opened again as soon as it ends, and says whether it is up. What answers mean is not
decided here.
"""

import os
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from ....pb import dra_health_v1alpha1_pb2 as health
from ....pb import dra_health_v1alpha1_pb2_grpc as health_grpc
from ....pb import dra_v1_pb2 as v1
from ....pb import dra_v1_pb2_grpc as v1_grpc
from ....pb import dra_v1beta1_pb2 as v1beta1
from ....pb import dra_v1beta1_pb2_grpc as v1beta1_grpc
from ....transport import GRPC, Transport
from ...go_errors import closing_as, go_text
from ...journal import Journal
from ...lint import SUN_PATH_LIMIT
from ...timings import Timings
from ..claim_checkpoint import ClaimInfo, PreparedDevice

SERVICES = ("v1.DRAPlugin", "v1beta1.DRAPlugin")


class CallError(Exception):
    """A call failed; the text is as Go's gRPC writes it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a driver said of one claim."""

    devices: tuple[PreparedDevice, ...] = ()
    error: str = ""


class DriverClient:
    """The connection to one registered instance of a driver. `service` is the first of its services that is known."""

    def __init__(
        self,
        driver: str,
        endpoint: str,
        service: str,
        *,
        timings: Timings,
        transport: Transport = GRPC,
        journal: Journal,
    ) -> None:
        self.driver = driver
        self.endpoint = endpoint
        self.service = service
        self.connected = False
        self._timings = timings
        self._journal = journal
        self._closed = False
        self._channel = transport.channel(
            endpoint,
            [
                ("grpc.default_authority", "localhost"),
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.min_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 1000),
            ],
        )
        self._v1: v1_grpc.DRAPluginAsyncStub = v1_grpc.DRAPluginStub(self._channel)
        self._v1beta1: v1beta1_grpc.DRAPluginAsyncStub = v1beta1_grpc.DRAPluginStub(self._channel)
        self._health: health_grpc.DRAResourceHealthAsyncStub = health_grpc.DRAResourceHealthStub(self._channel)

    async def follow(self, changed: Callable[["DriverClient"], None]) -> None:
        """Keep the connection up, and tell when it came or went, until cancelled."""
        if len(os.fsencode(self.endpoint)) > SUN_PATH_LIMIT:
            return  # it can never be opened, and gRPC would wait for ever
        state = self._channel.get_state(try_to_connect=True)
        while True:
            up = state is grpc.ChannelConnectivity.READY
            if up != self.connected:
                self.connected = up
                changed(self)
            if state is grpc.ChannelConnectivity.SHUTDOWN:
                return
            await self._channel.wait_for_state_change(state)
            state = self._channel.get_state(try_to_connect=True)

    async def prepare(self, claims: Iterable[ClaimInfo]) -> dict[str, Answer]:
        """NodePrepareResources, by claim UID. Raises CallError."""
        asked = list(claims)
        if self.service == SERVICES[0]:
            request: Any = v1.NodePrepareResourcesRequest(claims=[_v1(each) for each in asked])
            call: Any = self._v1.NodePrepareResources
        else:
            request = v1beta1.NodePrepareResourcesRequest(claims=[_v1beta1(each) for each in asked])
            call = self._v1beta1.NodePrepareResources
        response = await self._call("NodePrepareResources", call, request)
        return {
            uid: Answer(tuple(_device(d) for d in each.devices), each.error)
            for uid, each in sorted(response.claims.items(), key=_uid)
        }

    async def unprepare(self, claims: Iterable[ClaimInfo]) -> dict[str, Answer]:
        """NodeUnprepareResources, by claim UID. Raises CallError."""
        asked = list(claims)
        if self.service == SERVICES[0]:
            request: Any = v1.NodeUnprepareResourcesRequest(claims=[_v1(each) for each in asked])
            call: Any = self._v1.NodeUnprepareResources
        else:
            request = v1beta1.NodeUnprepareResourcesRequest(claims=[_v1beta1(each) for each in asked])
            call = self._v1beta1.NodeUnprepareResources
        response = await self._call("NodeUnprepareResources", call, request)
        return {uid: Answer(error=each.error) for uid, each in sorted(response.claims.items(), key=_uid)}

    async def health(self) -> AsyncIterator[health.NodeWatchResourcesResponse]:
        """The messages of the health stream until it ends. Raises CallError."""
        try:
            with closing_as(CallError, lambda: self._closed):
                async for message in self._health.NodeWatchResources(health.NodeWatchResourcesRequest()):
                    yield message
        except grpc.aio.AioRpcError as error:
            raise CallError(go_text(error)) from None

    async def close(self) -> None:
        """Drop the connection at once, whatever is under way on it."""
        self._closed = True
        await self._channel.close(None)

    async def _call(self, method: str, call: Any, request: Any) -> Any:
        code = grpc.StatusCode.CANCELLED
        try:
            with closing_as(CallError, lambda: self._closed):
                answer = await call(request, timeout=self._timings.prepare)
            code = grpc.StatusCode.OK
        except grpc.aio.AioRpcError as error:
            code = error.code()
            raise CallError(go_text(error)) from None
        else:
            return answer
        finally:
            self._journal.metrics.driver_calls[self.driver, method, code.name] += 1


def _v1(claim: ClaimInfo) -> v1.Claim:
    return v1.Claim(namespace=claim.namespace, uid=claim.uid, name=claim.name)


def _v1beta1(claim: ClaimInfo) -> v1beta1.Claim:
    return v1beta1.Claim(namespace=claim.namespace, uid=claim.uid, name=claim.name)


def _uid(row: tuple[str, Any]) -> str:
    """What maps of messages are put in order by: they come in another one in each process."""
    return row[0]


def _device(device: Any) -> PreparedDevice:
    return PreparedDevice(
        device.pool_name,
        device.device_name,
        getattr(device, "share_id", ""),
        tuple(device.request_names),
        tuple(device.cdi_device_ids),
    )
