"""Stand-ins on the host: made before the devices that need them are advertised, removed when those are gone.

What the plan needs no more stays until its lists are served, for until then an answer may name it, and then until no
pod can hold it and no claim has it. All are `vdev-*` in a directory of vdev's own, and nothing else there is touched;
`virtual_node_record` says whose they are, `wanted_stand_ins` which there shall be. What an earlier process left is
removed once no pod can hold it. What cannot be made turns its device Unhealthy, with the reason, and is tried again.

A serial line is a link to a terminal of this process. When the process ends, the links lead nowhere, so that no
container is ever given somebody else's terminal. `core.model.virtual_node` says what stand-ins there are,
`serial_lines` talks over the serial ones.
"""

import asyncio
import contextlib
import os
import stat
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

import structlog

from ....aio.timing import Timing
from ....core.decide import Plan
from ....core.model import virtual_node as standin
from ....core.model.device import Health, Key
from ....core.model.virtual_node import Like, LikeNode, PlainDirectory, PlainFile, PtyLine
from ....core.retention.holders import Holdings
from ....core.serial import Dialogue
from ....errors import HostError
from ....hostfs import HostRoot, remove_unfinished, write_atomic
from ....hostfs.look import listed
from ....hostfs.pty import Pty, open_pty
from ....hostfs.removal import remove_tree
from ..base import Output, Stage
from .serial_lines import Line
from .virtual_node_record import FILE, VirtualNodeRecord, names
from .wanted_stand_ins import WantedStandIn, wanted_stand_ins

log = structlog.get_logger(__name__)

_UNFINISHED = (f".{standin.PREFIX}", f".{FILE}")
_CLOSED = "closed"  # what the links of ended lines lead to; never made


@dataclass(slots=True)
class _Outcome:
    lines: dict[str, Pty] = field(default_factory=dict)  # opened now, by device
    failed: dict[str, str] = field(default_factory=dict)


