"""What devices measure, put together: plans become situations of the sensors, and these are told of over HTTP.

    plan, with its time ─► noted ─► caught up with before anybody reads, or soon ─► Sensors ─► readings at any instant

A plan is only noted when it is settled, for what follows from it takes a quarter of a second for 10 000 devices. Its
time is kept, so that it does not matter when it is caught up with.
"""

import asyncio
import json
import platform
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import structlog

from ...aio.clock import Clock
from ...core.decide import Plan
from ...core.exposition.family import Family, text
from ...core.exposition.nodes import Exposition
from ...core.model.problem import Problem, error
from ...core.model.telemetry import LoadPattern, Range, TelemetrySpec
from ...core.telemetry.history import History
from ...core.telemetry.history_form import documents
from ...core.telemetry.replay import Series
from ...core.telemetry.sensors import MeasuredDevice, Sensors
from ...errors import HostError
from ...kube import Api
from ..inputs.pod_wishes import PodWishes
from ..options import Options
from ..state_file import Owner, RecordError, StateFile
from .base import Output
from .telemetry_told import document, in_short, load_of, replay_of, same
from .tools.tool_files import SeenSensors

if TYPE_CHECKING:
    from ...observe.http import Side

log = structlog.get_logger(__name__)

_VERSION = 1
_MOST_NOTED = 64  # plans; those between are passed over where nobody reads


class Telemetry(Output):
    """The sensors of one node. `api` None: there is no API server; `on_change` is called when problems are others."""

    name = "measuring devices"

    def __init__(self, options: Options, api: Api | None, *, on_change: Callable[[], None]) -> None:
        self._options = options
        self._clock: Clock = options.clock
        self._on_change = on_change
        self._api = api
        self._sensors: Sensors | None = None  # from the first plan on
        owner = Owner(options.node, str(options.plugin_dir), options.boot_id)
        self._file = None
        if options.state_dir is not None and options.boot_id:  # counters begin anew with the boot
            self._file = StateFile(options.state_dir, "telemetry", owner, version=_VERSION, timing=options.timing)
        self._written: Mapping[str, History] = {}
        self._write_at = 0.0
        self._noted: deque[tuple[Plan, float]] = deque(maxlen=_MOST_NOTED)
        self._reading = threading.Lock()  # held while the sensors are brought up to date
        self._plan: Plan | None = None  # the last one that the sensors know of
        self._stirred = False  # something else is to be told of with the next plan
        self._replays: dict[str, Series | Problem] = {}
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
        """Note the plan; files that are to be replayed are read."""
        if self._sensors is None:
            if not plan.telemetry.on:
                return
            self._sensors = Sensors(await self._recorded())
        files = {each.load.file for each in plan.loads.values() if each.load.pattern is LoadPattern.REPLAY}
        self._replays = {name: known for name, known in self._replays.items() if name in files}
        for name in files - self._replays.keys():
            self._replays[name] = await asyncio.to_thread(replay_of, name)
            self._stirred = True
        self._spec, self._last = plan.telemetry, plan
        self._note(plan)

    def _note(self, plan: Plan) -> None:
        self._noted.append((plan, self._clock.now()))
        self._due.set()

    async def _recorded(self) -> Mapping[str, Any]:
        """What an earlier process of this boot wrote down."""
        if self._file is None:
            return {}
        try:
            found = await self._file.read()
        except (HostError, RecordError) as wrong:
            log.warning("the record of what devices counted is not used", reason=str(wrong))
            return {}
        if found is None or found.get("boot") != self._options.boot_id:
            return {}
        devices = found.get("devices")
        return devices if isinstance(devices, dict) else {}

    @property
    def is_recorded(self) -> bool:
        """Whether the next process would know what drives the devices."""
        known = self._sensors.histories if self._sensors else {}
        return all(self._written.get(raw) is each for raw, each in known.items())

    async def _record(self) -> None:
        """Write down what drives the devices, where that is new, every few seconds at most. A failure is no more."""
        if self._file is None or self._sensors is None or self.is_recorded:
            return
        histories = self._sensors.histories
        now = self._clock.now()
        if now < self._write_at:
            self._clock.call_at(self._write_at, self._due.set)
            return
        self._write_at = now + self._options.intervals.record_counters
        try:
            await asyncio.to_thread(_write, self._file, histories)
            self._written = histories
        except HostError as failed:
            log.warning("what devices counted is not recorded; counters begin anew after a restart", reason=str(failed))

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
        replays = {name: known for name, known in self._replays.items() if isinstance(known, Series)}
        situation, users = load_of(plan, self._options.node, self._wishes, replays)
        assert self._sensors is not None
        self._sensors.settle(situation, plan.base, users, at, since=at if self._sensors.histories else 0.0)

    def measured(self) -> tuple[MeasuredDevice, ...]:
        """What all devices show now. Blocks for a moment where there are many: call it from a thread."""
        self.catch_up()
        with self._reading:
            return tuple(self._shown())

    def _shown(self, only: Collection[str] | None = None) -> Iterable[MeasuredDevice]:
        return self._sensors.measured(self._clock.now(), only) if self._sensors else ()

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
        self.catch_up()
        label = self._spec.hostname_label
        if self._exposition is None or self._exposition.hostname_label != label:
            self._exposition = Exposition(label)
        with self._reading:
            return self._exposition.families([(self._options.node, self._shown())])

    def page(self) -> str:
        return text(self.families())

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
                    await self._record()
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
        self._stirred = True
        if self._last is not None:
            self._note(self._last)
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
        found = [each for each in self._replays.values() if isinstance(each, Problem)]
        found += self._pods.problems if self._pods else ()
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


def _write(file: StateFile, histories: Mapping[str, History]) -> None:
    file.write({"devices": _recorded_text(histories)})


def _recorded_text(histories: Mapping[str, History]) -> str:
    """The documents as JSON, device by device: written as one, they would keep everybody else from running."""
    return "{" + ", ".join(f"{json.dumps(raw)}: {json.dumps(each)}" for raw, each in documents(histories)) + "}"
