"""What a directory looked like, for file systems and platforms without events. Blocks."""

import os
from collections.abc import Hashable
from pathlib import Path

# File systems whose changes inotify does not report, or only those made on this machine: remote ones, the kernel's own.
_SILENT = frozenset(
    {"sysfs", "proc", "nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "virtiofs", "vboxsf", "fuse", "fuseblk"}
)


def identity(path: str | Path) -> Hashable:
    """Which directory stands at the path now; None when none does."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def content(path: str | Path) -> Hashable:
    """The directory and the names in it with what changes when they are written or replaced; None if it is missing."""
    try:
        with os.scandir(path) as entries:
            return identity(path), frozenset((entry.name, *_state(entry)) for entry in entries)
    except OSError:
        return None


def _state(entry: "os.DirEntry[str]") -> tuple[int, ...]:
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def is_silent(path: Path) -> bool:
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
