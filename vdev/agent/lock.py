"""One agent per kubelet: it locks the kubelet's plugin directory while it serves there; a second agent stands by.

Two agents would register the same resources in turn, and the kubelet would forget one of them each time. The lock is on
the directory itself, which all pods and processes of a node share, and leaves no file behind; it goes with its process.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import structlog

from ..aio.clock import Timing
from ..errors import reason_of
from ..hostfs.locks import DirectoryLock

log = structlog.get_logger(__name__)


class NodeLock:
    """The right to serve a directory: `take` waits for it, `stands` looks after it, `release` gives it back.

    `waited` tells of a wait; `stands_by` is true while another one serves. Who stands by is seen in the directory of
    DRA drivers, so that the one that serves knows at its end whether another takes over.

    Where the system cannot lock, it is given at once: what is wrong with the directory shows when sockets are made.
    """

    def __init__(self, directory: Path, *, waiting: Callable[[str], None], timing: Timing) -> None:
        self.waited = False
        self.stands_by = False
        self._directory = directory
        self._waiting = waiting  # is told what is waited for, and "" at the end
        self._intervals, self._clock = timing
        self._lock = DirectoryLock(directory)
        self._presence = DirectoryLock(directory.parent / "plugins_registry")
        self._is_ours = False
        self._served: tuple[int, int] | None = None  # the directory that another one serves, or had time to lock
        self._anew: tuple[int, int] | None = None  # the one that there is instead
        self._anew_at = 0.0  # since when

    async def take(self, stopping: asyncio.Event) -> bool:
        """Wait until the directory is there and nobody else serves it. False when `stopping` came first."""
        try:
            return await self._wait(stopping)
        finally:
            self._presence.release()

    async def is_awaited(self) -> bool:
        """Whether another agent stands by, to take over when this one ends."""
        if not self._is_ours or await asyncio.to_thread(self._show):
            self._presence.release()
            return False
        return True

    def _show(self) -> bool:
        """Be seen as one who stands by; false while another one is."""
        try:
            return self._presence.take()
        except OSError:  # there is no such directory
            return True

    async def _wait(self, stopping: asyncio.Event) -> bool:
        told = ""
        while not stopping.is_set():
            trouble, stands_by = await asyncio.to_thread(self._take)
            if not trouble:
                self._is_ours, self.stands_by = True, False
                if told:
                    log.info("the wait is over", directory=str(self._directory))
                    self._waiting("")
                return True
            if stands_by:
                await asyncio.to_thread(self._show)
            self.stands_by = stands_by
            if trouble != told:
                told, self.waited = trouble, True
                log.warning("waiting", reason=trouble)
                self._waiting(trouble)
            with contextlib.suppress(TimeoutError):
                async with self._clock.timeout(self._pause()):
                    await stopping.wait()
        return False

    def stands(self) -> bool:
        """Whether the directory is still ours: one that was removed and made again is locked anew. Blocks briefly.

        False when another agent was faster. Nothing is looked after that was never taken.
        """
        if not self._is_ours:
            return True
        try:
            return self._lock.take()
        except OSError:  # there is none at the moment, or no descriptor to open it with
            return True

    def release(self) -> None:
        """Let others have it for good; safe to call twice."""
        self._lock.close()

    def _pause(self) -> float:
        return self._intervals.look_at_lock if self.stands_by else self._intervals.look_for_directory

    def _take(self) -> tuple[str, bool]:
        """What keeps the directory from being ours, empty when it is, and whether that is another agent."""
        try:
            if self._lock.take(leave=self._is_left_to_others):
                return "", False
        except (FileNotFoundError, NotADirectoryError):
            trial = f"to try vdev without a kubelet, start: vdev sim --kubelet-dir {self._directory.parent}"
            return f"no directory {self._directory}; is --kubelet-dir right, and mounted? {trial}", False
        except OSError as failed:
            return f"cannot lock the directory {self._directory}: {reason_of(failed)}; trying again", False
        return f"stand-by: another vdev serves {self._directory}; this one takes over when that ends", True

    def _is_left_to_others(self, status: os.stat_result) -> bool:
        """Whether this directory was made again under an agent that serves, which needs a moment to lock it."""
        directory, now = (status.st_dev, status.st_ino), self._clock.now()
        if self._served not in (None, directory):
            if self._anew != directory:
                self._anew, self._anew_at = directory, now
            if now - self._anew_at < self._intervals.directory_anew:
                return True
        self._served = directory
        return False
