"""The host's file system as this process sees it: the only way to the host's `/dev` and `/sys`.

In a container the host's directories are mounted somewhere, `/host` say. A *host path* is a `str` such as
`/dev/ttyUSB0`, the path that the kubelet and the runtime understand; a `Path` is where this process reads it. Symbolic
links are resolved below the root: an absolute one never leads to this container's own files, and `..` never climbs out.

Everything here blocks: call it in a thread.
"""

import errno
import os
import posixpath
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import HostError, reason_of
from ..model.sources import NodeKind
from .files import read_plain

_MAX_LINKS = 40  # the kernel's own limit for one path


@dataclass(slots=True)
class Way:
    """Where a path leads, and the directories of the links on the way there."""

    path: str = "/"
    directories: list[str] = field(default_factory=list)
    is_loop: bool = False  # more links than the kernel would follow; then `path` is only how far it got


def follow_links(path: str, read: Callable[[str], str], *, last: bool = True) -> Way:
    """The way from `/` to an absolute path. What does not exist stays as it is written.

    `read` answers the target of a link, and the empty string for anything else. With `last=False` a link
    at the end is not followed.
    """
    way = Way()
    pending = _parts(path)
    pending.reverse()
    done: list[str] = []
    while pending:
        part = pending.pop()
        if part == "..":
            del done[-1:]
            continue
        target = read("/".join(("", *done, part))) if last or pending else ""
        if not target:
            done.append(part)
            continue
        way.directories.append(_joined(done))
        if len(way.directories) > _MAX_LINKS:
            way.is_loop = True
            break
        if target.startswith("/"):
            done.clear()
        pending += reversed(_parts(target))
    way.path = _joined(done)
    return way


def read_link(path: str) -> str:
    """The target of a link as this process sees it; the empty string for anything else. Blocks."""
    try:
        return os.readlink(path)
    except (OSError, ValueError):  # no link, not permitted, or a name that no file can have
        return ""


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _joined(parts: list[str]) -> str:
    return "/".join(("", *parts)) if parts else "/"


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

    def __repr__(self) -> str:
        return f"HostRoot({str(self.root)!r})"

    def resolve(self, host_path: str, *, follow: bool = True) -> str:
        """The host path without links and `..`; with `follow=False` a link at the end stays.

        What does not exist stays as it is written. Raises HostError when the links form a loop, and for a path with
        a NUL character, which no file has.
        """
        if "\0" in host_path:
            raise HostError(f"{host_path!r}: a path cannot hold a NUL character")
        way = follow_links(host_path, self._read_link, last=follow)
        if way.is_loop:
            raise HostError(f"{host_path}: too many symbolic links in a row, probably a loop")
        return way.path

    def _read_link(self, resolved: str) -> str:
        return read_link(self._prefix + resolved)

    def path(self, host_path: str, *, follow: bool = True) -> Path:
        """Where this process finds the host path, links resolved below the root.

        Raises HostError for a loop of links.
        """
        return Path(self._prefix + self.resolve(host_path, follow=follow))

    def info(self, host_path: str) -> FileInfo | None:
        """What stands at the host path, links followed; None when nothing does.

        Raises HostError for a loop of links, or without permission to look.
        """
        resolved = self.resolve(host_path)
        try:
            kind, major, minor = self._inspect(self._prefix + resolved)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as cause:
            raise HostError(f"cannot look at {host_path}: {reason_of(cause)}") from cause
        return FileInfo(resolved, kind, major, minor)

    def exists(self, host_path: str) -> bool:
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


_PRODUCT = "/sys/class/dmi/id/product_name"
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_MOST = 64  # bytes; it is a UUID


def machine_type(host: HostRoot) -> str:
    """The machine's model; empty where nothing tells. Blocks for a moment."""
    try:
        return host.read_text(_PRODUCT) or ""
    except HostError:
        return ""


def boot_id() -> str:
    """What Linux calls this boot; empty where nothing tells. Blocks for a moment."""
    try:
        return (read_plain(_BOOT, limit=_MOST) or b"").decode("ascii", "replace").strip()
    except HostError:
        return ""
