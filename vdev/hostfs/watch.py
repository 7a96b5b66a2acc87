"""Watches directories with inotify, and polls for changes that inotify misses.

A `Watcher` has one inotify descriptor and one consumer, which awaits `changes()` and then reads the directories itself:
a change is only a hint. A file that is written under a temporary name is not reported before it is renamed. Directories
need not exist; their parents are watched, too. The poll compares every directory with its earlier entries, and finds
changes that inotify cannot see: in sysfs, on remote file systems, and below a new mount.
"""

import asyncio
import contextlib
import errno
import os
from collections.abc import Collection, Hashable, Mapping
from pathlib import Path
from typing import Any

import structlog

from ..errors import reason_of
from ..intervals import PRODUCTION
from .files import is_unfinished

try:
    import inotify_simple
except ImportError:  # not on Linux: every directory is polled
    inotify_simple = None

log = structlog.get_logger(__name__)

# linux/inotify.h
_ATTRIB, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x4, 0x8, 0x40, 0x80, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF, _UNMOUNT, _OVERFLOW, _IGNORED = 0x400, 0x800, 0x2000, 0x4000, 0x8000
_ONLYDIR, _MASK_ADD = 0x01000000, 0x20000000
_ABOVE = _MOVED_TO | _CREATE | _DELETE_SELF | _MOVE_SELF | _ONLYDIR | _MASK_ADD
_ENTRIES = _ABOVE | _ATTRIB | _MOVED_FROM | _DELETE
_GONE = _DELETE_SELF | _MOVE_SELF | _UNMOUNT | _IGNORED


