"""The host's file system as this process sees it. All access to the host's `/dev` and `/sys` goes through this module.

In a container, the host's directories are mounted elsewhere, such as at `/host`. A *host path* is a `str` such as
`/dev/ttyUSB0`, the path that the kubelet and the runtime understand; a `Path` is where this process reads it. Symbolic
links are resolved below the root: neither absolute links nor `..` lead out of it.

All functions block: call them in a thread.
"""

import contextlib
import errno
import os
import posixpath
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import HostError, reason_of
from ..model.sources import NodeKind

_MAX_LINKS = 40  # the kernel's own limit for one path


def follow_links(path: str, *, root: str = "", last: bool = True) -> tuple[str, list[str]]:
    """Follow the links of an absolute path below `root`. Return the path without links, and the links' directories.

    Parts that do not exist stay as they are written. With `last=False`, a link at the end is not followed. Blocks.
    Raises HostError if there are more links than the kernel would follow.
    """
    directories: list[str] = []
    pending = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    here = ""
    while pending:
        part = pending.pop()
        if part == "..":
            here = here.rpartition("/")[0]
            continue
        target = ""
        if last or pending:
            with contextlib.suppress(OSError, ValueError):  # not a link, not permitted, or a name with a NUL character
                target = os.readlink(f"{root}{here}/{part}")
        if not target:
            here += f"/{part}"
            continue
        directories.append(here or "/")
        if len(directories) > _MAX_LINKS:
            raise HostError(f"{path}: too many symbolic links in a row, probably a loop")
        if target.startswith("/"):
            here = ""
        pending += [part for part in reversed(target.split("/")) if part not in ("", ".")]
    return here or "/", directories


READ_LIMIT = 64 * 1024  # bytes; sysfs attributes have at most a page, probed files a word

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
    """The kind of a host path. `path` is the host's own without links; `major` and `minor` are of a device node."""

    path: str
    kind: NodeKind
    major: int = 0
    minor: int = 0

    @property
    def is_device(self) -> bool:
        return self.kind in (NodeKind.CHAR, NodeKind.BLOCK)


Inspect = Callable[[str], tuple[NodeKind, int, int]]


def inspect(path: str) -> tuple[NodeKind, int, int]:
    """Return kind, major and minor of a file that is not a link. Raises OSError."""
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):  # a link that cannot be followed, such as /proc/<pid>/exe of a kernel thread
        raise FileNotFoundError(errno.ENOENT, "a link that cannot be followed", path)
    return _KINDS[stat.S_IFMT(found.st_mode)], os.major(found.st_rdev), os.minor(found.st_rdev)


