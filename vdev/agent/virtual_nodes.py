"""The stand-ins of virtual devices in the device directory: device nodes, files, directories and serial lines.

One agent at a time makes stand-ins in a directory (a lock), and only for one owner (a record in the directory), so that
nobody removes what another agent made. The record tells a later process which slots (ids in a list, or devices that
claims can have) each stand-in is for, and so which pods may still hold what it finds.
"""

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import assert_never

import structlog

from ..aio.clock import Timing
from ..errors import HostError
from ..hostfs import HostRoot, remove_unfinished, write_atomic
from ..hostfs.files import exists, listed
from ..hostfs.locks import DirectoryLock
from ..model import virtual_node
from ..model import virtual_node as standin
from ..model.device import Health, Key, RawDevice, base_id, facts
from ..model.entry import EntrySpec, VirtualSource
from ..model.virtual_node import Like, LikeNode, PlainDirectory, PlainFile, PtyLine, StandIn
from ..planning.allocation import any_cdi
from ..planning.in_use import Holdings
from ..planning.plan import Plan
from ..planning.resources import Inventory, Resource
from ..planning.virtual_devices import Dialogue
from .host_files import HostFiles
from .serial_lines import Line, Pty, open_pty

log = structlog.get_logger(__name__)

FILE = ".standins.json"
_VERSION = 1
_LIMIT = 64 * 2**20  # bytes; a full list of the kubelet's is a tenth of it
_NVIDIA_PARTITION = "MIG-"  # its id does not tell the device's

Slots = Mapping[str, frozenset[Key]]
"""The slots (resource or driver, id) of each stand-in, by raw device id."""


class VirtualNodeRecord:
    """The right of `owner` (node and plugin directory) to make stand-ins in a directory."""

    def __init__(self, directory: Path, owner: str) -> None:
        self.slots: Slots | None = None  # None before the first `take`
        self._directory = directory
        self._owner = owner
        self._lock = DirectoryLock(directory)
        self._is_written = True
        self._told = ""

    def take(self) -> bool:
        """Get the directory, or keep it; False when there is none.

        Raises HostError when it is another agent's, and OSError when it cannot be locked.
        """
        try:
            ours = self._lock.take()
        except (FileNotFoundError, NotADirectoryError):
            return False
        if not ours:
            raise HostError(
                f"another vdev makes its virtual nodes in {self._directory}; give each agent its own --device-dir"
            )
        if self.slots is None:
            owner, slots = _read(self._directory / FILE)
            if owner not in ("", self._owner) and names(self._directory):
                self._lock.release()
                raise HostError(
                    f"the virtual nodes in {self._directory} belong to another agent ({owner}); "
                    "give this one its own --device-dir, or remove them once no pod has them"
                )
            self.slots = slots if owner == self._owner else {}
        return True

    def release(self) -> None:
        """Let another process have the directory, and ask whose it is before it is taken again."""
        self.slots = None
        self._lock.release()

    def close(self) -> None:
        """Let another process have the directory, for good."""
        self._lock.close()

    def write(self, slots: Slots) -> None:
        """Record these stand-ins. What cannot be written is logged: a later process then knows less, and keeps more."""
        if slots == self.slots and self._is_written and (not slots or exists(self._directory / FILE)):
            return
        document = {"version": _VERSION, "owner": self._owner, "slots": {key: sorted(slots[key]) for key in slots}}
        trouble = ""
        try:
            if slots:
                write_atomic(self._directory / FILE, (json.dumps(document) + "\n").encode())
            else:
                (self._directory / FILE).unlink(missing_ok=True)
        except (HostError, OSError) as failed:
            trouble = str(failed)
        self.slots, self._is_written = slots, not trouble
        if trouble and trouble != self._told:
            log.warning("record of virtual nodes not written", reason=trouble)
        self._told = trouble

    def may_hold(self, device: str, holdings: Holdings, claimed: Collection[Key]) -> bool:
        """Whether a pod or a claim may have a slot of the raw device, as far as it is recorded or its ids tell."""
        recorded = (self.slots or {}).get(device)
        if recorded is not None:
            return any(key in claimed or holdings.may_hold(key) for key in recorded)
        known = {*(holdings.holders or ()), *holdings.in_flight, *holdings.allocated, *claimed}
        return any(_may_be_of(device, key[1]) and (key in claimed or holdings.may_hold(key)) for key in known)


def names(directory: Path) -> dict[str, Path]:
    """The stand-ins in a directory, by raw device id."""
    found = (path for path in listed(directory) if path.name.startswith(virtual_node.PREFIX))
    return {path.name.removeprefix(virtual_node.PREFIX): path for path in found}


