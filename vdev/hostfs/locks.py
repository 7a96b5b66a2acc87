"""Locks on a directory, which leave no file behind and end with their process."""

import errno
import fcntl
import os
import threading
from pathlib import Path

import structlog

from ..errors import reason_of

log = structlog.get_logger(__name__)

_NOT_NOW = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EMFILE, errno.ENFILE, errno.ENOMEM})  # but perhaps later


class DirectoryLock:
    """`take` gets the lock or keeps it, `release` gives it up, `close` gives it up for good. Blocks briefly.

    The lock is on the directory itself, not on its path: a directory that is removed and made again is not locked. So
    `take` must be called again regularly.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._held: int | None = None
        self._closed = False
        self._one_at_a_time = threading.Lock()

    def take(self) -> bool:
        """Whether the lock is ours now. If the system cannot lock, it is until `close`.

        Raises OSError if the directory does not exist or the system lacks a resource; an existing lock is kept then.
        """
        with self._one_at_a_time:
            return not self._closed and self._take()

    def _take(self) -> bool:
        if self._is_current():
            return True
        handle = None
        try:
            handle = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as failed:
            if handle is not None:
                os.close(handle)
            elif failed.errno in _NOT_NOW:
                raise
            if isinstance(failed, BlockingIOError):
                return False
            log.debug("directory not locked", directory=str(self._directory), reason=reason_of(failed))
            return True
        self.release()
        self._held = handle
        return True

    def _is_current(self) -> bool:
        """Whether the path leads to the locked directory: while that is open, no other one has its inode number."""
        held = self._held
        if held is None:
            return False
        try:
            return os.path.samestat(os.stat(self._directory), os.fstat(held))
        except OSError:
            return False

    def close(self) -> None:
        """Give the lock up for good: a `take` in another thread does not get it any more."""
        with self._one_at_a_time:
            self._closed = True
            self.release()

    def release(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            os.close(held)
