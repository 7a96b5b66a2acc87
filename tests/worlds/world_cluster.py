"""The API server of a world with its objects."""

import asyncio
import datetime as dt
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

from httpcore2._async import http11

from tests.worlds.claim_model import DRIVER
from tests.worlds.virtual_time import PROCESS, WALL
from vdev.api_server import ApiServerAddress
from vdev.dra import applier
from vdev.sim import Finding
from vdev.sim.api import server, store
from vdev.sim.api.kinds import BY_NAME
from vdev.sim.api.store import ApiObjects
from vdev.sim.dra import cel_selectors

if TYPE_CHECKING:
    from tests.worlds.world import World

NODE = "node-1"
CLASS = "acme"
LASTING = 150.0  # seconds after an outage in which objects on the server may still be out of date
_PORT = 6443
_SELECTOR = f"device.driver == '{DRIVER}'"


class WorldCluster:
    """The server and its objects."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.server = server.ApiServer(port=_PORT)
        self.objects = ApiObjects(self.server.objects)
        self._fair_since = 0.0  # the end of the last outage, or the last deletion of slices by another client
        self._is_away = False
        self._token: Path = world.root / "token"

    @property
    def address(self) -> ApiServerAddress:
        """The address and the account for the agent."""
        return ApiServerAddress(address=self.server.address, token=self._token)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Give the server the time of the world, each agent its own pod uid, and selectors without CEL."""

        def timestamp() -> str:
            return dt.datetime.fromtimestamp(WALL + self._world.now, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(store, "timestamp", timestamp))
            stack.enter_context(
                mock.patch.object(applier, "os", SimpleNamespace(environ=SimpleNamespace(get=_variable)))
            )
            stack.enter_context(mock.patch.object(cel_selectors, "matches", _matches))
            # The client's pool measures the idle time of connections with it.
            stack.enter_context(mock.patch.object(http11, "time", SimpleNamespace(monotonic=self._world.loop.time)))
            yield

    async def start(self) -> None:
        """Start the server, with the objects that exist before any agent."""
        self._token.write_text("token\n")
        await self.server.up()
        status = {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}]}
        await self.objects.create("Node", {"metadata": {"name": NODE}, "status": status})
        spec = {"selectors": [{"cel": {"expression": _SELECTOR}}]}
        await self.objects.create("DeviceClass", {"metadata": {"name": CLASS}, "spec": spec})
        for count in (1, 2):
            await self.objects.create("ResourceClaimTemplate", _template(f"{CLASS}-{count}", count))

    def all(self, kind: str) -> list[dict[str, Any]]:
        """The stored objects of a kind."""
        return self.server.objects.all(BY_NAME[kind])

    @property
    def is_fair(self) -> bool:
        """Whether objects on the API server must be up to date."""
        return not self._is_away and self._world.now - self._fair_since > LASTING

    def explains(self, finding: Finding) -> bool:
        """Whether a finding of the embedded kubelet has another cause than the driver."""
        # Slices are written one by one, and the server may still handle a request that the client gave up.
        of_pools = finding.code in ("pool-incomplete", "pool-outdated", "duplicate-device", "duplicate-counter-set")
        # The pod and its claim were deleted between the two calls.
        deleted = finding.code == "prepare-not-idempotent" and "there is no ResourceClaim" in finding.message
        return deleted or (of_pools and not self.is_fair)

    # --- events -------------------------------------------------------------------------------------------------------

    async def be_away(self, seconds: float) -> None:
        """Stop the server for so many seconds."""
        self._is_away = True
        await self.server.down()
        await asyncio.sleep(seconds)
        await self.come_back()

    async def come_back(self) -> None:
        if self._is_away:
            self._is_away = False
            self._fair_since = self._world.now
            await self.server.up()

    async def wipe(self) -> None:
        """Delete the node's slices, as another client."""
        self._fair_since = self._world.now
        for each in await self.objects.list("ResourceSlice"):
            await self.objects.delete("ResourceSlice", each["metadata"]["name"])


def _variable(name: str, default: str = "") -> str:
    """An environment variable of the running process, whose pod has its own uid."""
    process = PROCESS.get()
    return f"uid-of-{process.name}" if name == "POD_UID" and process is not None else default


def _matches(expression: str, driver: str, _device: object) -> bool:
    return expression == _SELECTOR and driver == DRIVER


def _template(name: str, count: int) -> dict[str, Any]:
    request = {"name": "main", "exactly": {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": count}}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