class VirtualNodes(Output):
    """The stand-ins of one agent. `undeliverable` holds the devices whose stand-in is missing."""

    name = "making virtual nodes"
    stage = Stage.PREPARE

    def __init__(self, directory: Path, host: HostRoot, *, owner: str, timing: Timing) -> None:
        self.directory = directory
        self._failed: Mapping[str, Health] = {}
        self._again_at: float | None = None
        self._host = host
        self._intervals, self._clock = timing
        self._record = VirtualNodeRecord(directory, owner)
        self._made: frozenset[str] = frozenset()  # what this process cares for, by raw device id
        self._left: frozenset[str] = frozenset()  # leftovers of earlier processes, by raw device id
        self._wanted: Mapping[str, WantedStandIn] = {}
        self._kept: frozenset[str] = frozenset()  # of these, what the plan does not need, by raw device id
        self._unnamed: frozenset[str] = frozenset()  # what no answer has any more, by raw device id
        self._lines: dict[str, Line] = {}
        self._checked = False  # whether the host has what was wanted last
        self._writing = threading.Lock()

    @property
    def directories(self) -> frozenset[Path]:
        """The directory whose changes are worth a `recheck`, while there is anything in it."""
        return frozenset({self.directory}) if self._wanted else frozenset()

    @property
    def undeliverable(self) -> Mapping[str, Health]:
        """The devices, by raw device id, whose stand-in is missing, and why."""
        return self._failed

    @property
    def again_at(self) -> float | None:
        """When to try again what could not be made, or to look whether leftovers are free."""
        return self._again_at

    def recheck(self, changed: frozenset[str] = frozenset()) -> bool:
        """Look at what is on the host at the next `settle`, though nothing is wanted differently."""
        del changed
        self._checked = False
        return True

    async def settle(self, plan: Plan) -> None:
        """Make what the plan needs and the host lacks, remove what nobody needs; report, never raise."""
        now = self._clock.now()
        due = self._again_at is not None and now >= self._again_at
        due = due or self._is_any_unneeded(plan)
        wanted = wanted_stand_ins(plan)
        kept = {
            device: each
            for device, each in self._wanted.items()
            if device not in wanted and self._is_needed(plan, device)
        }
        wanted |= kept
        self._kept = frozenset(kept)
        unsure = self._left or (kept and not plan.holdings.complete)
        if not due and self._checked and wanted == self._wanted:
            self._again_at = self._again_at or (now + self._intervals.retire_settle if unsure else None)
            return
        lines = {key: each.pty.path for key, each in self._lines.items()}
        outcome = await asyncio.to_thread(self._work, wanted, lines, plan)
        self._checked, self._wanted = True, wanted
        await self._connect(outcome.lines)
        self._say({device: why for device, why in outcome.failed.items() if device not in kept})
        retry_at = now + self._intervals.retry_virtual_node if outcome.failed else None
        free_at = now + self._intervals.retire_settle if self._left or unsure else None
        self._again_at = min((each for each in (retry_at, free_at) if each is not None), default=None)

    def unprepared(self, plan: Plan) -> frozenset[str]:
        """What the plan needs, and no `settle` that succeeded has made."""
        wanted = wanted_stand_ins(plan).items()
        return frozenset(
            device
            for device, each in wanted
            if device not in self._wanted or each.standin != self._wanted[device].standin
        )

    def listed(self, plan: Plan) -> None:
        """What this plan does not need may go."""
        before, self._unnamed = self._unnamed, self._kept
        if before != self._unnamed and self._is_any_unneeded(plan):
            self._again_at = self._clock.now()

    def _is_any_unneeded(self, plan: Plan) -> bool:
        return not all(self._is_needed(plan, device) for device in self._kept)

    def _is_needed(self, plan: Plan, device: str) -> bool:
        """Whether what the plan does not need may be in an answer, or a pod may hold it, itself or by a claim."""
        pods, slots = plan.holdings, self._wanted[device].slots
        held = any(map(pods.may_hold, slots)) or not slots.isdisjoint(plan.claimed)
        return held or device not in self._unnamed or not pods.complete

    def renew(self, device: str) -> None:
        """Make a writable file or directory anew, without what pods wrote into it; blocks. Raises HostError."""
        with self._writing:
            each, path = self._wanted.get(device), self._path(device)
            if each is None or not each.entry.is_writable:
                return
            try:
                _clear(path)
                self._make(path, each, None, changed=False)
            except OSError as failed:
                raise HostError(f"cannot make {failed.filename or path}: {failed.strerror}") from failed

    async def close(self) -> None:
        """Hang up every line; what else there is stays, because a container that restarts is given it again."""
        if not self._lines:
            return
        links = {self._path(device): line.pty.path for device, line in self._lines.items()}
        for line in self._lines.values():
            line.close()
        self._lines.clear()
        await asyncio.to_thread(_disconnect, links, self.directory / _CLOSED)

    def release(self) -> None:
        """Let another process have the directory, for good."""
        self._record.close()

    # --- lines and words, on the loop ---------------------------------------------------------------------------------

    async def _connect(self, opened: Mapping[str, Pty]) -> None:
        for device, pty in opened.items():
            if device in self._lines:
                self._lines.pop(device).close()
            silent = Dialogue(standin.LineEnd.SILENCE)
            self._lines[device] = Line(pty, silent, pause=self._intervals.serial_line, clock=self._clock)
        over = {device: each for device, each in self._lines.items() if not self._is_line(device)}
        if over:  # a claim may keep the link, and the terminal's number will be somebody else's
            links = {self._path(device): each.pty.path for device, each in over.items()}
            await asyncio.to_thread(_disconnect, links, self.directory / _CLOSED)
        for device in over:
            self._lines.pop(device).close()
        for device, connected in self._lines.items():
            each = self._wanted[device]
            if isinstance(each.standin, PtyLine):
                connected.dialogue = _dialogue(each.standin, each.values, connected.dialogue.unfinished)

    def _is_line(self, device: str) -> bool:
        return device in self._wanted and isinstance(self._wanted[device].standin, PtyLine)

    def _say(self, failed: Mapping[str, str]) -> None:
        reasons = set(failed.values())
        for reason in sorted(reasons - {health.reason for health in self._failed.values()}):
            devices = sorted(device for device, why in failed.items() if why == reason)
            log.error("stand-in not made", reason=reason, device=devices[0], devices=len(devices))
        self._failed = {device: Health(healthy=False, reason=reason) for device, reason in failed.items()}

    # --- files, in a thread -------------------------------------------------------------------------------------------

    def _path(self, device: str) -> Path:
        return Path(standin.host_path(str(self.directory), device))

    def _work(self, wanted: Mapping[str, WantedStandIn], lines: Mapping[str, str], plan: Plan) -> _Outcome:
        with self._writing:
            return self._make_all(wanted, lines, plan)

    def _make_all(self, wanted: Mapping[str, WantedStandIn], lines: Mapping[str, str], plan: Plan) -> _Outcome:
        outcome = _Outcome()
        try:
            if not self._take(needed=bool(wanted)):
                return outcome
        except HostError as failed:
            outcome.failed = dict.fromkeys(wanted, str(failed))
            return outcome
        self._clear(wanted, plan.holdings, plan.claimed)
        left = {device: slots for device, slots in (self._record.slots or {}).items() if device in self._left}
        self._record.write({**left, **{device: each.slots for device, each in wanted.items()}})
        self._made = frozenset(wanted)
        if not wanted and not self._left:
            self._record.release()
        for device, each in wanted.items():
            before = self._wanted.get(device)
            changed = before is not None and before.standin != each.standin
            try:
                pty = self._make(self._path(device), each, lines.get(device), changed=changed)
            except HostError as failed:
                outcome.failed[device] = str(failed)
            except OSError as failed:
                outcome.failed[device] = f"cannot make {failed.filename or self._path(device)}: {failed.strerror}"
            else:
                if pty is not None:
                    outcome.lines[device] = pty
        return outcome

    def _take(self, *, needed: bool) -> bool:
        """Whether there is a directory for this agent alone; one that is needed is made. Raises HostError."""
        try:
            if needed:
                self.directory.mkdir(parents=True, exist_ok=True)
            return self._record.take()
        except OSError as failed:
            raise HostError(f"cannot make {failed.filename or self.directory}: {failed.strerror}") from failed

    def _clear(self, wanted: Mapping[str, WantedStandIn], holdings: Holdings, claimed: Collection[Key]) -> None:
        """Remove what nobody needs; what this process did not make stays while a pod may hold it, or a claim has it."""
        found = names(self.directory)
        others = {device for device in found if device not in wanted and device not in self._made}
        held = {device for device in others if self._record.may_hold(device, holdings, claimed)}
        free = others - held if holdings.complete else set()
        for device in sorted(free):
            log.info("virtual node of an earlier process removed", path=str(found[device]))
        self._left = frozenset(others - free)
        for device in found.keys() - wanted.keys() - self._left:
            with contextlib.suppress(OSError):  # a directory that cannot be written
                _clear(found[device])
        for path in listed(self.directory):
            if path.name.startswith(_UNFINISHED) and path.suffix == ".tmp":
                with contextlib.suppress(OSError):
                    _clear(path)

    def _make(self, path: Path, each: WantedStandIn, line: str | None, *, changed: bool) -> Pty | None:
        """Make one where it is not as it should be; the new line of a serial one."""
        match each.standin:
            case LikeNode(like=like):
                _make_node(path, like)
            case PlainFile(content=content):
                if changed or not _is(path, stat.S_ISREG):
                    _clear_unless(path, stat.S_ISREG)
                    write_atomic(path, content.render(each.values).encode(), mode=0o666)
            case PlainDirectory(files=files):
                texts = {name: content.render(each.values).encode() for name, content in files}
                if not _is(path, stat.S_ISDIR):
                    _make_directory(path, texts)
                else:
                    remove_unfinished(path, texts)
                    for name, text in texts.items() if changed else ():
                        write_atomic(path / name, text, mode=0o666)
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


def _dialogue(line: PtyLine, values: Mapping[str, str], unfinished: bytes) -> Dialogue:
    answers = {heard: template.render(values) for heard, template in line.answers}
    return Dialogue(line.end, answers, None if line.otherwise is None else line.otherwise.render(values), unfinished)


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


def _make_directory(path: Path, texts: Mapping[str, bytes]) -> None:
    """A directory with these files, seen with all of them or not at all."""
    _clear(path)
    fresh = path.with_name(f".{path.name}.tmp")
    _clear(fresh)
    fresh.mkdir()
    fresh.chmod(0o777)
    for name, text in texts.items():
        write_atomic(fresh / name, text, mode=0o666)
    fresh.rename(path)


def _disconnect(links: Mapping[Path, str], nowhere: Path) -> None:
    """Let the links lead nowhere, but for those that are another process's by now."""
    for path, ours in links.items():
        with contextlib.suppress(OSError):
            if path.readlink() == Path(ours):
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
    if _is(path, stat.S_ISDIR):
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)
