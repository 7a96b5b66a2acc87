"""The API server's side of a world: the server with its weather, the objects on it, and what happens to them."""

import datetime as dt
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol
from unittest import mock

from httpcore2._async import http11

from ...agent.outputs.dra import drivers
from ...api_server import ApiServerAddress
from ...sim import Finding
from ...sim.api import store
from ...sim.api.server_objects import ServerObjects
from ...sim.dra.scheduling import cel_selectors
from ..machine.memory_tcp import MemoryEnd
from ..machine.virtual_time import PROCESS, WALL, WorldLoop
from .claim_model import CLASSES, ClaimModel, of_driver
from .weather import Weather, WeatheredServer

NODE = "node-1"
_STORMS = (
    Weather(refused=0.5, statuses=(500, 503)),
    Weather(refused=0.5, statuses=(429,)),
    Weather(refused=0.4, statuses=(409,)),
    Weather(late=0.8, seconds=3.0),
    Weather(late=0.5, seconds=30.0),  # longer than an answer is waited for
    Weather(cut=0.4),
    Weather(lost=0.4),
    Weather(refused=0.2, statuses=(409, 429, 500, 503), cut=0.1, lost=0.1, late=0.3, seconds=12.0),
)
LASTING = 150.0  # seconds after bad weather in which what goes through the API server may still be behind


class Surroundings(Protocol):
    """The world, as far as it matters here."""

    seed: int
    root: Path
    dice: random.Random
    loop: WorldLoop

    @property
    def now(self) -> float:
        """Seconds since the machine's start."""

    def tell(self, line: str) -> None:
        """Remember what happened."""


