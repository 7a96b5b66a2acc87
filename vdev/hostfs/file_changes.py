"""The two changes that vdev makes to files of the host: it empties a plain file, and sets a mode.

The path is the host's. Links are followed below the host root and never out of it; each directory on the way is opened
without following a link, so that nobody can slip one in. Anything but a plain file (or, for a mode, a device node) is
refused without being opened. Blocks; every failure is a HostError.
"""

import os
import stat
from collections.abc import Callable

from ..errors import HostError, reason_of
from .root import HostRoot

_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def truncate(host: HostRoot, host_path: str) -> None:
    _amend(host, host_path, "empty", (stat.S_ISREG,), lambda own: os.truncate(own, 0))


def chmod(host: HostRoot, host_path: str, mode: int) -> None:
    kinds = (stat.S_ISREG, stat.S_ISCHR, stat.S_ISBLK)
    _amend(host, host_path, "set the mode of", kinds, lambda own: os.chmod(own, mode))


def _amend(
    host: HostRoot, host_path: str, what: str, kinds: tuple[Callable[[int], bool], ...], act: Callable[[str], None]
) -> None:
    if ".." in host_path.split("/"):
        raise HostError(f"refused to {what} {host_path}: it contains '..'")
    handles: list[int] = []
    try:
        handles.append(os.open(host.root, _STEP & ~os.O_NOFOLLOW))
        *above, last = [part for part in host.resolve(host_path).split("/") if part] or ["."]
        for part in above:
            handles.append(os.open(part, _STEP, dir_fd=handles[-1]))
        handles.append(os.open(last, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handles[-1]))
        found = os.fstat(handles[-1]).st_mode
        if not any(is_kind(found) for is_kind in kinds):
            wanted = "a plain file" if len(kinds) == 1 else "a plain file or a device node"
            raise HostError(f"refused to {what} {host_path}: it is not {wanted}")
        act(f"/proc/self/fd/{handles[-1]}")
    except OSError as cause:
        raise HostError(f"cannot {what} {host_path}: {reason_of(cause)}") from cause
    finally:
        for handle in handles:
            os.close(handle)
