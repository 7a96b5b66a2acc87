"""The host's file system as this process sees it: the only way to the host's `/dev` and `/sys`.

In a container the host's directories are mounted somewhere, `/host` say. A *host path* is a `str` such as
`/dev/ttyUSB0`, the path that the kubelet and the runtime understand; a `Path` is where this process reads it. Symbolic
links are resolved below the root: an absolute one never leads to this container's own files, and `..` never climbs out.

Everything here blocks: call it in a thread.
"""

import copy
import errno
import os
import posixpath
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ..core.spec import NodeKind
from ..errors import HostError, reason_of
from . import symlinks

READ_LIMIT = 64 * 1024  # sysfs attributes hold a page, probed files a word; nobody may feed us more

_KINDS = {
    stat.S_IFCHR: NodeKind.CHAR,
    stat.S_IFBLK: NodeKind.BLOCK,
    stat.S_IFREG: NodeKind.FILE,
    stat.S_IFDIR: NodeKind.DIRECTORY,
    stat.S_IFSOCK: NodeKind.SOCKET,
    stat.S_IFIFO: NodeKind.FIFO,
}


@dataclass(frozen=True, slots=True)
class FileInfo:
    """What a host path is. `path` is the host's own, links resolved; the numbers are those of a device node."""

    path: str
    kind: NodeKind
    major: int = 0
    minor: int = 0

    @property
    def is_device(self) -> bool:
        """Whether it is a device node."""
        return self.kind in (NodeKind.CHAR, NodeKind.BLOCK)


Inspect = Callable[[str], tuple[NodeKind, int, int]]


def inspect(path: str) -> tuple[NodeKind, int, int]:
    """Kind, major and minor of a file that is no link. Raises OSError."""
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):  # one that leads nowhere, such as /proc/<pid>/exe of a thread of the kernel
        raise FileNotFoundError(errno.ENOENT, "a link that cannot be followed", path)
    return _KINDS[stat.S_IFMT(found.st_mode)], os.major(found.st_rdev), os.minor(found.st_rdev)


class HostRoot:
    """The host's file system below `root`; `inspect` tells what a file is (tests without rights give their own)."""

    def __init__(self, root: Path = Path("/"), *, inspect: Inspect = inspect) -> None:
        self.root = Path(posixpath.normpath(root.absolute()))
        self._prefix = "" if str(self.root) == "/" else str(self.root)
        self._inspect = inspect
        self._directories: dict[str, str] | None = None  # resolved ones, while they are remembered

    def at_one_moment(self) -> Self:
        """The same host for a few looks in a row: where the way to a directory leads is found out once."""
        moment = copy.copy(self)
        moment._directories = {}
        return moment

    def __repr__(self) -> str:
        return f"HostRoot({str(self.root)!r})"

    def resolve(self, host_path: str, *, follow: bool = True) -> str:
        """The host path without links and `..`; with `follow=False` a link at the end stays.

        What does not exist stays as it is written. Raises HostError when the links form a loop, and for a path with
        a NUL character, which no file has.
        """
        if follow and self._directories and (known := self._directories.get(host_path)):
            return known
        path = self._in_directory(host_path)
        if not path:
            return self._followed(host_path, last=follow)
        return self._followed(path) if follow and self._read_link(path) else path

    def _in_directory(self, host_path: str) -> str:
        """The path in the directory that its own leads to, if that is remembered; the empty string where it is not."""
        if "\0" in host_path:
            raise HostError(f"{host_path!r}: a path cannot hold a NUL character")
        directory, _, name = host_path.rpartition("/")
        if self._directories is None or not directory or name in ("", ".", ".."):
            return ""
        known = self._directories.get(directory)
        if known is None:
            known = self._directories[directory] = self._followed(directory)
        return f"{known.rstrip('/')}/{name}"

    def _followed(self, host_path: str, *, last: bool = True) -> str:
        way = symlinks.follow(host_path, self._read_link, last=last)
        if way.is_loop:
            raise HostError(f"{host_path}: too many symbolic links in a row, probably a loop")
        return way.path

    def _read_link(self, resolved: str) -> str:
        return symlinks.read_link(self._prefix + resolved)

    def path(self, host_path: str, *, follow: bool = True) -> Path:
        """Where this process finds the host path, links resolved below the root.

        Raises HostError for a loop of links.
        """
        return Path(self._prefix + self.resolve(host_path, follow=follow))

    def host_path(self, path: Path) -> str:
        """The host's own name of a path below the root. Raises HostError when it is not below it."""
        try:
            return posixpath.normpath(posixpath.join("/", path.relative_to(self.root).as_posix()))
        except ValueError:
            raise HostError(f"{path} is not below the host root {self.root}") from None

    def info(self, host_path: str) -> FileInfo | None:
        """What stands at the host path, links followed; None when nothing does.

        Raises HostError for a loop of links, or without permission to look.
        """
        path = self._in_directory(host_path)
        if path:
            try:
                return FileInfo(path, *self._inspect(self._prefix + path))
            except OSError:  # a link, or nothing
                pass
        resolved = self.resolve(host_path)
        try:
            kind, major, minor = self._inspect(self._prefix + resolved)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as cause:
            raise HostError(f"cannot look at {host_path}: {reason_of(cause)}") from cause
        return FileInfo(resolved, kind, major, minor)

    def exists(self, host_path: str) -> bool:
        """Whether something stands there that can be looked at."""
        try:
            return self.info(host_path) is not None
        except HostError:
            return False

    def is_present(self, host_path: str) -> bool:
        """Whether the directory has such an entry, be it a link to nothing."""
        try:
            return os.path.lexists(self._prefix + self.resolve(host_path, follow=False))
        except HostError:
            return False

    def link(self, host_path: str) -> str:
        """The target of a link, as it is written in it; the empty string when it is no link."""
        try:
            return self._read_link(self.resolve(host_path, follow=False))
        except HostError:
            return ""

    def entries(self, host_path: str) -> Iterator[tuple[str, bool]]:
        """Names in a directory, each with whether it is a directory itself (a link is none), in no order.

        Nothing for a directory that is not there; raises HostError when it cannot be read.
        """
        try:
            with os.scandir(self._prefix + self.resolve(host_path)) as found:
                yield from ((each.name, each.is_dir(follow_symlinks=False)) for each in found)
        except (FileNotFoundError, NotADirectoryError):
            return
        except (OSError, ValueError) as cause:
            raise HostError(f"cannot list {host_path}: {reason_of(cause)}") from cause

    def read_text(self, host_path: str, *, limit: int = READ_LIMIT) -> str | None:
        """The text of a file, stripped, at most `limit` bytes; None when it is not there. Never waits at a pipe.

        Raises HostError when it cannot be read.
        """
        try:
            handle = os.open(self._prefix + self.resolve(host_path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                with open(handle, "rb", closefd=False) as file:  # raises for a directory, and then closes nothing
                    return (file.read(limit) or b"").decode(errors="replace").strip("\0 \t\r\n")
            finally:
                os.close(handle)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as cause:
            raise HostError(f"cannot read {host_path}: {reason_of(cause)}") from cause
