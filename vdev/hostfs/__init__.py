"""The host's files: where its `/dev` and `/sys` are read, atomic writes, and file events.

`root` maps the host's own paths to where this process sees them, `files` replaces files whole, `watch` turns
inotify (or a poll where there is none) and kernel uevents into async events. Nothing here knows what a device is for:
that is `discovery`. Commands that look once do without `watch`, which brings asyncio and inotify.
"""

from .files import read_plain, remove_unfinished, write_atomic
from .root import FileInfo, HostRoot

__all__ = ["FileInfo", "HostRoot", "read_plain", "remove_unfinished", "write_atomic"]
