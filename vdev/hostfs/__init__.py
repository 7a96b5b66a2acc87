"""The host's files: paths below the host root, atomic writes, locks, and file events.

`root` maps the host's own paths to where this process sees them, `files` replaces files as a whole, and `watch` turns
inotify (or a poll) into async events. Nothing here knows about devices.
"""

from .files import read_plain, remove_unfinished, write_atomic
from .root import FileInfo, HostRoot

__all__ = ["FileInfo", "HostRoot", "read_plain", "remove_unfinished", "write_atomic"]
