"""One agent per kubelet: whoever serves a kubelet's plugin directory holds a lock on it, and a second agent waits.

Two agents would register the same resources in turn, and the kubelet would forget one of them each time. The lock is on
the directory itself, which all pods and processes of a node share, and leaves no file behind; it goes with its process.
"""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)


class Claim:
    """The right to serve a directory: `take` waits for it, `release` gives it back. `waited` tells of a wait.

    Where the system cannot lock, it is given at once: what is wrong with the directory shows when sockets are made.
    """

    def __init__(self, directory: Path, *, waiting: Callable[[str], None], period: float) -> None:
        self.waited = False
        self._directory = directory
        self._waiting = waiting  # is told what is waited for, and "" at the end
        self._period = period  # seconds between attempts
        self._held: int | None = None

    async def take(self, stopping: asyncio.Event) -> bool:
        """Wait until the directory is there and nobody else serves it. False when `stopping` came first."""
        told = ""
        while not stopping.is_set():
            self._held, trouble = await asyncio.to_thread(_take, self._directory)
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
                async with asyncio.timeout(self._period):
                    await stopping.wait()
        return False

    def release(self) -> None:
        """Let others have it; safe to call twice."""
        held, self._held = self._held, None
        if held is not None:
            os.close(held)


def _take(directory: Path) -> tuple[int | None, str]:
    """The lock's file descriptor, or None where there are no locks, and why it cannot be had now."""
    try:
        held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return None, f"no directory {directory}; is --kubelet-dir right, and mounted?"
    except OSError as failed:
        log.debug("directory not locked", directory=str(directory), reason=failed.strerror)
        return None, ""
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        return None, f"another vdev serves {directory}; it must end first"
    except OSError as failed:
        os.close(held)
        log.debug("directory not locked", directory=str(directory), reason=failed.strerror)
        return None, ""
    return held, ""
