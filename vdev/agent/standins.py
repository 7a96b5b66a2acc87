"""Stand-ins on the host: made before the devices that need them are advertised, removed when those are gone.

All are `vdev-*` in a directory of vdev's own, and nothing else there is touched. What cannot be made turns its device
Unhealthy, with the reason, and is tried again. A serial line is a link to a terminal of this process; when the process
ends, the links lead nowhere, so that no container is ever given somebody else's terminal. `core.standin` says what
stand-ins there are, `lines` talks over the serial ones.
"""

import asyncio
import contextlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

import structlog

from ..core import inject, standin
from ..core.device import Health, RawDevice
from ..core.dialogue import Dialogue
from ..core.facts import facts
from ..core.intervals import PRODUCTION, Intervals
from ..core.inventory import Inventory
from ..core.spec import EntrySpec, VirtualSource
from ..core.standin import Like, LikeNode, PlainDirectory, PlainFile, PtyLine, StandIn
from ..errors import HostError
from ..hostfs import HostRoot, write_atomic
from ..hostfs.pty import Pty, open_pty
from .lines import Line

log = structlog.get_logger(__name__)

_CLOSED = "closed"  # what the links of ended lines lead to; never made


@dataclass(frozen=True, slots=True)
class _Wanted:
    entry: EntrySpec
    device: RawDevice
    standin: StandIn

    @property
    def values(self) -> Mapping[str, str]:
        return facts(self.device, self.entry.resource)


@dataclass(slots=True)
class _Outcome:
    lines: dict[str, Pty] = field(default_factory=dict)  # opened now, by device
    failed: dict[str, str] = field(default_factory=dict)


class StandIns:
    """The stand-ins of one agent. `failed` holds the devices whose stand-in is missing, and why.

    `again_at` is the (monotonic) time at which to call `settle` again, or None.
    """

    def __init__(self, directory: Path, host: HostRoot, *, intervals: Intervals = PRODUCTION) -> None:
        self.directory = directory
        self.failed: Mapping[str, Health] = {}
        self.again_at: float | None = None
        self._host = host
        self._retry = intervals.retry_virtual_node
        self._wanted: Mapping[str, _Wanted] = {}
        self._lines: dict[str, Line] = {}
        self._seen: tuple[Inventory, ...] | None = None

    @property
    def directories(self) -> frozenset[Path]:
        """The directory whose changes are worth a `recheck`, while there is anything in it."""
        return frozenset({self.directory}) if self._wanted else frozenset()

    def recheck(self) -> None:
        """Let the next `settle` look at what is on the host, though nothing is wanted differently."""
        self._seen = None

    async def settle(self, *inventories: Inventory) -> None:
        """Make what the inventories need and the host lacks, remove what none of them needs; report, never raise."""
        due = self.again_at is not None and time.monotonic() >= self.again_at
        if not due and self._seen is not None and all(a is b for a, b in zip(self._seen, inventories, strict=True)):
            return
        wanted = {each.device.id: each for inventory in inventories for each in _wanted(inventory)}
        if not due and self._seen is not None and wanted == self._wanted:
            self._seen = inventories
            return
        if not wanted and not self._wanted:  # what others have in the directory is not looked at without need
            self._seen = inventories
            return
        outcome = await asyncio.to_thread(self._work, wanted, {key: line.pty.path for key, line in self._lines.items()})
        self._seen, self._wanted = inventories, wanted
        self._connect(outcome.lines)
        self._say(outcome.failed)
        self.again_at = time.monotonic() + self._retry if outcome.failed else None

    async def close(self) -> None:
        """Hang up every line; what else there is stays, because a container that restarts is given it again."""
        links = [self._path(device) for device in self._lines]
        for line in self._lines.values():
            line.close()
        self._lines.clear()
        await asyncio.to_thread(_disconnect, links, self.directory / _CLOSED)

    # --- lines and words, on the loop ---------------------------------------------------------------------------------

    def _connect(self, opened: Mapping[str, Pty]) -> None:
        for device in [each for each in self._lines if each not in self._wanted or each in opened]:
            self._lines.pop(device).close()
        for device, pty in opened.items():
            self._lines[device] = Line(pty, Dialogue(standin.LineEnd.SILENCE))
        for device, line in self._lines.items():
            each = self._wanted[device]
            if isinstance(each.standin, PtyLine):
                line.dialogue = _dialogue(each.standin, each.values)

    def _say(self, failed: Mapping[str, str]) -> None:
        reasons = set(failed.values())
        for reason in sorted(reasons - {health.reason for health in self.failed.values()}):
            devices = sorted(device for device, why in failed.items() if why == reason)
            log.error("stand-in not made", reason=reason, device=devices[0], devices=len(devices))
        self.failed = {device: Health(healthy=False, reason=reason) for device, reason in failed.items()}

    # --- files, in a thread -------------------------------------------------------------------------------------------

    def _path(self, device: str) -> Path:
        return Path(standin.host_path(str(self.directory), device))

    def _work(self, wanted: Mapping[str, _Wanted], lines: Mapping[str, str]) -> _Outcome:
        outcome = _Outcome()
        for device, each in wanted.items():
            before = self._wanted.get(device)
            changed = before is not None and before.standin != each.standin
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
                pty = self._make(self._path(device), each, lines.get(device), changed=changed)
            except HostError as failed:
                outcome.failed[device] = str(failed)
            except OSError as failed:
                outcome.failed[device] = f"cannot make {failed.filename or self._path(device)}: {failed.strerror}"
            else:
                if pty is not None:
                    outcome.lines[device] = pty
        keep = {self._path(device).name for device in wanted}
        with contextlib.suppress(
            OSError
        ):  # no directory, or one that cannot be written: nothing there is ours to remove
            for path in [*self.directory.glob(f"{standin.PREFIX}*"), *self.directory.glob(f".{standin.PREFIX}*.tmp")]:
                if path.name not in keep:
                    _clear(path)
        return outcome

    def _make(self, path: Path, each: _Wanted, line: str | None, *, changed: bool) -> Pty | None:
        """Make one where it is not as it should be; the new line of a serial one."""
        match each.standin:
            case LikeNode(like=like):
                _make_node(path, like)
            case PlainFile(content=content):
                if changed or not _is(path, stat.S_ISREG):
                    _clear_unless(path, stat.S_ISREG)
                    write_atomic(path, content.render(each.values).encode(), mode=0o666)
            case PlainDirectory(files=files):
                if changed or not _is(path, stat.S_ISDIR):
                    _clear_unless(path, stat.S_ISDIR)
                    path.mkdir(exist_ok=True)
                    path.chmod(0o777)
                    for name, content in files:
                        write_atomic(path / name, content.render(each.values).encode(), mode=0o666)
            case PtyLine():
                if line is not None:
                    _link(path, line)
                    return None
                pty = open_pty(self._host)
                try:
                    _link(path, pty.path)
                except OSError:
                    pty.close()
                    raise
                return pty
            case _:
                assert_never(each.standin)
        return None


