"""Following the symbolic links of a path one step at a time, as the kernel does it.

The caller says how to read a link, and so decides below which root the path lies.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field

_MAX_LINKS = 40  # the kernel's own limit for one path


@dataclass(slots=True)
class Way:
    """Where a path leads, and the directories of the links on the way there."""

    path: str = "/"
    directories: list[str] = field(default_factory=list)
    is_loop: bool = False  # more links than the kernel would follow; then `path` is only how far it got


def follow(path: str, read: Callable[[str], str], *, last: bool = True) -> Way:
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
