"""One agent per kubelet: whoever serves a kubelet's plugin directory holds a lock on it, and a second agent waits.

Two agents would register the same resources in turn, and the kubelet would forget one of them each time. The lock is on
the directory itself, which all pods and processes of a node share, and leaves no file behind; it goes with its process.
"""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import structlog

from ..aio.clock import Clock
from ..hostfs.directory_lock import DirectoryLock

log = structlog.get_logger(__name__)


class NodeLock:
    """The right to serve a directory: `take` waits for it, `keep` looks after it, `release` gives it back.

    `waited` tells of a wait.

    Where the system cannot lock, it is given at once: what is wrong with the directory shows when sockets are made.
    """

    def __init__(self, directory: Path, *, waiting: Callable[[str], None], period: float, clock: Clock) -> None:
        self.waited = False
        self._directory = directory
        self._waiting = waiting  # is told what is waited for, and "" at the end
        self._period = period  # seconds between attempts
        self._clock = clock
        self._lock = DirectoryLock(directory)

    async def take(self, stopping: asyncio.Event) -> bool:
        """Wait until the directory is there and nobody else serves it. False when `stopping` came first."""
        told = ""
        while not stopping.is_set():
            trouble = await asyncio.to_thread(self._take)
            if not trouble:
                if told:
                    log.info("the wait is over", directory=str(self._directory))
                    self._waiting("")
                return True
            if trouble != told:
                told, self.waited = trouble, True
                log.warning("waiting", reason=trouble)
                self._waiting(trouble)
            with contextlib.suppress(TimeoutError):
                async with self._clock.timeout(self._period):
                    await stopping.wait()
        return False

    async def keep(self) -> bool:
        """Whether the directory is still ours: one that was removed and made again is locked anew.

        False when another agent was faster.
        """
        try:
            return await asyncio.to_thread(self._lock.take)
        except OSError:  # there is none at the moment
            return True

    def release(self) -> None:
        """Let others have it for good; safe to call twice."""
        self._lock.close()

    def _take(self) -> str:
        try:
            return "" if self._lock.take() else f"another vdev serves {self._directory}; it must end first"
        except OSError:
            return f"no directory {self._directory}; is --kubelet-dir right, and mounted?"
