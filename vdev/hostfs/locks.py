"""Locks on a directory. They create no file, and the kernel releases them when the process ends."""

import contextlib
import fcntl
import os
import threading
from pathlib import Path

import structlog

from ..errors import reason_of

log = structlog.get_logger(__name__)


class DirectoryLock:
    """A lock: `take` acquires or keeps it, `release` releases it, `close` releases it for good. Blocks briefly.

    The lock is on the directory itself, not on its path: a directory that is removed and created again is not locked,
    so call `take` regularly.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._held: int | None = None
        self._closed = False
        self._one_at_a_time = threading.Lock()

    def take(self) -> bool:
        """Return whether this object has the lock. If the file system cannot lock, True until `close`.

        Raises OSError if the directory cannot be opened; an existing lock is then kept.
        """
        with self._one_at_a_time:
            if self._closed:
                return False
            with contextlib.suppress(OSError):  # the directory does not exist
                # While the locked directory is open, no other one gets its inode number.
                if self._held is not None and os.path.samestat(os.stat(self._directory), os.fstat(self._held)):
                    return True
            handle = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                return False
            except OSError as failed:
                log.debug("directory not locked", directory=str(self._directory), reason=reason_of(failed))
            self.release()
            self._held = handle
            return True

    def close(self) -> None:
        """Release the lock for good. A later `take` returns False, also in another thread."""
        with self._one_at_a_time:
            self._closed = True
            self.release()

    def release(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            os.close(held)
