"""Looks at paths that a person gave, without exceptions.

The methods of pathlib raise for names that are too long, for directories that must not be entered, and for failing
disks. Blocks.
"""

import os
from pathlib import Path

Stamp = tuple[int, int, int]


def exists(path: Path) -> bool:
    """Whether something is there, as far as this process can see."""
    return os.path.exists(path)


def is_directory(path: Path) -> bool:
    """Whether a directory is there, as far as this process can see."""
    return os.path.isdir(path)


def names(directory: Path) -> list[str]:
    """The names in a directory; none where it cannot be listed."""
    try:
        return os.listdir(directory)
    except OSError:
        return []


def listed(directory: Path) -> list[Path]:
    """What is in a directory; nothing where it cannot be listed."""
    return [directory / name for name in names(directory)]


def stamp(path: Path) -> Stamp | None:
    """What another file, or the same one written anew, would not have; None where there is no file."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
