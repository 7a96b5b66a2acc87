"""Reading a file that somebody else may have put there: only a plain file of bounded size, nothing that can hang."""

import os
import stat
from pathlib import Path

from ..errors import HostError, reason_of

_LEAST = 4096  # bytes that are read at a time, of what does not tell its size
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFCHR: "a device node",
    stat.S_IFBLK: "a device node",
    stat.S_IFSOCK: "a socket",
    stat.S_IFIFO: "a pipe",
}


def read_plain(path: Path, *, limit: int, follow: bool = True) -> bytes | None:
    """The content of a plain file of at most `limit` bytes; None when nothing is there. Blocks, but never on a pipe.

    With `follow` a link to a plain file counts as one. Raises HostError for anything else, and for what is too large
    or cannot be read.
    """
    try:
        _must_be_plain(path, os.stat(path, follow_symlinks=follow).st_mode)  # opening a device may do something
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
        with open(os.open(path, flags), "rb", buffering=0) as file:
            found = os.fstat(file.fileno())  # another file may have taken its place since
            _must_be_plain(path, found.st_mode)
            data, step = b"", max(found.st_size, _LEAST) + 1  # no more than that, for which room is made
            while found.st_size <= limit >= len(data) and (more := file.read(step)):
                data += more
    except FileNotFoundError:
        if follow and os.path.islink(path):
            raise HostError(f"cannot read {path}: it is a symbolic link to nothing") from None
        return None
    except OSError as cause:
        raise HostError(f"cannot read {path}: {reason_of(cause)}") from cause
    if found.st_size > limit or len(data) > limit:
        raise HostError(f"cannot read {path}: it has more than {limit} bytes")
    return data


def _must_be_plain(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise HostError(f"cannot read {path}: it is {_KINDS.get(stat.S_IFMT(mode), 'not a plain file')}")
