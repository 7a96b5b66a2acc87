"""The makers' tools for containers, on the node: there before the devices that come with them are advertised, removed
when no container can have them mounted.

`model.telemetry` says what is where, `tool_data` what is in it. What cannot be written leaves the devices as they
are: their containers are given no tool, and a problem says why. What the files show is brought up to date beside the
turns, every few seconds and after each plan: of devices that pods hold, and of those with which something is wrong.
"""

import asyncio
import os
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from .. import smi
from ..agent.applier import Output, Stage
from ..aio.clock import Timing
from ..errors import HostError, reason_of
from ..hostfs import read_plain, write_atomic
from ..model import telemetry
from ..model.problem import Problem, warning
from ..model.telemetry import SmiTool
from ..planning.plan import Plan
from .simulation import LOST, SensorReading
from .tool_data import Equipped, equipped, held, published

log = structlog.get_logger(__name__)

_MAX_BYTES = 2**20  # of a script


@dataclass(frozen=True, slots=True)
class SeenSensors:
    """What sensors say of a device or partition: of the whole device, and of what it is of that.

    `number` counts the devices of the maker on the node, `holders` the containers that have it.
    """

    number: int
    whole: SensorReading
    own: SensorReading
    holders: int = 0


Sensors = Callable[[Collection[str]], Mapping[str, SeenSensors]]
"""Looks at devices and partitions, by id; those of which nothing is known are left out. It takes its time."""


@dataclass(slots=True)
class _Outcome:
    """What became of files: `failed` says why, by device id; `left` are directories that only pods need."""

    failed: dict[str, str] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)


