"""Removing directories into which somebody else writes, such as a container."""

import itertools
import os
from pathlib import Path


def remove_tree(path: Path) -> None:
    """Remove a directory with all that is in it, however deeply it is nested; blocks. Raises OSError.

    A function that calls itself for each level would meet the limit of recursion. So each directory is moved beside
    `path` before it is emptied: nothing is ever deeper than one level, and no path gets longer. What is moved has the
    name of an unfinished file, `.name.*.tmp`; an earlier removal that was interrupted may have left such names.
    """
    numbers = itertools.count()
    left = [path]
    while left:
        directory = left.pop()
        with os.scandir(directory) as found:
            entries = list(found)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                names = (path.with_name(f".{path.name.lstrip('.')}.{number}.tmp") for number in numbers)
                moved = next(name for name in names if not os.path.lexists(name))
                os.rename(entry.path, moved)
                left.append(moved)
            else:
                os.unlink(entry.path)
        directory.rmdir()