def _may_be_of(device: str, slot_id: str) -> bool:
    """Whether a slot id can be that of the raw device, one of its partitions or a replica of these."""
    whole = base_id(slot_id)
    return whole == device or whole.startswith((f"{device}-", _NVIDIA_PARTITION))


def _read(path: Path) -> tuple[str, Slots]:
    """Owner and slots; nothing where there is no record, or none that can be read."""
    try:
        document = json.loads(HostRoot().read_text(str(path), limit=_LIMIT) or "{}")
    except (HostError, ValueError, RecursionError):
        return "", {}
    match document:
        case {"version": int(), "owner": str(owner), "slots": dict(slots)}:
            return owner, {device: keys for device, each in slots.items() if (keys := _keys(each))}
    return "", {}


def _keys(found: object) -> frozenset[Key]:
    keys = set()
    for pair in found if isinstance(found, list) else ():
        match pair:
            case [str(resource), str(slot_id)]:
                keys.add((resource, slot_id))
    return frozenset(keys)


@dataclass(frozen=True, slots=True)
class WantedStandIn:
    """What stands in for a device of an entry, and the slots that it is for."""

    entry: EntrySpec
    device: RawDevice
    standin: StandIn
    slots: frozenset[Key] = frozenset()

    @property
    def values(self) -> Mapping[str, str]:
        return facts(self.device, self.entry.resource)


def wanted_stand_ins(plan: Plan) -> dict[str, WantedStandIn]:
    """What is needed, by raw device id, each with all slots that it is for."""
    wanted: dict[str, WantedStandIn] = {}
    slots: dict[str, set[Key]] = {}
    for each, key in itertools.chain(_listed(plan.base), _for_claims(plan), _listed(plan.inventory)):
        wanted[each.device.id] = each
        slots.setdefault(each.device.id, set()).add(key)
    return {device: replace(each, slots=frozenset(slots[device])) for device, each in wanted.items()}


def _listed(inventory: Inventory) -> Iterator[tuple[WantedStandIn, Key]]:
    """What Allocate gives."""
    for resource in inventory.resources.values():
        yield from _of_slots(resource, by_cdi=any_cdi(resource.flags))


def _for_claims(plan: Plan) -> Iterator[tuple[WantedStandIn, Key]]:
    """What claims can get, and what they have of devices that are away. They get it through CDI."""
    for offered in plan.base.claimable.values():
        yield from _of_slots(offered, by_cdi=True)
    for driver, pool in plan.pools.items():
        nodes = {name: (entry, _made(entry, by_cdi=True)) for name, entry in pool.offered.entries.items()}
        for device in pool.devices if any(node for _, node in nodes.values()) else ():
            entry, node = nodes.get(device.entry, (None, None))
            if device.lost and entry and node:
                yield WantedStandIn(entry, device.device.raw, node), (driver, device.device.id)


def _of_slots(resource: Resource, *, by_cdi: bool) -> Iterator[tuple[WantedStandIn, Key]]:
    for entry in resource.entries.values():
        node = _made(entry, by_cdi=by_cdi)
        for slot in resource.slots if node else ():
            if node and slot.device.raw.entry == entry.name:
                yield WantedStandIn(entry, slot.device.raw, node), (resource.name, slot.id)


def _made(entry: EntrySpec, *, by_cdi: bool) -> StandIn | None:
    """What is made on the host for each device of an entry: under CDI the runtime makes device nodes itself."""
    node = entry.source.node if isinstance(entry.source, VirtualSource) else None
    return None if by_cdi and isinstance(node, LikeNode) else node


_UNFINISHED = (f".{standin.PREFIX}", f".{FILE}")
_CLOSED = "closed"  # what the links of ended lines lead to; never made