class ToolFiles(Output):
    """The tools and data files of one agent, below `root`.

    `run` keeps what they show up to date; it is to be run beside the turns.
    """

    name = "giving containers their makers' tools"
    stage = Stage.PREPARE

    def __init__(self, root: Path, sensors: Sensors, timing: Timing) -> None:
        self.root = root
        self.writings = 0  # of a data file, for tests
        self._sensors = sensors
        self._intervals, self._clock = timing
        self._plan: Plan | None = None
        self._wanted: Mapping[str, Equipped] = {}
        self._ready: set[str] = set()
        self._outcome = _Outcome()
        self._trouble = ""  # of what is written beside the turns
        self._due: frozenset[str] = frozenset()  # what was shown of held and broken devices last
        self._unnamed: frozenset[str] = frozenset()  # devices that had no tool in what was listed last
        self._look = True
        self._retry_at: float | None = None
        self._news = asyncio.Event()
        self._writing = asyncio.Lock()

    @property
    def toolless(self) -> frozenset[str]:
        """The devices, by raw id, whose directory or tool is missing."""
        return frozenset(self._wanted[each].device.raw.id for each in self._outcome.failed if each in self._wanted)

    @property
    def directories(self) -> frozenset[Path]:
        """Those that others may empty."""
        return frozenset({self.root, self.root / "bin", self.root / "devices"}) if self._wanted else frozenset()

    @property
    def again_at(self) -> float | None:
        """When to try again what could not be written, or to look whether leftovers are free."""
        return self._retry_at

    @property
    def problems(self) -> tuple[Problem, ...]:
        hint = f"make room in {self.root}, and let vdev write there; devices are given out all the same"
        found = []
        if self._outcome.failed:
            reason = next(iter(self._outcome.failed.values()))
            count = len(self._outcome.failed)
            devices = "1 device" if count == 1 else f"{count} devices"
            found.append(warning(str(self.root), f"containers with {devices} get no smi: {reason}", hint))
        if self._trouble:
            found.append(warning(str(self.root), f"what smi shows in containers stays as it is: {self._trouble}", hint))
        return tuple(found)

    def recheck(self, changed: frozenset[str] = frozenset()) -> bool:
        del changed
        self._look = True
        return bool(self._wanted)

    async def settle(self, plan: Plan) -> None:
        """Make what is missing and remove what nothing needs; report, never raise."""
        now = self._clock.now()
        before, self._plan = self._plan, plan
        same = before is not None and before.base == plan.base and before.loads == plan.loads
        due = self._retry_at is not None and now >= self._retry_at
        if same and not (self._look or due):
            return
        self._look = False
        if not same:
            self._wanted = await asyncio.to_thread(equipped, plan)
        try:
            async with self._writing:
                outcome = await asyncio.to_thread(self._prepare, self._wanted, plan, now)
        except BaseException:
            self._look = True
            raise
        if outcome.failed and outcome.failed != self._outcome.failed:
            log.warning("containers get no smi", problem=next(iter(outcome.failed.values())))
        self._outcome = outcome
        again = self._intervals.retry_tools if outcome.failed or outcome.left else None
        self._retry_at = None if again is None else now + again

    def unprepared(self, plan: Plan) -> frozenset[str]:
        """What has a tool in the plan, and none that any `settle` has made."""
        return frozenset(each.device.raw.id for name, each in equipped(plan).items() if name not in self._ready)

    def listed(self, plan: Plan) -> None:
        """Directories that this plan does not need may go."""
        before, self._unnamed = self._unnamed, frozenset(self._outcome.left)
        if before != self._unnamed and any(map(plan.is_free, self._unnamed)):
            self._retry_at = self._clock.now()

    async def show(self, _plan: Plan) -> None:
        """Bring what the tools show up to date now: sensors know of the last plan."""
        self._news.set()

    def _prepare(self, wanted: Mapping[str, Equipped], plan: Plan, now: float) -> _Outcome:
        """Everything that must be there before a container is made."""
        outcome = _Outcome()
        if wanted:
            broken = self._scripts({each.tool for each in wanted.values()})
            for name, each in wanted.items():
                reason = broken.get(each.tool) or self._directory(name, each, now)
                if reason:
                    outcome.failed[name] = reason
        self._ready = wanted.keys() - outcome.failed.keys()
        self._remove(wanted, plan, outcome)
        return outcome

    def _scripts(self, tools: Collection[SmiTool]) -> dict[SmiTool, str]:
        """Write the tools' scripts that are not there as they should be; why one is not, by tool."""
        broken = {}
        for tool in tools:
            name = telemetry.TOOLS[tool]
            path, text = Path(telemetry.tool_path(str(self.root), name)), smi.script(name).encode()
            try:
                _make(path.parent)
                if not _holds(path, text):
                    write_atomic(path, text, mode=0o755)
            except (OSError, HostError) as failed:
                broken[tool] = _why(failed)
        return broken

    def _directory(self, name: str, each: Equipped, now: float) -> str:
        """Make a device's directory with something in it; why it is not there, or the empty string."""
        directory = Path(telemetry.device_directory(str(self.root), name))
        try:
            _make(directory)
            if not (directory / each.tool.value).exists():
                whole, own = each.unloaded(now)
                self._write(directory, each, each.data(whole, own, holders=0, lost=False, wall=self._clock.wall()))
        except (OSError, HostError) as failed:
            return _why(failed)
        return ""

    def _write(self, directory: Path, each: Equipped, text: str) -> None:
        self.writings += 1
        write_atomic(directory / each.tool.value, text.encode())

    def _remove(self, wanted: Mapping[str, Equipped], plan: Plan, outcome: _Outcome) -> None:
        """Remove the directories of devices that are gone and that no pod can have; all of it with the last."""
        devices = self.root / "devices"
        try:
            present = [entry.name for entry in os.scandir(devices) if entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return
        except OSError as failed:
            log.warning("cannot list the directories of devices", problem=_why(failed))
            return
        claimable = published(plan)
        for name in present:
            if name in wanted:
                continue
            if name not in claimable and plan.is_free(name) and name in self._unnamed:
                shutil.rmtree(devices / name, ignore_errors=True)
            else:
                outcome.left.add(name)
        if not wanted and not outcome.left:
            shutil.rmtree(self.root, ignore_errors=True)

    async def run(self) -> None:
        """Keep what the tools show up to date: every few seconds while there is anything, and after each plan."""
        while True:
            self._news.clear()
            if self._plan is not None and self._ready:
                async with self._writing:
                    trouble = await asyncio.to_thread(self._refresh, self._plan)
                if trouble and trouble != self._trouble:
                    log.warning("what smi shows in containers stays as it is", problem=trouble)
                self._trouble = trouble
                try:
                    async with self._clock.timeout(self._intervals.write_tools):
                        await self._news.wait()
                except TimeoutError:
                    pass
            else:
                await self._news.wait()

    def _refresh(self, plan: Plan) -> str:
        """Write what sensors say now; why some of it was not written, or the empty string."""
        wanted = {name: each for name, each in self._wanted.items() if name in self._ready}
        there = {device for each in plan.devices.everything.values() for device in each.by_device}
        fallen = {device for (_, device), errors in plan.xids.items() if any(each.number == LOST for each in errors)}
        lost = fallen | (wanted.keys() - there)
        ill = {device for _, device in (*plan.xids, *plan.sensors)} | lost
        now_due = frozenset((held(plan) | ill) & wanted.keys())
        due = now_due | (self._due & wanted.keys())
        if not due:
            return ""
        seen = self._sensors(due)
        wall, trouble = self._clock.wall(), ""
        for name in due:
            each = wanted[name]
            at = seen.get(name) or SeenSensors(each.minor, *each.unloaded(self._clock.now()))
            shown = replace(each, minor=at.number)
            text = shown.data(at.whole, at.own, holders=at.holders, lost=name in lost, wall=wall)
            try:
                self._write(Path(telemetry.device_directory(str(self.root), name)), each, text)
            except (OSError, HostError) as failed:
                trouble = _why(failed)
        self._due = now_due
        return trouble


def _make(directory: Path) -> None:
    """A directory that everybody may read, whatever the umask."""
    if not directory.is_dir():
        directory.mkdir(parents=True, exist_ok=True)
    if directory.stat().st_mode & 0o777 != 0o755:
        directory.chmod(0o755)


def _holds(path: Path, text: bytes) -> bool:
    try:
        return read_plain(path, limit=_MAX_BYTES, follow=False) == text and bool(path.stat().st_mode & 0o111)
    except (HostError, OSError):
        return False


def _why(failed: Exception) -> str:
    return reason_of(failed) if isinstance(failed, OSError) else str(failed)
