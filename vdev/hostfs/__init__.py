"""The host's files: where its `/dev` and `/sys` are read, atomic writes, and file events.

`root` maps the host's own paths to where this process sees them, `atomic_write` replaces files whole, `watch` turns
inotify (or a poll where there is none) and kernel uevents into async events. Nothing here knows what a device is for:
that is `discovery`.
"""

from typing import TYPE_CHECKING, Any

from .atomic_write import remove_unfinished, write_atomic
from .plain_file import read_plain
from .root import FileInfo, HostRoot

if TYPE_CHECKING:
    from .watch import Changes, Watcher

__all__ = ["Changes", "FileInfo", "HostRoot", "Watcher", "read_plain", "remove_unfinished", "write_atomic"]


def __getattr__(name: str) -> Any:
    """`watch` when it is asked for: it brings asyncio and inotify, which looking at a host once does without."""
    if name in ("Changes", "Watcher"):
        from . import watch

        return getattr(watch, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
