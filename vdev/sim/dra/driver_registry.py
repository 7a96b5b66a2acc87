"""The registered DRA drivers of the node, their connections, and the deletion of their slices.

Several instances of a driver may be registered, with different endpoints. The kubelet calls the newest connected
instance. It deletes a driver's slices 30 s after the last connection ended, and all slices when it starts.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass

from ..api.kinds import BY_NAME
from ..connection import CallError, RegistrationError
from ..kubelet_life import Life
from ..lint import warning
from . import answer_lint
from .driver_client import SERVICES, DriverClient

_SLICE = BY_NAME["ResourceSlice"]
WIPE_SECONDS = 30.0  # from the end of a driver's last connection to the deletion of its slices
HEALTH_RETRY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class DriverStatus:
    """State of a registered driver instance."""

    endpoint: str
    service: str
    connected: bool


class DriverRegistry:
    """Registered drivers by name, and the health that they report."""

    def __init__(self, life: Life) -> None:
        self._objects = life.settings.objects
        self._node = life.settings.node
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
        if any(each.endpoint == endpoint for each in instances):
            raise RegistrationError(f"endpoint {endpoint} already registered for DRA driver plugin {name}")
        service = self._service(name, endpoint, versions)
        client = DriverClient(name, endpoint, service, self._life)
        instances.append(client)
        client.tasks = [
            self._life.spawn(client.follow(self._connection), f"connection to {name}"),
            self._life.spawn(self._listen(client), f"health of {name}"),
        ]
        self._journal.metrics.registrations[name] += 1
        text = f"{name} registered ({service}, {endpoint})"
        self._journal.note("driverRegistered", "driver", text, driver=name, endpoint=endpoint, service=service)

    async def deregister(self, name: str, endpoint: str) -> None:
        """Remove an instance whose registration socket was removed."""
        for client in [each for each in self._clients.get(name, []) if each.endpoint == endpoint]:
            self._clients[name].remove(client)
            for task in client.tasks:
                task.cancel()
            was_connected, client.connected = client.connected, False
            await client.close()
            self._report_gone(name, endpoint, "its registration socket is gone")
            if was_connected:
                self._wipe_later(name)

    def get(self, driver: str) -> DriverClient:
        """Return the connection to the instance to call. Raises CallError with the kubelet's text."""
        instances = self._clients.get(driver)
        if not instances:
            raise CallError(f"DRA driver {driver} is not registered")
        return next((each for each in reversed(instances) if each.connected), instances[-1])

    def status(self) -> dict[str, list[DriverStatus]]:
        """Return the registered instances by driver, oldest first."""
        return {
            name: [DriverStatus(each.endpoint, each.service, each.connected) for each in clients]
            for name, clients in sorted(self._clients.items())
            if clients
        }

    async def close(self) -> None:
        """Close every connection."""
        await asyncio.gather(*(client.close() for instances in self._clients.values() for client in instances))

    def _service(self, name: str, endpoint: str, versions: list[str]) -> str:
        where = f"invalid supported gRPC versions of DRA driver plugin {name} at endpoint {endpoint}"
        if not versions:
            raise RegistrationError(f"{where}: empty list of supported gRPC services (aka supported versions)")
        if known := [each for each in versions if each in SERVICES]:
            return known[0]
        raise RegistrationError(
            f"{where}: none of services supported by the plugin ({_go_list(versions)}) are supported by the kubelet "
            f"({_go_list(list(SERVICES))})"
        )

    # --- connections and slices -------------------------------------------------------------------------------------

    def _connection(self, client: DriverClient) -> None:
        """Handle a connection that has opened or ended."""
        if client.connected:
            self._connections[client.driver] += 1
        else:
            self._report_gone(client.driver, client.endpoint, "its connection ended")
            self._wipe_later(client.driver)
        self._journal.changed()

    def _report_gone(self, driver: str, endpoint: str, why: str) -> None:
        text = f"{driver} is gone ({endpoint}): {why}"
        self._journal.note("driverGone", "driver", text, driver=driver, endpoint=endpoint, why=why)

    def _wipe_later(self, driver: str) -> None:
        """Delete the driver's slices after a delay if no instance is connected or connects during the delay."""
        connections = self._connections[driver]

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
            if each["spec"].get("nodeName") == self._node and driver in ("", each["spec"].get("driver"))
        ]
        for name in names:
            self._objects.delete(_SLICE, "", name)
        if names:
            text = f"{len(names)}{f' of {driver}' if driver else ''} deleted by the kubelet: {why}"
            self._journal.note("slicesDeleted", "slices", text, driver=driver, count=len(names), why=why)

    # --- health -----------------------------------------------------------------------------------------------------

    def health_of(self, driver: str, pool: str, device: str) -> tuple[str, str]:
        """Return the health of a device and its message. Without a report, the health is Unknown."""
        reports = (each.health_of(pool, device) for each in reversed(self._clients.get(driver, [])))
        return next(filter(None, reports), ("Unknown", ""))

    async def _listen(self, client: DriverClient) -> None:
        """Keep a health stream open to an instance. As in 1.36, this ignores whether it offers the service."""
        while True:
            try:
                async for message in client.health():
                    self._journal.find(answer_lint.health(client.driver, message))
                    self._life.changed()
            except CallError as error:
                if "code = Unimplemented" in str(error):
                    text = (
                        "the driver does not serve v1alpha1.DRAResourceHealth: a 1.36 kubelet logs an error every 5 s"
                    )
                    self._journal.find([warning("health-unserved", client.driver, text)])
            await self._life.clock.sleep(HEALTH_RETRY_SECONDS)


def _go_list(names: list[str]) -> str:
    return "[" + " ".join(f'"{name}"' for name in names) + "]"
