"""The configuration files: read, judged, and what became of each reading.

A configuration is bad when the files prove it wrong; then the last good one stays, and the log, the status and the
metric say so. Reading happens in a thread.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from ...aio.clock import Clock
from ...config import Loaded
from ...core.model.problem import Problem
from ...errors import ConfigError
from ...hostfs import symlinks
from ...hostfs.look import is_directory
from ...observe.metrics import Metrics
from .chosen_files import Chosen, FileChooser

log = structlog.get_logger(__name__)


_REMEMBERED = 20  # readings in the history


@dataclass(frozen=True, slots=True)
class Reading:
    """What became of one reading, at a time in seconds since the epoch."""

    at: float
    result: str  # "applied" or "refused"
    summary: str


@dataclass(slots=True)
class ReloadStatus:
    """What a person wants to know of reloads; times are seconds since the epoch, 0 for never."""

    applied_at: float = 0.0
    failed_at: float = 0.0
    applied: int = 0
    failed: int = 0
    problems: tuple[Problem, ...] = ()  # of the last reading, when it was bad
    history: deque[Reading] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))  # the newest first

    @property
    def last_was_good(self) -> bool:
        """Whether the last configuration read is the one in force."""
        return self.applied_at >= self.failed_at


class ConfigSource:
    """The files, and the history of their readings."""

    def __init__(self, chooser: FileChooser, load: Callable[..., Loaded], metrics: Metrics, clock: Clock) -> None:
        self.status = ReloadStatus()
        self.chooser = chooser
        self.in_force = Chosen()  # the files of the last good reading
        self._load = load
        self._metrics = metrics
        self._clock = clock

    async def read(self, *, partial: bool = False) -> Loaded:
        """Read the files. Raises ConfigError; with `partial` wrong entries are dropped and reported instead."""
        chosen = await self.chooser.choose()
        try:
            return await asyncio.to_thread(self._load, chosen.files, partial=partial)
        except ConfigError:
            again = await self.chooser.choose()
            if again == chosen:
                raise
        return await asyncio.to_thread(self._load, again.files, partial=partial)  # they were swapped in between

    def applied(self, summary: str = "") -> None:
        """The last reading is in force now; `summary` says in a few words what it holds."""
        self.in_force = self.chooser.chosen
        self.status.applied_at, self.status.problems = self._clock.wall(), ()
        self.status.applied += 1
        self.status.history.appendleft(Reading(self.status.applied_at, "applied", summary))
        self._metrics.reloads.labels("applied").inc()
        self._metrics.reload_ok.set(1)
        self._metrics.reload_time.set(self.status.applied_at)

    def left_out(self, problems: tuple[Problem, ...]) -> None:
        """The first reading is in force, but for what is wrong in it: failOnInitError is false."""
        self.status.problems = problems
        log.error("part of the configuration is left out", problems=[str(problem) for problem in problems])

    def unchanged(self) -> None:
        """The last reading says what is in force already."""
        self.in_force = self.chooser.chosen
        if not self.status.last_was_good:
            log.info("configuration is good again, and as it was")
            self.applied("good again, and as it was")

    def broke_off(self) -> None:
        """Reading failed for a reason that is none of the files'; it is tried again, and says itself what is wrong."""
        self.status.failed_at = self._clock.wall()
        self._metrics.reload_ok.set(0)

    def refused(self, bad: ConfigError) -> None:
        """The last reading is bad; said once per set of problems, since an editor may touch a file often."""
        problems = tuple(problem for problem in bad.problems if isinstance(problem, Problem))
        self._metrics.reloads.labels("refused").inc()
        self._metrics.reload_ok.set(0)
        if self.status.last_was_good or problems != self.status.problems:
            log.error("configuration refused; the last good one stays", problems=[str(problem) for problem in problems])
            first = str(problems[0]) if problems else str(bad)
            more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
            self.status.history.appendleft(Reading(self._clock.wall(), "refused", first + more))
        self.status.failed_at, self.status.problems = self._clock.wall(), problems
        self.status.failed += 1


def directories(paths: Iterable[Path]) -> frozenset[Path]:
    """The directories to watch for changes of the files, and of the directories that files are chosen from.

    The directory and not the file: editors rename a new file over it, and a ConfigMap's files are links through
    `..data`, which is swapped. So the directory of every link on the way counts. What cannot be looked at raises
    nothing: reading it does. Blocks.
    """
    return frozenset(each for path in paths for each in _directories(path))


def _directories(path: Path) -> Iterator[Path]:
    way = symlinks.follow(str(path.absolute()), symlinks.read_link)
    yield from map(Path, way.directories)
    if not way.is_loop:
        end = Path(way.path)
        yield end if is_directory(end) else end.parent
