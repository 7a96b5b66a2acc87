"""Directories whose changes wake the event loop: inotify where it works, a poll where it does not.

One `Watcher` holds one inotify descriptor and has one consumer, which awaits `changes()` and then looks what is new
itself: a change is a hint, never a fact. Directories may be missing; the nearest existing ancestor is watched until
they appear. What inotify cannot see (sysfs, remote file systems, a directory that something was mounted on) is compared
now and then in a thread; kernel uevents, where allowed, report changes in sysfs at once.
"""

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ..errors import reason_of
from ..intervals import PRODUCTION

try:
    import inotify_simple
except ImportError:  # not on Linux: every directory is polled
    inotify_simple = None

# linux/inotify.h
_ATTRIB, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x4, 0x8, 0x40, 0x80, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF, _UNMOUNT, _OVERFLOW, _IGNORED = 0x400, 0x800, 0x2000, 0x4000, 0x8000
_ONLYDIR, _MASK_ADD = 0x01000000, 0x20000000
_ENTRIES = _ATTRIB | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF | _ONLYDIR | _MASK_ADD
_GONE = _DELETE_SELF | _MOVE_SELF | _UNMOUNT | _IGNORED

# File systems whose changes inotify does not report, or only those made on this machine: remote ones, the kernel's own.
_SILENT = frozenset(
    {"sysfs", "proc", "nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "virtiofs", "vboxsf", "fuse", "fuseblk"}
)

_NETLINK_KOBJECT_UEVENT = 15  # linux/netlink.h
_KERNEL_GROUP = 1  # the kernel's own messages; group 2 carries udev's

Changes = Mapping[Path, frozenset[str]]
"""Watched directories that may have changed, each with the entries concerned; no entries mean: anything may have."""


_Asked = tuple[str, bool, bool, bool]
"""A directory, and whether it is silent, whether its stamp is known, and whether it is polled."""


@dataclass(slots=True)
class _Target:
    """A watched directory. `armed` is where inotify listens for it: itself, an ancestor, or None when it is polled."""

    path: Path
    content: bool
    armed: Path | None = None
    wd: int = -1
    silent: bool = False  # inotify reports nothing there; `stamp` is then of the content, else of the directory itself
    stamp: Hashable = None
    known: bool = False  # whether `stamp` holds anything


class Uevents:
    """A netlink socket that becomes readable when the kernel added, removed or changed a device.

    An event is only a wake-up: its text is never trusted, and who receives one looks at sysfs again.
    """

    def __init__(self) -> None:
        """Raises OSError where the platform or the container's rules do not allow it."""
        family = getattr(socket, "AF_NETLINK", None)
        if family is None:
            raise OSError("this platform has no netlink")
        self._socket = socket.socket(
            family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, _NETLINK_KOBJECT_UEVENT
        )
        try:
            self._socket.bind((0, _KERNEL_GROUP))
        except OSError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def drain(self) -> None:
        """Discard all events until now. An overflow of the socket's buffer counts as an event."""
        with contextlib.suppress(OSError):
            while True:
                self._socket.recv(8192)

    def close(self) -> None:
        self._socket.close()


class Watcher:
    """Watches directories on the running event loop.

    `settle` is how long (seconds) a burst is gathered after its first event, since a file is written in several steps.
    `poll_interval` is the pace of the poll behind the events. Where every directory has
    events, it only looks whether these still stand at their paths: that is done each `stand_interval`. `sys` is where
    the host's sysfs is seen: kernel uevents count as changes of every watched directory below it. `inotify=False`
    leaves the poll alone.
    """

    def __init__(
        self,
        *,
        poll_interval: float = PRODUCTION.look_at_files,
        stand_interval: float = PRODUCTION.look_at_directories,
        settle: float = PRODUCTION.burst,
        sys: Path | None = None,
        inotify: bool = True,
    ) -> None:
        self._poll_interval = poll_interval
        self._stand_interval = stand_interval
        self._settle = settle
        self._sys = sys
        self._targets: dict[Path, _Target] = {}
        self._users: dict[int, set[Path]] = {}
        self._names: dict[Path, set[str]] = {}  # for the next `changes()`: directories, and the entries that changed
        self._anything: set[Path] = set()  # for the same: directories of which anything may have changed
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._limits: dict[str, None] = {}
        self._inotify: Any = self._open_inotify() if inotify else None
        self._uevents = self._open_uevents() if sys else None

    def _open_inotify(self) -> Any:
        if inotify_simple is None:
            self._limit("inotify is not available: directories are polled")
            return None
        try:
            inotify = inotify_simple.INotify(nonblocking=True)
        except OSError as cause:
            self._limit(f"no inotify ({reason_of(cause)}): directories are polled; see fs.inotify.max_user_instances")
            return None
        self._loop.add_reader(inotify.fileno(), self._on_inotify)
        return inotify

    def _open_uevents(self) -> Uevents | None:
        try:
            uevents = Uevents()
        except OSError as cause:
            self._limit(f"kernel uevents cannot be received ({reason_of(cause)}): sysfs is polled")
            return None
        self._loop.add_reader(uevents.fileno(), self._on_uevent)
        return uevents

    def _limit(self, sentence: str) -> None:
        self._limits[sentence] = None

    @property
    def limits(self) -> tuple[str, ...]:
        """What is slower than it could be on this machine, one sentence each."""
        return tuple(self._limits)

    @property
    def paths(self) -> frozenset[Path]:
        return frozenset(self._targets)

    def watch(self, path: Path, *, content: bool = True) -> None:
        """Watch a directory, which need not exist; watching it again changes nothing.

        `content=False` leaves out that a file's content was written. It is right for `/dev`, where each `> /dev/null`
        of anybody's shell is such a write.
        """
        target = self._targets.get(path)
        if target is None:
            target = self._targets[path] = _Target(path, content)
        elif content and not target.content:
            target.content = True
        else:
            return
        self._arm(target)
        self._wake.set()  # so that the poll takes its first stamp soon

    def unwatch(self, path: Path) -> None:
        """Stop watching a directory; nothing when it is not watched."""
        target = self._targets.pop(path, None)
        if target is not None:
            self._release(target)
            self._names.pop(path, None)
            self._anything.discard(path)

    async def changes(self) -> Changes:
        """Wait until at least one directory may have changed, and a moment longer for the rest of the burst."""
        while True:
            if all(each.known for each in self._targets.values()):
                is_polled = any(each.silent or each.armed is None for each in self._targets.values())
                pause = self._poll_interval if is_polled else self._stand_interval
                timer = self._loop.call_later(pause, self._wake.set)
                try:
                    await self._wake.wait()
                finally:
                    timer.cancel()
            if not self._has_news():
                self._wake.clear()
                await self._compare()
            if self._has_news():
                await asyncio.sleep(self._settle)
                self._wake.clear()
                changes = {path: frozenset(names) for path, names in self._names.items()}
                changes |= dict.fromkeys(self._anything, frozenset[str]())
                self._names, self._anything = {}, set()
                return changes

    def close(self) -> None:
        for source in (self._inotify, self._uevents):
            if source is not None:
                self._loop.remove_reader(source.fileno())
                source.close()
        self._inotify = self._uevents = None
        self._targets.clear()
        self._users.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- events -------------------------------------------------------------------------------------------------------

    def _has_news(self) -> bool:
        return bool(self._anything or self._names)

    def _report(self, path: Path, name: str = "") -> None:
        if name:
            self._names.setdefault(path, set()).add(name)
        else:
            self._anything.add(path)
        self._wake.set()

    def _on_uevent(self) -> None:
        assert self._uevents is not None
        assert self._sys is not None
        self._uevents.drain()
        for path in self._targets:
            if path.is_relative_to(self._sys):
                self._report(path)

    def _on_inotify(self) -> None:
        for event in self._inotify.read(timeout=0):
            if event.mask & _OVERFLOW:
                for target in list(self._targets.values()):
                    self._arm(target)
                    self._report(target.path)
                continue
            for path in list(self._users.get(event.wd, ())):
                self._on_event(self._targets[path], event.mask, event.name)
            if event.mask & _IGNORED:
                self._users.pop(event.wd, None)

    def _on_event(self, target: _Target, mask: int, name: str) -> None:
        if mask & _GONE:
            self._arm(target)
            self._report(target.path)
        elif target.armed == target.path:
            if not mask & _CLOSE_WRITE or target.content:
                self._report(target.path, name)
        elif target.armed is not None and name == target.path.relative_to(target.armed).parts[0]:
            self._arm(target)
            if target.armed == target.path:
                self._report(target.path)

    # --- where inotify listens ----------------------------------------------------------------------------------------

    def _arm(self, target: _Target) -> None:
        """Listen at the directory, or at its nearest existing ancestor; fall back to the poll."""
        self._release(target)
        if self._inotify is None or target.silent:
            return
        try:
            armed, wd = self._listen(target)
        except OSError as cause:
            hint = "; see fs.inotify.max_user_watches" if cause.errno == errno.ENOSPC else ""
            self._limit(f"{target.path} cannot be watched ({reason_of(cause)}): it is polled{hint}")
            target.known = False
            return
        target.armed, target.wd = armed, wd
        self._users.setdefault(wd, set()).add(target.path)

    def _listen(self, target: _Target) -> tuple[Path, int]:
        """The deepest existing directory on the way to the target, and its watch. Raises OSError."""
        lineage = (target.path, *target.path.parents)
        best: tuple[Path, int] | None = None
        depth = 0
        while True:  # down again after each success: the next directory may have been made in between
            mask = _ENTRIES | (_CLOSE_WRITE if target.content and depth == 0 else 0)
            try:
                wd = self._inotify.add_watch(lineage[depth], mask)
            except (FileNotFoundError, NotADirectoryError):
                if best is not None:
                    return best
                depth += 1
                if depth == len(lineage):
                    raise
                continue
            if best is not None and best[1] != wd and not self._users.get(best[1]):
                self._forget(best[1])
            best = lineage[depth], wd
            if depth == 0:
                return best
            depth -= 1

    def _is_elsewhere(self, target: _Target) -> bool:
        """Whether another directory has come to stand there since inotify was told to listen."""
        try:
            return self._listen(target) != (target.armed, target.wd)
        except OSError:
            return True

    def _release(self, target: _Target) -> None:
        users = self._users.get(target.wd)
        if users is not None:
            users.discard(target.path)
            if not users:
                del self._users[target.wd]
                self._forget(target.wd)
        target.armed, target.wd = None, -1

    def _forget(self, wd: int) -> None:
        if self._inotify is not None:
            with contextlib.suppress(OSError):  # the kernel has dropped it already
                self._inotify.rm_watch(wd)

    # --- the poll behind ----------------------------------------------------------------------------------------------

    async def _compare(self) -> None:
        """Compare every directory with its last stamp, in a thread."""
        targets = list(self._targets.values())
        asked = [(str(each.path), each.silent, each.known, each.armed is None) for each in targets]
        seen = await asyncio.to_thread(_stamps, asked)
        for target, (silent, stamp) in zip(targets, seen, strict=True):
            if self._targets.get(target.path) is not target:
                continue
            if not target.known and (silent or target.armed is None):
                self._report(target.path)  # nobody listened between `watch` and this first look
            elif target.stamp != stamp if target.known else self._is_elsewhere(target):
                self._report(target.path)
                self._arm(target)  # another directory stands there, or none
            target.stamp, target.known = stamp, True
            if silent and not target.silent:
                target.silent = True
                self._release(target)


def _stamps(asked: Sequence[_Asked]) -> list[tuple[bool, Hashable]]:
    seen = []
    for path, was_silent, known, polled in asked:
        silent = was_silent or (not known and _is_silent(Path(path)))
        seen.append((silent, _content(path) if silent or polled else _identity(path)))
    return seen


def _identity(path: str | Path) -> Hashable:
    """Which directory stands at the path now; None when none does."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _content(path: str | Path) -> Hashable:
    """The directory and the names in it with what changes when they are written or replaced; None if it is missing."""
    try:
        with os.scandir(path) as entries:
            return _identity(path), frozenset((entry.name, *_state(entry)) for entry in entries)
    except OSError:
        return None


def _state(entry: "os.DirEntry[str]") -> tuple[int, ...]:
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def _is_silent(path: Path) -> bool:
    """Whether inotify misses changes on the directory's file system, by the kernel's mount table."""
    for candidate in (path, *path.parents):
        try:
            device = os.stat(candidate).st_dev
            break
        except OSError:
            continue
    else:
        return False
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        table = Path("/proc/self/mountinfo").read_text(errors="replace")
    except OSError:
        return False
    for line in table.splitlines():
        fields, _, rest = line.partition(" - ")
        if number in fields.split()[2:3]:
            kind = rest.split()[0]
            return kind in _SILENT or kind.startswith("fuse.")
    return False