class VirtualNodes(HostFiles[str, WantedStandIn]):
    """The stand-ins of one agent, by raw device id. `undeliverable` holds the devices whose stand-in is missing."""

    name = "making virtual nodes"

    def __init__(self, directory: Path, host: HostRoot, *, owner: str, timing: Timing) -> None:
        super().__init__({directory}, timing)
        self.directory = directory
        self._undeliverable: Mapping[str, Health] = {}
        self._host = host
        self._record = VirtualNodeRecord(directory, owner)
        self._standing: Mapping[str, WantedStandIn] = {}  # what is wanted, and what is kept of this process
        self._opened: dict[str, Pty] = {}  # new lines, which nobody answers yet
        self._lines: dict[str, Line] = {}

    @property
    def undeliverable(self) -> Mapping[str, Health]:
        """The devices, by raw device id, whose stand-in is missing, and why."""
        return self._undeliverable

    def unprepared(self, plan: Plan) -> frozenset[str]:
        """What the plan needs, and no `settle` that succeeded has made."""
        wanted = self.wanted(plan).items()
        return frozenset(
            device
            for device, each in wanted
            if device not in self._wanted or each.standin != self._wanted[device].standin
        )

    def wanted(self, plan: Plan) -> Mapping[str, WantedStandIn]:
        return wanted_stand_ins(plan)

    def present(self, wanted: Mapping[str, WantedStandIn]) -> Collection[str]:
        """What is in the directory, where that is this agent's or nobody's."""
        try:
            if wanted:
                self.directory.mkdir(parents=True, exist_ok=True)
            return names(self.directory) if self._record.take() else ()
        except OSError as failed:
            raise HostError(f"cannot make {failed.filename or self.directory}: {failed.strerror}") from failed

    def held(self, left: Collection[str], plan: Plan) -> Collection[str]:
        return [device for device in left if self._record.may_hold(device, plan.holdings, plan.claimed)]

    def make(
        self, plan: Plan, wanted: Mapping[str, WantedStandIn], kept: frozenset[str], gone: frozenset[str]
    ) -> Mapping[str, str]:
        del plan
        if self._record.slots is None:  # there is no directory, and none is needed
            return {}
        self._remove(gone)
        slots = {device: each for device, each in self._record.slots.items() if device in kept}
        self._record.write({**slots, **{device: each.slots for device, each in wanted.items()}})
        if not wanted and not kept:
            self._record.release()
        before = self._standing
        self._standing = {**{device: each for device, each in before.items() if device in kept}, **wanted}
        failed = {}
        for device, each in self._standing.items():
            changed = device in before and before[device].standin != each.standin
            try:
                self._make(device, each, changed=changed)
            except HostError as why:
                failed[device] = str(why)
            except OSError as why:
                failed[device] = f"cannot make {why.filename or self._path(device)}: {why.strerror}"
        return failed

    async def made(self, plan: Plan) -> None:
        del plan
        await self._connect()
        self._say({device: why for device, why in self.failed.items() if device in self._wanted})

    def renew(self, device: str) -> None:
        """Make a writable file or directory anew, without what pods wrote into it; blocks. Raises HostError."""
        with self._writing:
            each, path = self._standing.get(device), self._path(device)
            if each is None or not each.entry.is_writable:
                return
            try:
                _clear(path)
                self._make(device, each, changed=False)
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

    async def _connect(self) -> None:
        opened, self._opened = self._opened, {}
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
            each = self._standing[device]
            if isinstance(each.standin, PtyLine):
                connected.dialogue = _dialogue(each.standin, each.values, connected.dialogue.unfinished)

    def _is_line(self, device: str) -> bool:
        return device in self._standing and isinstance(self._standing[device].standin, PtyLine)

    def _say(self, failed: Mapping[str, str]) -> None:
        reasons = set(failed.values())
        for reason in sorted(reasons - {health.reason for health in self._undeliverable.values()}):
            devices = sorted(device for device, why in failed.items() if why == reason)
            log.error("stand-in not made", reason=reason, device=devices[0], devices=len(devices))
        self._undeliverable = {device: Health(healthy=False, reason=reason) for device, reason in failed.items()}

    # --- files, in a thread -------------------------------------------------------------------------------------------

    def _path(self, device: str) -> Path:
        return Path(standin.host_path(str(self.directory), device))

    def _remove(self, devices: Collection[str]) -> None:
        """Remove these, and what processes that were killed have not finished."""
        for device in sorted(devices):
            with contextlib.suppress(OSError):  # a directory that cannot be written
                _clear(self._path(device))
                log.info("virtual node removed", path=str(self._path(device)))
        for path in listed(self.directory):
            if path.name.startswith(_UNFINISHED) and path.suffix == ".tmp":
                with contextlib.suppress(OSError):
                    _clear(path)

    def _make(self, device: str, each: WantedStandIn, *, changed: bool) -> None:
        """Make one where it is not as it should be."""
        path = self._path(device)
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
                if device in self._lines:
                    _link(path, self._lines[device].pty.path)
                    return
                pty = open_pty(self._host)
                try:
                    _link(path, pty.path)
                except OSError:
                    pty.close()
                    raise
                self._opened[device] = pty
            case _:
                assert_never(each.standin)


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
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
