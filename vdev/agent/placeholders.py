"""The placeholders of virtual devices in the device directory: device nodes, files, directories and serial lines.

An agent locks the directory while it uses it, so that a second one with the same directory makes and removes nothing.
A placeholder that is no longer needed stays while a pod or a claim holds an id that may be its device's.
"""

import asyncio
import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from ..aio.clock import Timing
from ..errors import HostError
from ..hostfs import HostRoot, remove_unfinished, write_atomic
from ..hostfs.files import listed
from ..hostfs.locks import DirectoryLock
from ..model.device import RawDevice, base_id, facts
from ..model.entry import Entry
from ..model.template import Template
from ..model.virtual import NODE_NUMBERS, NODE_PREFIX, Like, LineEnd, VirtualNode, node_path
from ..planning.allocation import any_cdi
from ..planning.plan import DesiredState
from ..planning.resources import Inventory
from .host_files import HostFiles
from .retry import reason_in_words
from .serial_lines import Line

if TYPE_CHECKING:
    from ..dra.published_devices import Pools

log = structlog.get_logger(__name__)

_NVIDIA_PARTITION = "MIG-"  # such an id does not contain the device's id


@dataclass(frozen=True, slots=True)
class Placeholder:
    """The node, file, directory or line of one device. Two are equal if their `node` fields are."""

    entry: Entry = field(compare=False)
    device: RawDevice = field(compare=False)
    node: VirtualNode

    @property
    def values(self) -> Mapping[str, str]:
        return facts(self.device, self.entry.resource)


def _placeholders(inventory: Inventory, pools: "Pools") -> dict[str, Placeholder]:
    """The placeholders of these devices, and of devices in the pools that only claims still have, by raw device id.

    With CDI, which claims always use, the runtime makes device nodes itself.
    """
    groups = [
        (each, any_cdi(each.flags), [slot.device.raw for slot in each.slots]) for each in inventory.resources.values()
    ]
    groups += [(each, True, [slot.device.raw for slot in each.slots]) for each in inventory.claimable.values()]
    groups += [(each.offered, True, [one.device.raw for one in each.devices if one.lost]) for each in pools.values()]
    found = {}
    for resource, by_cdi, devices in groups:
        for device in devices:
            entry = resource.entries.get(device.entry)
            node = entry.virtual.node if entry and entry.virtual else None
            if entry and node and not (by_cdi and node.like):
                found[device.id] = Placeholder(entry, device, node)
    return found


_UNFINISHED = f".{NODE_PREFIX}"
_CLOSED = "closed"  # the links of ended lines lead to this name, which does not exist


