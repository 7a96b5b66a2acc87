"""The configuration files: read, judged, and what became of each reading.

A configuration is bad when the files prove it wrong; then the last good one stays, and the log, the status and the
metric say so. Reading happens in a thread.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from ..config import Loaded
from ..core.problem import Problem
from ..errors import ConfigError
from ..observe.metrics import Metrics

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class ReloadStatus:
    """What a person wants to know of reloads; times are seconds since the epoch, 0 for never."""

    applied_at: float = 0.0
    failed_at: float = 0.0
    applied: int = 0
    failed: int = 0
    problems: tuple[Problem, ...] = ()  # of the last reading, when it was bad

    @property
    def last_was_good(self) -> bool:
        """Whether the last configuration read is the one in force."""
        return self.applied_at >= self.failed_at


class ConfigSource:
    """The files, and the history of their readings."""

    def __init__(self, load: Callable[..., Loaded], metrics: Metrics) -> None:
        self.status = ReloadStatus()
        self._load = load
        self._metrics = metrics

    async def read(self, *, partial: bool = False) -> Loaded:
        """Read the files. Raises ConfigError; with `partial` wrong entries are dropped and reported instead."""
        return await asyncio.to_thread(self._load, partial=partial)

    def applied(self) -> None:
        """The last reading is in force now."""
        self.status.applied_at, self.status.problems = time.time(), ()
        self.status.applied += 1
        self._metrics.reloads.labels("applied").inc()
        self._metrics.reload_ok.set(1)
        self._metrics.reload_time.set(self.status.applied_at)

    def unchanged(self) -> None:
        """The last reading says what is in force already."""
        if not self.status.last_was_good:
            log.info("configuration is good again, and as it was")
            self.applied()

    def refused(self, bad: ConfigError) -> None:
        """The last reading is bad; said once per set of problems, since an editor may touch a file often."""
        problems = tuple(problem for problem in bad.problems if isinstance(problem, Problem))
        self._metrics.reloads.labels("refused").inc()
        self._metrics.reload_ok.set(0)
        if self.status.last_was_good or problems != self.status.problems:
            log.error("configuration refused; the last good one stays", problems=[str(problem) for problem in problems])
        self.status.failed_at, self.status.problems = time.time(), problems
        self.status.failed += 1


def directories(files: Sequence[Path]) -> frozenset[Path]:
    """The directories to watch for changes of the files.

    The directory and not the file: editors rename a new file over it, and a ConfigMap's files are links through
    `..data`, which is swapped. Where a file is a link, its target's directory counts too.
    """
    return frozenset(each for path in files for each in (path.absolute().parent, path.resolve().parent))