class WorldCluster:
    """The server, its objects and the node's part of the file. `fair_since`: from when on nothing went wrong."""

    def __init__(self, world: Surroundings) -> None:
        self._world = world
        self.model = ClaimModel(world.root)
        self.server = WeatheredServer(random.Random(f"weather {world.seed}"))  # noqa: S311 - it repeats on purpose
        self.objects = ServerObjects(self.server.objects)
        self.fair_since = 0.0
        self._has_labelled = True  # the agent that runs, or may have
        self._token: Path = world.root / "token"
        world.loop.network.delay = lambda: world.dice.random() * 0.002
        world.loop.network.on_open = _belongs_to_its_process

    @property
    def address(self) -> ApiServerAddress:
        """Where the agent finds it, and as whom."""
        return ApiServerAddress(address=self.server.address, token=self._token)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let the server's time be the world's, each agent be in a pod of its own, and selectors need no CEL."""

        def now() -> str:
            return dt.datetime.fromtimestamp(WALL + self._world.now, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(store, "_now", now))
            stack.enter_context(mock.patch.object(drivers, "os", SimpleNamespace(environ=_Environment())))
            stack.enter_context(mock.patch.object(cel_selectors, "matches", _matches))
            stack.enter_context(mock.patch.object(cel_selectors, "refusal", return_value=""))
            # By which the client's pool tells how long a connection was idle.
            stack.enter_context(mock.patch.object(http11, "time", SimpleNamespace(monotonic=self._world.loop.time)))
            yield

    async def start(self) -> None:
        """Have the server up, with what is on it before any agent."""
        self._token.write_text("token\n")
        self.model.build()
        await self.server.up()
        await self._make_node()
        for name, driver in CLASSES.items():
            spec = {"selectors": [{"cel": {"expression": of_driver(driver)}}]}
            await self.objects.create("DeviceClass", {"metadata": {"name": name}, "spec": spec})
            for count in (1, 2):
                await self.objects.create("ResourceClaimTemplate", _template(f"{name}-{count}", name, count))

    async def _make_node(self) -> None:
        labels = {"kubernetes.io/hostname": NODE}
        status = {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}]}
        await self.objects.create("Node", {"metadata": {"name": NODE, "labels": labels}, "status": status})

    def all(self, kind: str) -> list[dict[str, Any]]:
        """The objects of a kind, as they are stored."""
        return self.server.objects.all(self.objects.kind(kind))

    @property
    def is_fair(self) -> bool:
        """Whether what goes through the API server must be up to date."""
        gets_through = self.server.is_up and not self._world.loop.network.is_cut
        return gets_through and self.server.weather.is_fair and self._world.now - self.fair_since > LASTING

    def explains(self, finding: Finding) -> bool:
        """Whether something else than the driver brought about what the embedded kubelet finds."""
        # Slices are written one after the other, and a request that was given up may be answered after all.
        if finding.code in ("pool-incomplete", "pool-outdated", "duplicate-device", "duplicate-counter-set"):
            return not self.is_fair
        deleted = "there is no ResourceClaim" in finding.message  # between two questions
        return finding.code == "prepare-not-idempotent" and deleted

    def agent_starts(self) -> None:
        """An agent reads the file as it is now."""
        self._has_labelled = self.model.labels

    def agent_labels(self) -> None:
        """The agent's plan has labels: it takes them away when they are switched off."""
        self._has_labelled = True

    @property
    def may_be_labelled(self) -> bool:
        """Whether labels of an earlier agent may be left: one that starts with the switch off asks for none."""
        return not (self._has_labelled or self.model.labels)

    def trouble(self) -> None:
        """Something goes wrong at this moment."""
        self.fair_since = self._world.now

    # --- what happens to it -------------------------------------------------------------------------------------------

    def storm(self, which: int, seconds: float) -> None:
        """Bad weather for so long."""
        self.server.weather = _STORMS[which % len(_STORMS)]
        self._world.tell(f"API server: {self.server.weather} for {seconds:g} s")
        self.trouble()
        self._world.loop.call_later(seconds, self.clear)

    def clear(self) -> None:
        """Fair weather."""
        self.server.weather = Weather()
        self._world.loop.network.mend()
        self.trouble()

    async def go_away(self) -> None:
        """Nobody listens."""
        self.trouble()
        await self.server.down()

    async def come_back(self) -> None:
        """Somebody listens."""
        self.trouble()
        if not self.server.is_up:
            await self.server.up()

    def cut(self) -> None:
        """Nothing gets through."""
        self.trouble()
        self._world.loop.network.cut()

    async def restore(self, versions: int) -> None:
        """The same objects on another store, whose versions are ahead of those that everybody saw."""
        was_up = self.server.is_up
        await self.go_away()
        old = self.server.objects
        new = old.restored(max(1, old.version + versions))
        self.objects.store = new
        self.server.restored(new)
        if was_up:
            await self.come_back()

    async def forget_node(self) -> None:
        """Somebody deletes the Node, with the slices that belong to it; the kubelet makes it again."""
        self.trouble()
        await self.wipe()
        await self.objects.delete("Node", NODE)
        await self._make_node()

    async def wipe(self) -> None:
        """Somebody deletes the node's slices."""
        self.trouble()
        for each in await self.objects.list("ResourceSlice"):
            await self.objects.delete("ResourceSlice", each["metadata"]["name"])

    async def spoil_labels(self, which: int) -> None:
        """Somebody changes or removes labels of the Node that are ours."""
        self.trouble()

        def change(node: dict[str, Any]) -> None:
            labels = node["metadata"].setdefault("labels", {})
            for name in [each for each in labels if each.startswith("acme.dev/")][: which + 1]:
                del labels[name]

        await self.objects.edit("Node", NODE, "", change)


class _Environment:
    """The environment of the process that looks: in a pod, whose uid is the process's."""

    @staticmethod
    def get(name: str, default: str = "") -> str:
        """A variable."""
        process = PROCESS.get()
        return f"uid-of-{process.name}" if name == "POD_UID" and process is not None else default


def _matches(expression: str, driver: str, _device: object) -> bool:
    return expression == of_driver(driver)


def _belongs_to_its_process(end: MemoryEnd) -> None:
    process = PROCESS.get()
    if process is not None:
        process.killed.append(end.die)


def _template(name: str, of_class: str, count: int) -> dict[str, Any]:
    request = {"name": "main", "exactly": {"deviceClassName": of_class, "allocationMode": "ExactCount", "count": count}}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
