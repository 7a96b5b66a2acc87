"""What devices measure, put together: plans become situations of the sensors, and these are told of over HTTP.

    plan, with its time ─► noted ─► caught up with before anybody reads, or soon ─► Sensors ─► readings at any instant

A plan is only noted when it is settled, for what follows from it takes a quarter of a second for 10 000 devices. Its
time is kept, so that it does not matter when it is caught up with.
"""

import asyncio
import platform
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...aio.clock import Clock
from ...aio.giving_way import giving_way
from ...core.decide import Plan
from ...core.exposition.family import Family, chunks
from ...core.exposition.nodes import Exposition
from ...core.model.problem import Problem, error
from ...core.model.telemetry import Range, TelemetrySpec
from ...core.telemetry.sensors import MeasuredDevice, Sensors
from ...kube import Api
from ..inputs.pod_wishes import PodWishes
from ..options import Options
from ..outputs.base import Output
from ..outputs.tools.tool_files import SeenSensors
from .telemetry_told import document, in_short, load_of, same

if TYPE_CHECKING:
    from ...observe.http import Side

_TURN = 40  # devices
_MOST_NOTED = 64  # plans; those between are passed over where nobody reads


class TelemetrySide(Output):
    """The sensors of one node. `api` None: there is no API server; `on_change` is called when problems are others."""

    name = "measuring devices"

    def __init__(self, options: Options, api: Api | None, *, on_change: Callable[[], None]) -> None:
        self._options = options
        self._clock: Clock = options.clock
        self._on_change = on_change
        self._api = api
        self._sensors = Sensors()
        self._noted: deque[tuple[Plan, float]] = deque(maxlen=_MOST_NOTED)
        self._reading = threading.Lock()  # held while the sensors are brought up to date
        self._plan: Plan | None = None  # the last one that the sensors know of
        self._stirred = False  # something else is to be told of with the next plan
        self._spec = TelemetrySpec()
        self._exposition: Exposition | None = None
        self._due = asyncio.Event()
        self._side: Side | None = None
        self._serving: asyncio.Task[None] | None = None
        self._pods: PodWishes | None = None
        self._following: asyncio.Task[None] | None = None
        self._wishes: Mapping[str, Range] = {}
        self._last: Plan | None = None  # that was noted

    # --- what is so ---------------------------------------------------------------------------------------------------

    async def settle(self, plan: Plan) -> None:
        """Note the plan."""
        self._spec, self._last = plan.telemetry, plan
        self._note(plan)

    def _note(self, plan: Plan) -> None:
        self._noted.append((plan, self._clock.now()))
        self._due.set()

    @property
    def is_on(self) -> bool:
        """Whether the last plan asks for it."""
        return self._spec.on

    def catch_up(self) -> None:
        """Let the sensors know of all plans that were noted. Blocks for a moment where there are many devices."""
        with self._reading:
            while self._noted:
                plan, at = self._noted.popleft()
                if self._stirred or not same(plan, self._plan):
                    self._stirred = False
                    self._told(plan, at)
                self._plan = plan

    def _told(self, plan: Plan, at: float) -> None:
        situation, users = load_of(plan, self._options.node, self._wishes)
        self._sensors.settle(situation, plan.base, users, at)

    def measured(self) -> tuple[MeasuredDevice, ...]:
        """What all devices show now. Blocks for a moment where there are many: call it from a thread."""
        self.catch_up()
        with self._reading:
            return tuple(giving_way(self._shown(), every=_TURN))

    def _shown(self, only: Collection[str] | None = None) -> Iterable[MeasuredDevice]:
        return self._sensors.measured(self._clock.now(), only)

    def seen(self, ids: Collection[str]) -> dict[str, SeenSensors]:
        """What these devices and partitions show now, by id; those that are not there are left out. Likewise."""
        self.catch_up()
        with self._reading:
            found = list(self._shown(only=ids))
        return {
            each.fixture.device.id: SeenSensors(each.fixture.number, each.whole, each.own, len(each.fixture.users))
            for each in found
        }

    def families(self) -> list[Family]:
        """The same, as metrics."""
        self.catch_up()
        label = self._spec.hostname_label
        if self._exposition is None or self._exposition.hostname_label != label:
            self._exposition = Exposition(label)
        with self._reading:
            shown = giving_way(self._shown(), every=_TURN)
            return self._exposition.families([(self._options.node, shown)])

    def page(self) -> list[bytes]:
        """The same as Prometheus reads it, in pieces."""
        return [*giving_way(chunks(self.families()), every=1)]

    # --- who is told --------------------------------------------------------------------------------------------------

    async def work(self) -> None:
        """Serve metrics where that is asked for, forever."""
        address = ""
        async with asyncio.TaskGroup() as group:
            try:
                while True:
                    await self._due.wait()
                    self._due.clear()
                    if self._spec.address != address:
                        address = self._spec.address
                        await self._serve(group, address)
                    self._follow_pods(group)
                    await asyncio.to_thread(self.catch_up)
            finally:
                self._end()

    async def _serve(self, group: asyncio.TaskGroup, address: str) -> None:
        self._end()
        if self._serving is not None:
            await asyncio.wait([self._serving])
        self._side = self._serving = None
        if address:
            make = await asyncio.to_thread(_server)
            hosts = (self._options.node, platform.node(), *self._options.http_hosts)
            self._side = make(address, self.page, hosts=hosts, on_change=self._on_change)
            await self._side.bind()
            self._serving = group.create_task(self._side.run(), name="telemetry HTTP")

    def _follow_pods(self, group: asyncio.TaskGroup) -> None:
        """Follow the annotations of pods while that is asked for."""
        if self._spec.annotations and self._following is None:
            options, told = self._options, self._pods_changed
            self._pods = PodWishes(options.node, self._api, on_change=told, timing=options.timing)
            self._following = group.create_task(self._pods.run(), name="annotations of pods")
        elif not self._spec.annotations and self._following is not None:
            self._following.cancel()
            self._following = self._pods = None
            self._pods_changed()

    def _pods_changed(self) -> None:
        self._wishes = self._pods.wishes if self._pods else {}
        self._stirred = True
        if self._last is not None:
            self._note(self._last)
        self._on_change()

    def _end(self) -> None:
        if self._side is None or self._serving is None:
            return
        if self._side.server is None:
            self._serving.cancel()
        else:
            self._side.server.should_exit = True

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What a person should know."""
        found = [*self._pods.problems] if self._pods else []
        if self._side is not None and self._side.trouble:
            message = f"metrics of devices cannot be served at {self._spec.address}: {self._side.trouble}"
            found.append(error("telemetry.address", message, "choose another address, or end what uses this one"))
        return tuple(found)

    def in_short(self) -> dict[str, list[float | None]]:
        """Load, temperature, power, and used and all of the memory of each device, by id; None of one that is lost."""
        return {each.fixture.device.id: in_short(each) for each in self.measured()}

    def document(self) -> list[dict[str, Any]]:
        """What all devices show now."""
        return [document(each) for each in self.measured()]


def _server() -> "Callable[..., Side]":
    from ...observe import device_metrics, http  # they bring the web server

    def make(
        address: str, page: Callable[[], Sequence[bytes]], *, hosts: Sequence[str], on_change: Callable[[], None]
    ) -> "Side":
        app = device_metrics.application(page)
        return http.Side(address, app, what="metrics of devices", hosts=hosts, on_change=on_change)

    return make
