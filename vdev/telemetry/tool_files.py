"""The vendors' tools for containers, as files on the node.

They exist before the devices are advertised, and are removed when no container can have them mounted. If they cannot be
written, containers get the devices without a tool, and a problem says why. A task repeats `work`, which rewrites the
data of devices that pods hold, and of devices with faults.
"""

import asyncio
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from ..agent.host_files import HostFiles
from ..aio.clock import Timing
from ..errors import HostError, reason_of
from ..hostfs import HostRoot
from ..hostfs.files import write_atomic, write_if_changed
from ..model import telemetry
from ..model.problem import Problem, counted, warning
from ..model.telemetry import SmiTool
from ..planning.plan import DesiredState
from .amd_tool import amd_data
from .nvidia_tool import nvidia_data
from .sensors import device_infos
from .simulation import LOST, DeviceInfo, MeasuredDevice, idle
from .tool_data import script

ReadSensors = Callable[[Collection[str]], Sequence[MeasuredDevice]]
"""Reads the sensors of the devices and partitions with these ids; those without sensors are left out. Blocks."""


class ToolFiles(HostFiles[str, DeviceInfo]):
    """The tools of one agent, and their data by device id, below the directory `root`."""

    name = "giving containers their vendors' tools"

    def __init__(self, root: Path, read_sensors: ReadSensors, timing: Timing) -> None:
        super().__init__({root, root / "bin", root / "devices"}, timing)
        self.root = root
        self._read_sensors = read_sensors
        self._plan: DesiredState | None = None  # the plan whose lists were sent to the kubelet
        self._live: frozenset[str] = frozenset()  # the devices that were held or had faults at the last writing
        self._plan_changed = asyncio.Event()

    @property
    def without_tools(self) -> frozenset[str]:
        """The devices, by raw id, whose directory or tool is missing. They are allocated without it."""
        return frozenset(self._wanted[each].device.raw.id for each in self.failed)

    @property
    def problems(self) -> tuple[Problem, ...]:
        if not self.failed:
            return ()
        reason, devices = next(iter(self.failed.values())), counted(len(self.failed), "device")
        message = f"containers with {devices} get no nvidia-smi or amd-smi: {reason}"
        hint = f"make room in {self.root}, and let vdev write there; devices are allocated without it"
        return (warning(str(self.root), message, hint),)

    def wanted(self, plan: DesiredState) -> Mapping[str, DeviceInfo]:
        return {name: info for name, info in device_infos(plan).items() if info.device.raw.tools}

    def present(self, wanted: Mapping[str, DeviceInfo]) -> Collection[str]:
        del wanted
        return [name for name, is_directory in HostRoot().entries(str(self._devices)) if is_directory]

    def in_use(self, left: Collection[str], plan: DesiredState) -> Collection[str]:
        previous = plan.observed.previous
        # The devices that claims can get, or still use after an edit removed them.
        claimable = {each.device.id for pool in plan.pools.values() for each in pool.by_name.values()}
        devices = [each for resource in previous.advertised.resources.values() for each in resource.by_device.values()]
        devices += [each.device for pool in previous.pools.values() for each in pool.devices]
        named = {each.id for each in devices if each.raw.tools}
        return [name for name in left if name in named or name in claimable or not plan.is_free(name)]

    def make(
        self, plan: DesiredState, wanted: Mapping[str, DeviceInfo], kept: frozenset[str], gone: frozenset[str]
    ) -> Mapping[str, str]:
        del plan
        broken = {tool: self._script(tool) for tool in {_tool(each) for each in wanted.values()}}
        reasons = {name: broken[_tool(each)] or self._directory(name, each) for name, each in wanted.items()}
        for name in gone:
            shutil.rmtree(self._devices / name, ignore_errors=True)
        if not wanted and not kept and self._devices.is_dir():
            shutil.rmtree(self.root, ignore_errors=True)
        return {name: reason for name, reason in reasons.items() if reason}

    def show(self, plan: DesiredState) -> None:
        """Rewrite the data for this plan soon."""
        self._plan = plan
        self._plan_changed.set()

    @property
    def _devices(self) -> Path:
        return self.root / "devices"

    @property
    def _ready(self) -> Collection[str]:
        return self._wanted.keys() - self.failed.keys()

    def _script(self, tool: SmiTool) -> str:
        """Write the script of a tool. Returns why that failed, or the empty string."""
        name = telemetry.TOOLS[tool]
        path = Path(telemetry.tool_path(str(self.root), name))
        try:
            _make(path.parent)
            write_if_changed(path, script(name).encode(), mode=0o755)
        except (OSError, HostError) as failed:
            return reason_of(failed)
        return ""

    def _directory(self, name: str, info: DeviceInfo) -> str:
        """Make a device's directory, with its data. Returns why that failed, or the empty string."""
        directory = Path(telemetry.device_directory(str(self.root), name))
        try:
            _make(directory)
            if not (directory / _tool(info).value).exists():
                self._write(idle(info, lost=False))
        except (OSError, HostError) as failed:
            return reason_of(failed)
        return ""

    def _write(self, shown: MeasuredDevice) -> None:
        tool = _tool(shown.info)
        text = nvidia_data(shown, self._clock.wall()) if tool is SmiTool.NVIDIA else amd_data(shown)
        directory = telemetry.device_directory(str(self.root), shown.info.device.id)
        write_atomic(Path(directory, tool.value), text.encode())

    async def work(self) -> None:
        """Wait for the next plan, or for a few seconds, and rewrite the data."""
        pause = self._intervals.write_tools if self._plan is not None and self._ready else None
        await self._clock.wait(self._plan_changed, pause)
        self._plan_changed.clear()
        if self._plan is not None and self._ready:
            await asyncio.to_thread(self._refresh, self._plan)

    def _refresh(self, plan: DesiredState) -> None:
        """Write the current data. Raises OSError or HostError if that fails for a device, after all others."""
        with self._writing:
            wanted = {name: self._wanted[name] for name in self._ready}
            present = {device for each in plan.devices.everything.values() for device in each.by_device}
            off_bus = {device for (_, device), xids in plan.xids.items() if LOST in [each.number for each in xids]}
            lost = off_bus | (wanted.keys() - present)
            faulty = {device for _, device in (*plan.xids, *plan.sensors)} | lost
            claimed = {device for _, device in plan.claimed}
            live = frozenset((plan.held | claimed | faulty) & wanted.keys())
            due = live | (self._live & wanted.keys())  # a device that was released becomes idle in its file
            seen = {each.info.device.id: each for each in self._read_sensors(due)} if due else {}
            failures = []
            for name in due:
                # A device has no sensors if its entry has no telemetry, or while a fault removes it.
                shown = seen.get(name) or idle(wanted[name], lost=name in lost)
                try:
                    self._write(shown)
                except (OSError, HostError) as failed:
                    failures.append(failed)
            self._live = live
            if failures:
                raise failures[-1]


def _tool(info: DeviceInfo) -> SmiTool:
    return info.vendor or SmiTool.NVIDIA


def _make(directory: Path) -> None:
    """Create a directory that everyone may read, regardless of the umask."""
    if not directory.is_dir():
        directory.mkdir(parents=True, exist_ok=True)
    if directory.stat().st_mode & 0o777 != 0o755:
        directory.chmod(0o755)
