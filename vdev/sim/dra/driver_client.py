"""A connection from the kubelet to a DRA driver: Prepare and Unprepare with their deadline, and the health stream.

A lost connection is reopened immediately. `dynamic_resources` interprets the responses.

If a message of the health stream omits a device, the device keeps its health until its timeout. As in 1.36, only
messages update pods immediately. A timeout or the end of the stream is visible after the next sync of a pod.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from ...pb import dra_health_v1alpha1_pb2 as health
from ...pb import dra_health_v1alpha1_pb2_grpc as health_grpc
from ...pb import dra_v1_pb2 as v1
from ...pb import dra_v1_pb2_grpc as v1_grpc
from ...pb import dra_v1beta1_pb2 as v1beta1
from ...pb import dra_v1beta1_pb2_grpc as v1beta1_grpc
from ..connection import READY, Connection, call_errors
from ..kubelet_life import Life
from ..lint import SUN_PATH_LIMIT

_VERSIONS: Mapping[str, tuple[Any, Any]] = {
    "v1.DRAPlugin": (v1, v1_grpc.DRAPluginStub),
    "v1beta1.DRAPlugin": (v1beta1, v1beta1_grpc.DRAPluginStub),
}
"""The messages and the stub of each service. Both services have the same methods."""
SERVICES = tuple(_VERSIONS)
_HEALTH = {health.HEALTHY: "Healthy", health.UNHEALTHY: "Unhealthy"}
_HEALTH_TIMEOUT = 30  # seconds, if the driver sets none


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """A device of a claim in a driver's response."""

    pool: str
    device: str
    share: str
    requests: tuple[str, ...]
    cdi: tuple[str, ...]


@dataclass(slots=True)
class ClaimInfo:
    """A claim that the kubelet has prepared, or is preparing."""

    uid: str
    name: str
    namespace: str
    pods: set[str] = field(default_factory=set)  # UIDs of the pods that use the claim
    # The devices in each driver's response; empty before the first response.
    drivers: dict[str, tuple[PreparedDevice, ...]] = field(default_factory=dict)
    prepared: bool = False  # all drivers have responded to this process

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Answer:
    """A driver's response for one claim."""

    devices: tuple[PreparedDevice, ...] = ()
    error: str = ""


class DriverClient(Connection):
    """The connection to a registered instance of a driver. `service` is the gRPC service to call."""

    def __init__(self, driver: str, endpoint: str, service: str, life: Life) -> None:
        super().__init__(
            endpoint,
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1000),
        )
        self.driver = driver
        self.endpoint = endpoint
        self.service = service
        self.connected = False
        self.tasks: list[asyncio.Task[None]] = []  # cancelled when the driver is deregistered
        self._life = life
        # The last report of each device, by pool and name: health, message, and expiry time.
        self._reports: dict[tuple[str, str], tuple[str, str, float]] = {}
        self._api, stub = _VERSIONS[service]
        self._stub: Any = stub(self.channel)
        self._health: health_grpc.DRAResourceHealthAsyncStub = health_grpc.DRAResourceHealthStub(self.channel)

    async def follow(self, changed: Callable[["DriverClient"], None]) -> None:
        """Keep the connection open until cancelled. Call `changed` whenever it opens or ends."""
        if len(os.fsencode(self.endpoint)) > SUN_PATH_LIMIT:
            return  # the socket cannot be opened, and gRPC would wait forever
        state = self.channel.get_state(try_to_connect=True)
        while True:
            connected = state is READY
            if connected != self.connected:
                self.connected = connected
                changed(self)
            if state is grpc.ChannelConnectivity.SHUTDOWN:
                return
            await self.channel.wait_for_state_change(state)
            state = self.channel.get_state(try_to_connect=True)

    async def call(self, method: str, claims: Iterable[ClaimInfo]) -> dict[str, Answer]:
        """Call NodePrepareResources or NodeUnprepareResources. Returns responses by claim UID. Raises CallError."""
        asked = [self._api.Claim(namespace=each.namespace, uid=each.uid, name=each.name) for each in claims]
        request = getattr(self._api, f"{method}Request")(claims=asked)
        with call_errors():
            answer = await getattr(self._stub, method)(request, timeout=self._life.timings.prepare)
        answers = {}
        for uid in sorted(answer.claims):  # maps of messages have no stable order
            devices = getattr(answer.claims[uid], "devices", ())  # only in NodePrepareResources
            answers[uid] = Answer(tuple(map(_device, devices)), answer.claims[uid].error)
        return answers

    async def health(self) -> AsyncIterator[health.NodeWatchResourcesResponse]:
        """Yield the messages of the health stream until it ends. Raises CallError."""
        try:
            with call_errors():
                async for message in self._health.NodeWatchResources(health.NodeWatchResourcesRequest()):
                    for each in message.devices:
                        seconds = each.health_check_timeout_seconds
                        end = self._life.clock.now() + (seconds if seconds > 0 else _HEALTH_TIMEOUT)
                        report = _HEALTH.get(each.health, "Unknown"), each.message, end
                        self._reports[each.device.pool_name, each.device.device_name] = report
                    yield message
        finally:
            self._reports.clear()

    def health_of(self, pool: str, device: str) -> tuple[str, str] | None:
        """Return the health of a device and its message; None without a report or after its timeout."""
        state, message, end = self._reports.get((pool, device), ("", "", -1))
        return None if self._life.clock.now() > end else (state, message)


def _device(device: Any) -> PreparedDevice:
    return PreparedDevice(
        device.pool_name,
        device.device_name,
        getattr(device, "share_id", ""),
        tuple(device.request_names),
        tuple(device.cdi_device_ids),
    )