class HostRoot:
    """The host's file system below `root`; tests without the right to make device nodes give their own `inspect`."""

    def __init__(self, root: Path = Path("/"), *, inspect: Inspect = inspect) -> None:
        self.root = Path(posixpath.normpath(root.absolute()))
        self._prefix = "" if str(self.root) == "/" else str(self.root)
        self._inspect = inspect

    def __repr__(self) -> str:
        return f"HostRoot({str(self.root)!r})"

    def resolve(self, host_path: str, *, follow: bool = True) -> str:
        """Return the host path without links and `..`; with `follow=False`, a link at the end is not followed.

        Parts that do not exist stay as they are written. Raises HostError if links form a loop, and for a path with a
        NUL character.
        """
        if "\0" in host_path:
            raise HostError(f"{host_path!r}: a path cannot hold a NUL character")
        return follow_links(host_path, root=self._prefix, last=follow)[0]

    def path(self, host_path: str) -> Path:
        """Return where this process sees the host path, with links resolved below the root.

        Raises HostError for a loop of links.
        """
        return Path(self._prefix + self.resolve(host_path))

    def info(self, host_path: str) -> FileInfo | None:
        """Return the kind of the host path, with links followed; None if it does not exist.

        Raises HostError for a loop of links, or without permission.
        """
        resolved = self.resolve(host_path)
        try:
            kind, major, minor = self._inspect(self._prefix + resolved)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as cause:
            raise HostError(f"cannot access {host_path}: {reason_of(cause)}") from cause
        return FileInfo(resolved, kind, major, minor)

    def exists(self, host_path: str) -> bool:
        try:
            return self.info(host_path) is not None
        except HostError:
            return False

    def link(self, host_path: str) -> str:
        """Return the literal target of a link; the empty string if the path is not a link."""
        try:
            return os.readlink(self._prefix + self.resolve(host_path, follow=False))
        except (HostError, OSError):
            return ""

    def entries(self, host_path: str) -> Iterator[tuple[str, bool]]:
        """Yield the names in a directory in any order, each with whether it is a directory (a link is not).

        Yields nothing if the directory does not exist; raises HostError if it cannot be read.
        """
        try:
            with os.scandir(self._prefix + self.resolve(host_path)) as found:
                for each in found:
                    yield each.name, each.is_dir(follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return
        except (OSError, ValueError) as cause:
            raise HostError(f"cannot list {host_path}: {reason_of(cause)}") from cause

    def read_text(self, host_path: str, *, limit: int = READ_LIMIT) -> str | None:
        """Return the stripped text of a file, at most `limit` bytes; None if it does not exist. Never waits for a pipe.

        Raises HostError if it cannot be read.
        """
        try:
            handle = os.open(self._prefix + self.resolve(host_path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                with open(handle, "rb", closefd=False) as file:  # raises for a directory; then `handle` stays open
                    return (file.read(limit) or b"").decode(errors="replace").strip("\0 \t\r\n")
            finally:
                os.close(handle)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as cause:
            raise HostError(f"cannot read {host_path}: {reason_of(cause)}") from cause


def truncate(host: HostRoot, host_path: str) -> None:
    """Empty a plain file. Raises HostError."""
    _amend(host, host_path, "empty", (stat.S_ISREG,), lambda own: os.truncate(own, 0))


def chmod(host: HostRoot, host_path: str, mode: int) -> None:
    """Set the mode of a plain file or a device node. Raises HostError."""
    kinds = (stat.S_ISREG, stat.S_ISCHR, stat.S_ISBLK)
    _amend(host, host_path, "set the mode of", kinds, lambda own: os.chmod(own, mode))


def _amend(
    host: HostRoot, host_path: str, what: str, kinds: tuple[Callable[[int], bool], ...], act: Callable[[str], None]
) -> None:
    if ".." in host_path.split("/"):
        raise HostError(f"refused to {what} {host_path}: it contains '..'")
    try:
        path = posixpath.join(os.path.realpath(host.root), host.resolve(host_path).lstrip("/"))
        handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            own = f"/proc/self/fd/{handle}"
            # Change the opened file, which can no longer be replaced. Check its path now, because before the open, a
            # part of the path may have become a link that leads out of the root.
            if os.readlink(own) != path:
                raise HostError(f"refused to {what} {host_path}: it was replaced while it was opened")
            found = os.fstat(handle).st_mode
            if not any(is_kind(found) for is_kind in kinds):
                wanted = "a plain file" if len(kinds) == 1 else "a plain file or a device node"
                raise HostError(f"refused to {what} {host_path}: it is not {wanted}")
            act(own)
        finally:
            os.close(handle)
    except OSError as cause:
        raise HostError(f"cannot {what} {host_path}: {reason_of(cause)}") from cause


def machine_type(host: HostRoot) -> str:
    """Return the machine's model, empty if it is unknown. Blocks briefly."""
    return _text_or_nothing(host, "/sys/class/dmi/id/product_name")


def boot_id() -> str:
    """Return Linux's id of this boot, empty if it is unknown. Blocks briefly."""
    return _text_or_nothing(HostRoot(), "/proc/sys/kernel/random/boot_id")


def _text_or_nothing(host: HostRoot, path: str) -> str:
    try:
        return host.read_text(path) or ""
    except HostError:
        return ""
