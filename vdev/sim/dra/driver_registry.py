"""The registered DRA drivers of the node: their connections, their health streams, and the deletion of their slices.

Several instances of a driver may be registered, with different endpoints. The kubelet calls the newest connected
instance, and reopens a lost connection immediately. It deletes a driver's slices 30 s after the last connection ended,
and all slices when it starts. `dynamic_resources` interprets the responses.

If a message of the health stream omits a device, the device keeps its health until its timeout. As in 1.36, only
messages update pods immediately. A timeout or the end of the stream is visible after the next sync of a pod.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Iterable, Mapping
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
from ..api.kinds import BY_NAME
from ..connection import READY, CallError, Connection, RegistrationError, call_errors
from ..kubelet_life import Life
from ..lint import SUN_PATH_LIMIT, warning
from . import answer_lint

_SLICE = BY_NAME["ResourceSlice"]
_VERSIONS: Mapping[str, tuple[Any, Any]] = {
    "v1.DRAPlugin": (v1, v1_grpc.DRAPluginStub),
    "v1beta1.DRAPlugin": (v1beta1, v1beta1_grpc.DRAPluginStub),
}
"""The messages and the stub of each service. Both services have the same methods."""
_HEALTH = {health.HEALTHY: "Healthy", health.UNHEALTHY: "Unhealthy"}
_HEALTH_TIMEOUT = 30  # seconds, if the driver sets none
WIPE_SECONDS = 30.0  # from the end of a driver's last connection to the deletion of its slices
HEALTH_RETRY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """A device of a claim in a driver's response."""

    driver: str
    pool: str
    device: str
    share: str
    requests: tuple[str, ...]
    cdi: tuple[str, ...]

    @property
    def id(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


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

    @property
    def devices(self) -> list[PreparedDevice]:
        return [each for devices in self.drivers.values() for each in devices]


@dataclass(frozen=True, slots=True)
class Answer:
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
        self.service = service
        self.connected = False
        self.tasks: list[asyncio.Task[None]] = []  # cancelled when the driver is deregistered
        self._life = life
        # The last report of each device, by pool and name: health, message, and expiry time.
        self._reports: dict[tuple[str, str], tuple[str, str, float]] = {}
        self._api, stub = _VERSIONS[service]
        self._stub: Any = stub(self.channel)
        self._health: health_grpc.DRAResourceHealthAsyncStub = health_grpc.DRAResourceHealthStub(self.channel)

    async def call(self, method: str, claims: Iterable[ClaimInfo]) -> dict[str, Answer]:
        """Call NodePrepareResources or NodeUnprepareResources. Returns responses by claim UID. Raises CallError."""
        asked = [self._api.Claim(namespace=each.namespace, uid=each.uid, name=each.name) for each in claims]
        request = getattr(self._api, f"{method}Request")(claims=asked)
        with call_errors():
            answer = await getattr(self._stub, method)(request, timeout=self._life.timings.prepare)
        answers = {}
        for uid in sorted(answer.claims):  # maps of messages have no stable order
            devices = getattr(answer.claims[uid], "devices", ())  # only in NodePrepareResources
            answers[uid] = Answer(tuple(self._device(each) for each in devices), answer.claims[uid].error)
        return answers

    def _device(self, device: Any) -> PreparedDevice:
        return PreparedDevice(
            self.driver,
            device.pool_name,
            device.device_name,
            getattr(device, "share_id", ""),
            tuple(device.request_names),
            tuple(device.cdi_device_ids),
        )

    async def watch_health(self) -> None:
        """Receive the health stream until it ends. Raises CallError."""
        try:
            with call_errors():
                async for message in self._health.NodeWatchResources(health.NodeWatchResourcesRequest()):
                    self._life.journal.find(answer_lint.health(self.driver, message))
                    for each in message.devices:
                        seconds = each.health_check_timeout_seconds
                        end = self._life.clock.now() + (seconds if seconds > 0 else _HEALTH_TIMEOUT)
                        report = _HEALTH.get(each.health, "Unknown"), each.message, end
                        self._reports[each.device.pool_name, each.device.device_name] = report
                    self._life.changed()
        finally:
            self._reports.clear()

    def health_of(self, device: PreparedDevice) -> tuple[str, str] | None:
        """Return the health of a device and its message; None without a report or after its timeout."""
        state, message, end = self._reports.get((device.pool, device.device), ("", "", -1))
        return None if self._life.clock.now() > end else (state, message)


@dataclass(frozen=True, slots=True)
class DriverStatus:
    """State of a registered driver instance."""

    endpoint: str
    service: str
    connected: bool


class DriverRegistry:
    """Registered drivers by name, and the health that they report."""

    def __init__(self, life: Life) -> None:
        self._objects = life.kubelet.objects.store
        self._life = life
        self._journal = life.journal
        self._clients: dict[str, list[DriverClient]] = {}
        self._connections: Counter[str] = Counter()  # the number of connects of all instances, by driver

    # --- registration -----------------------------------------------------------------------------------------------

    def validate(self, name: str, endpoint: str, versions: list[str]) -> None:
        """Check the services of a driver. Raises RegistrationError."""
        self._journal.find(answer_lint.registration(name, endpoint, versions))
        self._service(name, endpoint, versions)

    async def register(self, name: str, endpoint: str, versions: list[str]) -> None:
        """Register an instance and connect to it. Raises RegistrationError."""
        instances = self._clients.setdefault(name, [])
        if any(each.socket == endpoint for each in instances):
            raise RegistrationError(f"endpoint {endpoint} already registered for DRA driver plugin {name}")
        service = self._service(name, endpoint, versions)
        client = DriverClient(name, endpoint, service, self._life)
        instances.append(client)
        client.tasks = [
            self._life.spawn(self._follow(client), f"connection to {name}"),
            self._life.spawn(self._listen(client), f"health of {name}"),
        ]
        self._journal.metrics.registrations[name] += 1
        text = f"{name} registered ({service}, {endpoint})"
        self._journal.note("driverRegistered", "driver", text, driver=name, endpoint=endpoint, service=service)

    async def deregister(self, name: str, endpoint: str) -> None:
        """Remove an instance whose registration socket was removed."""
        for client in [each for each in self._clients.get(name, []) if each.socket == endpoint]:
            self._clients[name].remove(client)
            for task in client.tasks:
                task.cancel()
            client.connected = False
            await client.close()
            self._gone(client, "its registration socket is gone")

    def get(self, driver: str) -> DriverClient:
        """Return the connection to the instance to call. Raises CallError with the kubelet's text."""
        instances = self._clients.get(driver)
        if not instances:
            raise CallError(f"DRA driver {driver} is not registered")
        return next((each for each in reversed(instances) if each.connected), instances[-1])

    def status(self) -> dict[str, list[DriverStatus]]:
        """Return the registered instances by driver, oldest first."""
        return {
            name: [DriverStatus(each.socket, each.service, each.connected) for each in clients]
            for name, clients in sorted(self._clients.items())
            if clients
        }

    async def close(self) -> None:
        await asyncio.gather(*(client.close() for instances in self._clients.values() for client in instances))

    def _service(self, name: str, endpoint: str, versions: list[str]) -> str:
        where = f"invalid supported gRPC versions of DRA driver plugin {name} at endpoint {endpoint}"
        if not versions:
            raise RegistrationError(f"{where}: empty list of supported gRPC services (aka supported versions)")
        if known := [each for each in versions if each in _VERSIONS]:
            return known[0]
        raise RegistrationError(
            f"{where}: none of services supported by the plugin ({_go_list(versions)}) are supported by the kubelet "
            f"({_go_list(list(_VERSIONS))})"
        )

    # --- connections and slices -------------------------------------------------------------------------------------

    async def _follow(self, client: DriverClient) -> None:
        """Keep a connection open until cancelled."""
        if len(os.fsencode(client.socket)) > SUN_PATH_LIMIT:
            return  # the socket cannot be opened, and gRPC would wait forever
        while True:
            state = client.channel.get_state(try_to_connect=True)
            was_connected, client.connected = client.connected, state is READY
            if client.connected and not was_connected:
                self._connections[client.driver] += 1
            if was_connected and not client.connected:
                self._gone(client, "its connection ended")
            if client.connected != was_connected:
                self._journal.changed()
            if state is grpc.ChannelConnectivity.SHUTDOWN:
                return
            await client.channel.wait_for_state_change(state)

    def _gone(self, client: DriverClient, why: str) -> None:
        """Report the end of an instance. If no other one connects in time, the driver's slices are deleted."""
        driver, connections = client.driver, self._connections[client.driver]
        text = f"{driver} is gone ({client.socket}): {why}"
        self._journal.note("driverGone", "driver", text, driver=driver, endpoint=client.socket, why=why)

        def wipe() -> None:
            if connections == self._connections[driver]:
                self.wipe(driver, "its last connection ended 30 s ago")

        if not any(each.connected for each in self._clients.get(driver, [])):
            self._life.later(WIPE_SECONDS, wipe)

    def wipe(self, driver: str, why: str) -> None:
        """Delete the node's slices of a driver, or of all drivers if `driver` is empty."""
        names = [
            each["metadata"]["name"]
            for each in self._objects.all(_SLICE)
            if each["spec"].get("nodeName") == self._life.kubelet.node_name
            and driver in ("", each["spec"].get("driver"))
        ]
        for name in names:
            self._objects.delete(_SLICE, "", name)
        if names:
            text = f"{len(names)}{f' of {driver}' if driver else ''} deleted by the kubelet: {why}"
            self._journal.note("slicesDeleted", "slices", text, driver=driver, count=len(names), why=why)

    # --- health -----------------------------------------------------------------------------------------------------

    def health_of(self, device: PreparedDevice) -> tuple[str, str]:
        """Return the health of a device and its message. Without a report, the health is Unknown."""
        reports = (each.health_of(device) for each in reversed(self._clients.get(device.driver, [])))
        return next(filter(None, reports), ("Unknown", ""))

    async def _listen(self, client: DriverClient) -> None:
        """Keep a health stream open to an instance. As in 1.36, this ignores whether it offers the service."""
        while True:
            try:
                await client.watch_health()
            except CallError as error:
                if "code = Unimplemented" in str(error):
                    text = (
                        "the driver does not serve v1alpha1.DRAResourceHealth: a 1.36 kubelet logs an error every 5 s"
                    )
                    self._journal.find([warning("health-unserved", client.driver, text)])
            await self._life.clock.sleep(HEALTH_RETRY_SECONDS)


def _go_list(names: list[str]) -> str:
    return "[" + " ".join(f'"{name}"' for name in names) + "]"
