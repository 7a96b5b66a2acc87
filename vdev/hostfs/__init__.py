"""The host's files: where its `/dev` and `/sys` are read, atomic writes, and file events.

`root` maps the host's own paths to where this process sees them, `atomic` replaces files whole, `watch` turns inotify
(or a poll where there is none) and kernel uevents into async events. Nothing here knows what a device is for: that is
`discovery`.
"""

from .atomic import write_atomic
from .root import FileInfo, HostRoot
from .watch import Changes, Watcher

__all__ = ["Changes", "FileInfo", "HostRoot", "Watcher", "write_atomic"]