def _wanted(inventory: Inventory) -> Iterator[_Wanted]:
    for resource in inventory.resources.values():
        for entry in resource.entries.values():
            node = entry.source.node if isinstance(entry.source, VirtualSource) else None
            if node is None or (isinstance(node, LikeNode) and inject.any_cdi(resource.flags)):
                continue
            for slot in resource.slots:
                if slot.device.raw.entry == entry.name:
                    yield _Wanted(entry, slot.device.raw, node)


def _dialogue(line: PtyLine, values: Mapping[str, str]) -> Dialogue:
    answers = {heard: template.render(values) for heard, template in line.answers}
    return Dialogue(line.end, answers, None if line.otherwise is None else line.otherwise.render(values))


def _make_node(path: Path, like: Like) -> None:
    number = os.makedev(*standin.NUMBERS[like])
    with contextlib.suppress(FileNotFoundError):
        found = path.lstat()
        if stat.S_ISCHR(found.st_mode) and found.st_rdev == number:
            return
        _clear(path)
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, number)
    except PermissionError as cause:
        hint = "vdev needs CAP_MKNOD, or a CDI strategy, under which nothing is made on the host"
        raise HostError(f"cannot make the device node {path}: {cause.strerror}; {hint}") from cause
    path.chmod(0o666)  # whatever the umask


def _link(path: Path, target: str) -> None:
    """A link in place of whatever is there, without a moment in which there is none."""
    if path.is_symlink() and path.readlink() == Path(target):
        return
    _clear_unless(path, stat.S_ISLNK)
    fresh = path.with_name(f".{path.name}.tmp")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.rename(path)


def _disconnect(links: Iterable[Path], nowhere: Path) -> None:
    for path in links:
        with contextlib.suppress(OSError):
            _link(path, str(nowhere))


def _is(path: Path, kind: Callable[[int], bool]) -> bool:
    try:
        return kind(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def _clear_unless(path: Path, kind: Callable[[int], bool]) -> None:
    if not _is(path, kind):
        _clear(path)


def _clear(path: Path) -> None:
    """Remove what is there, if anything."""
    if _is(path, stat.S_ISDIR):
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
