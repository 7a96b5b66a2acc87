"""What devices measure, put together: plans become situations of the sensors, and these are told of over HTTP.

A plan is only noted when it is settled, for what follows from it takes a quarter of a second for 10 000 devices. The
sensors are told of it soon, or before anybody reads them.
"""

import asyncio
import platform
import threading
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from ...aio.clock import Clock
from ...core.decide import Plan
from ...core.exposition.page import page
from ...core.model.problem import Problem, error
from ...core.model.telemetry import Range, TelemetrySpec
from ...core.telemetry.sensors import MeasuredDevice, Sensors
from ...kube import Api
from ..inputs.pod_wishes import PodWishes
from ..options import Options
from ..outputs.base import Output
from ..outputs.tools.tool_files import SeenSensors
from .telemetry_told import document, in_short, load_of

if TYPE_CHECKING:
    from ...observe.http import Side


class Telemetry(Output):
    """The sensors of one node. `api` None: there is no API server; `on_change` is called when problems are others."""

    name = "measuring devices"

    def __init__(self, options: Options, api: Api | None, *, on_change: Callable[[], None]) -> None:
        self._options = options
        self._clock: Clock = options.clock
        self._on_change = on_change
        self._api = api
        self._sensors = Sensors()
        self._reading = threading.Lock()  # held while the sensors are brought up to date or read
        self._plan: Plan | None = None
        self._stale = False  # whether the sensors do not know of the plan and the wishes yet
        self._spec = TelemetrySpec()
        self._due = asyncio.Event()
        self._side: Side | None = None
        self._serving: asyncio.Task[None] | None = None
        self._pods: PodWishes | None = None
        self._following: asyncio.Task[None] | None = None
        self._wishes: Mapping[str, Range] = {}

    # --- what is so ---------------------------------------------------------------------------------------------------

    async def settle(self, plan: Plan) -> None:
        self._spec, self._plan = plan.telemetry, plan
        self._stale = True
        self._due.set()

    @property
    def is_on(self) -> bool:
        """Whether the last plan asks for it."""
        return self._spec.on

    def catch_up(self) -> None:
        """Let the sensors know of the last plan. Blocks for a moment where there are many devices."""
        with self._reading:
            self._catch_up()

    def _catch_up(self) -> None:
        if self._stale and self._plan is not None:
            self._stale = False
            self._sensors.settle(load_of(self._plan, self._options.node, self._wishes), self._clock.now())

    def measured(self, only: Collection[str] | None = None) -> list[MeasuredDevice]:
        """What all devices show now, or only those of these ids. Blocks: call it from a thread."""
        with self._reading:
            self._catch_up()
            return list(self._sensors.measured(self._clock.now(), only))

    def seen(self, ids: Collection[str]) -> dict[str, SeenSensors]:
        """What these devices and partitions show now, by id; those that are not there are left out. Likewise."""
        return {
            each.fixture.device.id: SeenSensors(each.fixture.number, each.whole, each.own, len(each.fixture.users))
            for each in self.measured(only=ids)
        }

    def page(self) -> str:
        """The same as Prometheus reads it."""
        return page([(self._options.node, self.measured())], self._spec.hostname_label)

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
                await self._end()

    async def _serve(self, group: asyncio.TaskGroup, address: str) -> None:
        await self._end()
        self._side = self._serving = None
        if address:
            self._side = await asyncio.to_thread(self._make_side, address)
            await self._side.bind()
            self._serving = group.create_task(self._side.run(), name="telemetry HTTP")

    def _follow_pods(self, group: asyncio.TaskGroup) -> None:
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
        self._stale = True
        self._due.set()
        self._on_change()

    def _make_side(self, address: str) -> "Side":
        from ...observe import device_metrics, http  # they import the web server

        hosts = (self._options.node, platform.node(), *self._options.http_hosts)
        app = device_metrics.application(self.page)
        return http.Side(address, app, what="metrics of devices", hosts=hosts, on_change=self._on_change)

    async def _end(self) -> None:
        if self._side is not None:
            self._side.stop()
        if self._serving is not None:
            await asyncio.wait([self._serving])

    @property
    def problems(self) -> tuple[Problem, ...]:
        found = [*self._pods.problems] if self._pods else []
        if self._side is not None and self._side.trouble:
            message = f"metrics of devices cannot be served at {self._spec.address}: {self._side.trouble}"
            found.append(error("telemetry.address", message, "choose another address, or end what uses this one"))
        return tuple(found)

    def in_short(self) -> dict[str, Any]:
        """What the page shows of each device, by id. Call it from a thread."""
        return {"on": self._spec.on, "devices": {each.fixture.device.id: in_short(each) for each in self.measured()}}

    async def top(self, _request: Mapping[str, Any]) -> dict[str, Any]:
        """What all devices show now, for `vdev top`; keys are stable and documented."""
        found = await asyncio.to_thread(self.measured)
        return {
            "on": self._spec.on,
            "node": self._options.node,
            "at": self._clock.wall(),
            "devices": [document(each) for each in found],
        }