class Watcher:
    """Watches directories on the running event loop.

    `settle` is the time in seconds for which events are collected after the first one, because a file is written in
    several steps. Entries whose names contain `ignored` do not count. With `inotify=False`, the watcher only polls,
    every `poll_interval` seconds.
    """

    def __init__(
        self,
        *,
        poll_interval: float = PRODUCTION.look_at_files,
        settle: float = PRODUCTION.burst,
        ignored: str = "/",  # no name contains it
        inotify: bool = True,
    ) -> None:
        self._poll_interval = poll_interval
        self._settle = settle
        self._ignored = ignored
        self._directories: dict[Path, bool] = {}  # those that are watched, as in `follow`
        self._stamps: dict[Path, Hashable] = {}  # what the last poll found in a directory that has not changed since
        # The kernel's watch on each directory and on each of its parents; None if it is missing or cannot be watched.
        self._watches: dict[Path, int | None] = {}
        self._changed: set[Path] = set()  # for the next `changes()`
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._next_poll = self._loop.time() + poll_interval
        # Reasons why file events are slow or incomplete on this machine, as sentences.
        self.limits: list[str] = []
        self._inotify: Any = self._open_inotify() if inotify else None

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

    def _limit(self, sentence: str) -> None:
        if sentence not in self.limits:
            self.limits.append(sentence)
            log.warning("file events are limited", reason=sentence)

    async def follow(self, directories: Mapping[Path, bool]) -> frozenset[Path]:
        """Watch these directories, which need not exist, and no others; return those that were not watched before.

        The value of a directory is whether writes to its files are reported. In `/dev` they are not, because each
        write of a shell to /dev/null would be an event. Changes of a new directory are reported from now on, so a
        caller that reads the directory after this call misses none.
        """
        before, self._directories = self._directories, dict(directories)
        if before == self._directories:
            return frozenset()
        for path, content in before.items():
            if self._directories.get(path) is not content:
                self._stamps.pop(path, None)
        self._changed &= self._directories.keys()
        self._watch_again()
        fresh = self._directories.keys() - before.keys()
        await self._look(fresh)
        return frozenset(fresh)

    async def changes(self) -> frozenset[Path]:
        """Return watched directories that may have changed.

        Waits until there is one, and a moment longer for the rest of the burst.
        """
        while True:
            timer = self._loop.call_at(self._next_poll, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                timer.cancel()
            self._wake.clear()
            if self._loop.time() >= self._next_poll:
                await self._look(self._directories)
                self._next_poll = self._loop.time() + self._poll_interval
            if self._changed:
                await asyncio.sleep(self._settle)
                self._wake.clear()
                changed, self._changed = frozenset(self._changed), set()
                return changed

    def close(self) -> None:
        if self._inotify is not None:
            self._loop.remove_reader(self._inotify.fileno())
            self._inotify.close()
        self._inotify = None
        self._directories.clear()

    def _report(self, path: Path) -> None:
        self._changed.add(path)
        self._stamps.pop(path, None)
        self._wake.set()

    # --- events -------------------------------------------------------------------------------------------------------

    def _on_inotify(self) -> None:
        places: dict[int | None, list[Path]] = {}  # several paths may lead to one directory
        for path, watch in self._watches.items():
            places.setdefault(watch, []).append(path)
        is_elsewhere = False  # whether a path may lead to another directory now
        for event in self._inotify.read(timeout=0):
            if event.mask & _OVERFLOW:
                is_elsewhere = True
                for path in self._directories:
                    self._report(path)
            is_hidden = is_unfinished(event.name) or self._ignored in event.name
            for path in places.get(event.wd, ()):
                is_elsewhere |= bool(event.mask & _GONE) or path / event.name in self._watches
                content = self._directories.get(path)
                if content is not None and not is_hidden and (content or not event.mask & _CLOSE_WRITE):
                    self._report(path)
        if is_elsewhere:
            self._watch_again()

    def _watch_again(self) -> None:
        """Watch the directories that the paths lead to now, with all their parents, and report those that changed."""
        if self._inotify is None:
            return
        before, self._watches = self._watches, {}
        for path, content in self._directories.items():
            # From the root down, so that the parent is already watched when a missing directory is created.
            for above in reversed(path.parents):
                if above not in self._watches:
                    self._watches[above] = self._watch(above, _ABOVE)
            self._watches[path] = self._watch(path, _ENTRIES | (_CLOSE_WRITE if content else 0))
        for watch in set(before.values()) - set(self._watches.values()) - {None}:
            with contextlib.suppress(OSError):  # the kernel has already removed it
                self._inotify.rm_watch(watch)
        for path in self._directories:
            if path in before and self._watches[path] != before[path]:
                self._report(path)

    def _watch(self, path: Path, mask: int) -> int | None:
        try:
            return int(self._inotify.add_watch(path, mask))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as cause:
            if path in self._directories:
                hint = "; see fs.inotify.max_user_watches" if cause.errno == errno.ENOSPC else ""
                self._limit(f"{path} cannot be watched ({reason_of(cause)}): it is polled{hint}")
            return None

    # --- polling ------------------------------------------------------------------------------------------------------

    async def _look(self, paths: Collection[Path]) -> None:
        """Compare directories with the last poll, in a thread."""
        wanted = {path: self._directories[path] for path in paths}
        stamps = await asyncio.to_thread(lambda: {path: self._stamp(path, each) for path, each in wanted.items()})
        is_elsewhere = False
        for path, stamp in stamps.items():
            if self._directories.get(path) is not wanted[path] or stamp == self._stamps.get(path):
                continue
            if path in self._stamps:
                self._report(path)
            self._stamps[path] = stamp
            is_elsewhere = True  # possibly
        if is_elsewhere:
            self._watch_again()

    def _stamp(self, path: Path, content: bool) -> Hashable:
        """Return a fingerprint of a directory's entries; with `content`, writes to files change it too."""
        inside = set[tuple[object, ...]]()
        try:
            found = os.stat(path)
            with os.scandir(path) as entries:
                for each in entries:
                    if self._ignored in each.name:
                        continue
                    inside.add((each.name, each.inode()))
                    if content:
                        file = each.stat(follow_symlinks=False)
                        inside.add((each.name, file.st_mtime_ns, file.st_ctime_ns, file.st_size))
        except OSError:  # such as no directory, or a file that has just been deleted
            return ()
        return found.st_dev, found.st_ino, frozenset(inside)