class Placeholders(HostFiles[str, Placeholder]):
    """The placeholders of one agent, by raw device id. A device without its placeholder is undeliverable."""

    name = "making placeholders"

    def __init__(self, directory: Path, host: HostRoot, *, timing: Timing) -> None:
        super().__init__({directory}, timing)
        self.directory = directory
        self._host = host
        self._lock = DirectoryLock(directory)
        self._standing: Mapping[str, Placeholder] = {}  # the wanted ones, and kept ones of this process
        self._lines: dict[str, Line] = {}

    def wanted(self, plan: DesiredState) -> Mapping[str, Placeholder]:
        return _placeholders(plan.observed.inventory, {}) | _placeholders(plan.advertised, plan.pools)

    def present(self, wanted: Mapping[str, Placeholder]) -> Collection[str]:
        """Return the placeholders in the directory, which only one agent at a time may use."""
        if wanted:
            self.directory.mkdir(parents=True, exist_ok=True)
        elif not os.path.isdir(self.directory):
            return ()
        if not self._lock.take():
            raise HostError(
                f"another vdev makes its placeholders in {self.directory}; give each agent its own --device-dir"
            )
        found = (path.name for path in listed(self.directory) if path.name.startswith(NODE_PREFIX))
        return {name.removeprefix(NODE_PREFIX) for name in found}

    def in_use(self, left: Collection[str], plan: DesiredState) -> Collection[str]:
        named = _placeholders(plan.observed.previous.advertised, plan.observed.previous.pools)
        ids = {base_id(slot) for _, slot in (*plan.observed.in_use.all(), *plan.claimed)}
        kept = []
        for device in left:
            of_partitions = (f"{device}-", _NVIDIA_PARTITION)  # the beginnings of ids that its partitions may have
            if device in named or device in ids or any(each.startswith(of_partitions) for each in ids):
                kept.append(device)
        return kept

    def withheld(self, plan: DesiredState) -> Mapping[str, str]:
        del plan
        return {device: why for device, why in self.failed.items() if device in self._wanted}

    def make(
        self, plan: DesiredState, wanted: Mapping[str, Placeholder], kept: frozenset[str], gone: frozenset[str]
    ) -> Mapping[str, str]:
        del plan
        self._remove(gone)
        if not wanted and not kept:
            self._lock.release()
        before = self._standing
        self._standing = {**{device: each for device, each in before.items() if device in kept}, **wanted}
        failed = {}
        for device, each in self._standing.items():
            changed = device in before and before[device].node != each.node
            try:
                self._make(device, each, changed=changed)
            except (HostError, OSError) as why:
                failed[device] = reason_in_words(why)
        return failed

    def renew(self, device: str) -> None:
        """Make a writable file or directory again, without what pods wrote into it; blocks. Raises HostError."""
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
        """Close all lines. Everything else stays, because a container that restarts gets it again."""
        if self._lines:
            await self._hang_up([*self._lines])

    def release(self) -> None:
        """Unlock the directory permanently, so that another process may use it."""
        self._lock.close()

    # --- serial lines, on the event loop ------------------------------------------------------------------------------

    async def apply(self, plan: DesiredState) -> None:
        """Make the placeholders. Then close lines that nothing needs, answer new ones, and adopt edited answers."""
        await super().apply(plan)
        needed = {device for device, each in self._standing.items() if each.node.pty is not None}
        if unneeded := self._lines.keys() - needed:
            await self._hang_up(unneeded)
        for device, line in self._lines.items():
            node, values = self._standing[device].node, self._standing[device].values
            answers = {heard: template.render(values) for heard, template in node.answers.items()}
            otherwise = None if node.otherwise is None else node.otherwise.render(values)
            line.behave(node.pty or LineEnd.SILENCE, answers, otherwise)

    async def _hang_up(self, devices: Collection[str]) -> None:
        """Close these lines, after redirecting their links, because other programs will get the terminals' numbers."""
        links = {self._path(device): self._lines[device].path for device in devices}
        await asyncio.to_thread(_disconnect, links, self.directory / _CLOSED)
        for device in devices:
            self._lines.pop(device).close()

    # --- files, in a thread -------------------------------------------------------------------------------------------

    def _path(self, device: str) -> Path:
        return Path(node_path(str(self.directory), device))

    def _remove(self, devices: Collection[str]) -> None:
        """Remove these, and unfinished files of processes that were killed."""
        for device in sorted(devices):
            with contextlib.suppress(OSError):  # a directory that cannot be written
                _clear(self._path(device))
                log.info("placeholder removed", path=str(self._path(device)))
        for path in listed(self.directory):
            if path.name.startswith(_UNFINISHED) and path.suffix == ".tmp":
                with contextlib.suppress(OSError):
                    _clear(path)

    def _make(self, device: str, each: Placeholder, *, changed: bool) -> None:
        """Make or repair one placeholder; `changed`: its content was edited."""
        path = self._path(device)
        match each.node:
            case VirtualNode(like=Like() as like):
                _make_node(path, like)
            case VirtualNode(file=Template() as content):
                if changed or not _is(path, stat.S_ISREG):
                    _clear_unless(path, stat.S_ISREG)
                    write_atomic(path, content.render(each.values).encode(), mode=0o666)
            case VirtualNode(directory=dict() as files):
                texts = {name: content.render(each.values).encode() for name, content in files.items()}
                if not _is(path, stat.S_ISDIR):
                    _make_directory(path, texts)
                else:
                    remove_unfinished(path, *(f"{name}." for name in texts))
                    for name, text in texts.items() if changed else ():
                        write_atomic(path / name, text, mode=0o666)
            case _:
                if device not in self._lines:
                    pause = self._intervals.serial_line
                    self._lines[device] = Line(self._host, pause=pause, clock=self._clock)
                _link(path, self._lines[device].path)


def _make_node(path: Path, like: Like) -> None:
    number = os.makedev(*NODE_NUMBERS[like])
    with contextlib.suppress(FileNotFoundError):
        found = path.lstat()
        if stat.S_ISCHR(found.st_mode) and found.st_rdev == number:
            return
        _clear(path)
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, number)
    except PermissionError as cause:
        hint = "vdev needs CAP_MKNOD, or a CDI strategy, which needs no device nodes on the host"
        raise HostError(f"cannot make the device node {path}: {cause.strerror}; {hint}") from cause
    path.chmod(0o666)  # mknod applies the umask


def _link(path: Path, target: str) -> None:
    """Make the path a link to `target`. An existing link is replaced atomically."""
    if path.is_symlink() and path.readlink() == Path(target):
        return
    _clear_unless(path, stat.S_ISLNK)
    fresh = path.with_name(f".{path.name}.tmp")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.rename(path)


def _make_directory(path: Path, texts: Mapping[str, bytes]) -> None:
    """Make a directory with these files, which appears only when it is complete."""
    _clear(path)
    fresh = path.with_name(f".{path.name}.tmp")
    _clear(fresh)
    fresh.mkdir()
    fresh.chmod(0o777)
    for name, text in texts.items():
        write_atomic(fresh / name, text, mode=0o666)
    fresh.rename(path)


def _disconnect(links: Mapping[Path, str], nowhere: Path) -> None:
    """Redirect the links to `nowhere`, except those that another process has replaced."""
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
        try:
            shutil.rmtree(path)
        except RecursionError:  # before Python 3.13, if a container nested directories deeper than the stack is
            raise OSError(errno.ELOOP, "its directories are nested too deeply", str(path)) from None
    else:
        path.unlink(missing_ok=True)
