"""The host's files: paths below the host root, atomic writes, locks, and file events.

`root` maps the host's paths to those of this process, `files` writes files atomically, and `watch` turns inotify events
(or polls) into async events. This package knows nothing about devices.
"""

from .files import read_plain, remove_unfinished, write_atomic
from .root import FileInfo, HostRoot

__all__ = ["FileInfo", "HostRoot", "read_plain", "remove_unfinished", "write_atomic"]
