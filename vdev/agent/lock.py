"""One agent per kubelet: it locks the kubelet's plugin directory while it serves there; a second agent stands by.

Two agents would register the same resources in turn, and the kubelet would forget one of them each time. The lock is on
the directory itself, which all pods and processes of a node share. It leaves no file, and ends with its process.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import structlog

from ..aio.clock import Timing
from ..errors import reason_of
from ..hostfs.locks import DirectoryLock

log = structlog.get_logger(__name__)


class NodeLock:
    """The lock of the plugin directory: `take` waits for it, `is_ours` checks it, `release` ends it.

    If the file system cannot lock directories, `take` succeeds at once.
    """

    def __init__(self, directory: Path, *, on_change: Callable[[], None], timing: Timing) -> None:
        self.trouble = ""  # why `take` waits
        self.stand_by = ""  # the same, while it waits for another agent
        self._directory = directory
        self._on_change = on_change  # of `trouble`
        self._intervals, self._clock = timing
        self._lock = DirectoryLock(directory)
        self._taken = False
        self._served: os.stat_result | None = None  # the directory that another agent serves

    async def take(self) -> None:
        """Wait until the directory exists and no other agent serves it."""
        while True:
            before = self.trouble
            self.trouble, is_served, pause = await asyncio.to_thread(self._take)
            self.stand_by = self.trouble if is_served else ""
            if self.trouble != before:
                self._on_change()
            if not self.trouble:
                break
            if self.trouble != before:
                log.warning("waiting to serve the node", reason=self.trouble)
            await self._clock.sleep(pause)
        self._taken = True
        if before:
            log.info("serving the node", directory=str(self._directory))

    def is_ours(self) -> bool:
        """Whether the directory is still ours: one that was removed and made again is locked again. Blocks briefly.

        Returns False if another agent took the lock; always True before `take`.
        """
        if not self._taken:
            return True
        try:
            return self._lock.take()
        except OSError:  # it does not exist at the moment, or there is no free descriptor
            return True

    def release(self) -> None:
        """Unlock the directory permanently; safe to call twice."""
        self._lock.close()

    def _take(self) -> tuple[str, bool, float]:
        """Try to lock; return why that failed (empty: it did not), whether because of another agent, and a pause."""
        pause = self._intervals.look_at_lock
        try:
            found = os.stat(self._directory)
            if self._served is not None and not os.path.samestat(self._served, found):
                # The directory was made again under an agent that still has its streams open. A second registration
                # would break them, so that agent gets the time to lock the new directory.
                pause = self._intervals.directory_remade
            elif self._lock.take():
                return "", False, 0.0
        except (FileNotFoundError, NotADirectoryError):
            trial = f"to try vdev without a kubelet, start: vdev sim --kubelet-dir {self._directory.parent}"
            why = f"no directory {self._directory}; is --kubelet-dir right, and mounted? {trial}"
        except PermissionError:
            why = f"no permission to use {self._directory}; run vdev as root, or give it access"
        except OSError as failed:
            why = f"cannot lock the directory {self._directory}: {reason_of(failed)}; trying again"
        else:
            self._served = found
            return f"stand-by: another vdev serves {self._directory}; this one takes over when that ends", True, pause
        return why, False, self._intervals.look_for_directory
