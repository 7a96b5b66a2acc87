"""The makers' tools for containers, on the node: there before the devices that come with them are advertised, removed
when no container can have them mounted.

`model.telemetry` says what is where, `tool_data` what is in it. What cannot be written leaves the devices as they
are: their containers are given no tool, and a problem says why. What the files show is brought up to date beside the
turns, every few seconds and after each plan: of devices that pods hold, and of those with which something is wrong.
"""

import asyncio
import itertools
import os
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from .. import smi
from ..agent.host_files import HostFiles
from ..aio.clock import Timing
from ..errors import HostError, reason_of
from ..hostfs import read_plain, write_atomic
from ..model import telemetry
from ..model.problem import Problem, warning
from ..model.telemetry import SmiTool
from ..planning.plan import DesiredState
from .sensors import MeasuredDevice
from .simulation import LOST
from .tool_data import equipped, held, published, text_of
from .tool_text import Shown

log = structlog.get_logger(__name__)

_MAX_BYTES = 2**20  # of a script


Sensors = Callable[[Collection[str]], Sequence[MeasuredDevice]]
"""Looks at devices and partitions, by id; those of which nothing is known are left out. It takes its time."""


class ToolFiles(HostFiles[str, Shown]):
    """The tools and data files of one agent, below `root`, by device id.

    `run` keeps what they show up to date; it is to be run beside the turns.
    """

    name = "giving containers their makers' tools"

    def __init__(self, root: Path, sensors: Sensors, timing: Timing) -> None:
        super().__init__({root, root / "bin", root / "devices"}, timing)
        self.root = root
        self._sensors = sensors
        self._plan: DesiredState | None = None  # that the kubelet is told of
        self._told = ""  # why containers get no tools, as it was logged
        self._trouble = ""  # of what is written beside the turns
        self._due: frozenset[str] = frozenset()  # what was shown of held and broken devices last
        self._news = asyncio.Event()

    @property
    def toolless(self) -> frozenset[str]:
        """The devices, by raw id, whose directory or tool is missing."""
        return frozenset(self._wanted[each].device.raw.id for each in self.failed)

    @property
    def problems(self) -> tuple[Problem, ...]:
        hint = f"make room in {self.root}, and let vdev write there; devices are given out all the same"
        found = []
        if self.failed:
            reason = next(iter(self.failed.values()))
            count = len(self.failed)
            devices = "1 device" if count == 1 else f"{count} devices"
            found.append(warning(str(self.root), f"containers with {devices} get no smi: {reason}", hint))
        if self._trouble:
            found.append(warning(str(self.root), f"what smi shows in containers stays as it is: {self._trouble}", hint))
        return tuple(found)

    def unprepared(self, plan: DesiredState) -> frozenset[str]:
        """What has a tool in the plan, and none that any `settle` has made."""
        wanted = self.wanted(plan).items()
        return frozenset(each.device.raw.id for name, each in wanted if name not in self._ready)

    def wanted(self, plan: DesiredState) -> Mapping[str, Shown]:
        return equipped(plan)

    def present(self, wanted: Mapping[str, Shown]) -> Collection[str]:
        del wanted
        try:
            return [entry.name for entry in os.scandir(self._devices) if entry.is_dir(follow_symlinks=False)]
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as failed:
            raise HostError(f"cannot list {self._devices}: {_why(failed)}") from failed

    def named(self, plan: DesiredState) -> Collection[str]:
        listed = (each for resource in plan.told.resources.values() for each in resource.by_device.values())
        published = (each.device for pool in plan.told_pools.values() for each in pool.devices)
        return {each.id for each in itertools.chain(listed, published) if each.raw.tools}

    def held(self, left: Collection[str], plan: DesiredState) -> Collection[str]:
        claimable = published(plan)
        return [name for name in left if name in claimable or not plan.is_free(name)]

    def make(
        self, plan: DesiredState, wanted: Mapping[str, Shown], kept: frozenset[str], gone: frozenset[str]
    ) -> Mapping[str, str]:
        del plan
        broken = self._scripts({each.tool for each in wanted.values()})
        reasons = {name: broken.get(each.tool) or self._directory(name, each) for name, each in wanted.items()}
        for name in gone:
            shutil.rmtree(self._devices / name, ignore_errors=True)
        if not wanted and not kept and self._devices.is_dir():
            shutil.rmtree(self.root, ignore_errors=True)
        return {name: reason for name, reason in reasons.items() if reason}

    async def made(self, plan: DesiredState) -> None:
        del plan
        reason = next(iter(self.failed.values()), "")
        if reason and reason != self._told:
            log.warning("containers get no smi", problem=reason)
        self._told = reason

    async def show(self, plan: DesiredState) -> None:
        """Bring what the tools show up to date now: sensors know of this plan."""
        self._plan = plan
        self._news.set()

    @property
    def _devices(self) -> Path:
        return self.root / "devices"

    @property
    def _ready(self) -> Collection[str]:
        return self._wanted.keys() - self.failed.keys()

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

    def _directory(self, name: str, each: Shown) -> str:
        """Make a device's directory with something in it; why it is not there, or the empty string."""
        directory = Path(telemetry.device_directory(str(self.root), name))
        try:
            _make(directory)
            if not (directory / each.tool.value).exists():
                self._write(directory, replace(each, wall=self._clock.wall()))
        except (OSError, HostError) as failed:
            return _why(failed)
        return ""

    def _write(self, directory: Path, shown: Shown) -> None:
        write_atomic(directory / shown.tool.value, text_of(shown).encode())

    async def run(self) -> None:
        """Keep what the tools show up to date: every few seconds while there is anything, and after each plan."""
        while True:
            self._news.clear()
            if self._plan is not None and self._ready:
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

    def _refresh(self, plan: DesiredState) -> str:
        """Write what sensors say now; why some of it was not written, or the empty string."""
        with self._writing:
            return self._show(plan)

    def _show(self, plan: DesiredState) -> str:
        wanted = {name: self._wanted[name] for name in self._ready}
        there = {device for each in plan.devices.everything.values() for device in each.by_device}
        fallen = {device for (_, device), errors in plan.xids.items() if any(each.number == LOST for each in errors)}
        lost = fallen | (wanted.keys() - there)
        ill = {device for _, device in (*plan.xids, *plan.sensors)} | lost
        now_due = frozenset((held(plan) | ill) & wanted.keys())
        due = now_due | (self._due & wanted.keys())
        if not due:
            return ""
        seen = {each.fixture.device.id: each for each in self._sensors(due)}
        wall, trouble = self._clock.wall(), ""
        for name in due:
            each = wanted[name]
            shown = replace(each, lost=name in lost, wall=wall)
            if at := seen.get(name):
                part = at.own if each.device.is_partition else None
                is_lost = shown.lost or at.whole.lost
                shown = replace(shown, whole=at.whole, part=part, lost=is_lost, holders=len(at.fixture.users))
            try:
                self._write(Path(telemetry.device_directory(str(self.root), name)), shown)
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
