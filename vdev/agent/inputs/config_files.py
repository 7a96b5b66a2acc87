"""The configuration files: read, judged, and what became of each reading.

A configuration is bad when the files prove it wrong; then the last good one stays, and the log, the status and the
metric say so. At the start, the last good one is that of an earlier process. Reading happens in a thread.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from ...aio.clock import Clock
from ...config import Loaded, Texts
from ...core.model.problem import Problem, error
from ...core.spec import Spec
from ...errors import ConfigError
from ...hostfs import symlinks
from ...hostfs.look import is_directory
from ...observe.metrics import Metrics
from .chosen_files import Chosen, FileChooser

log = structlog.get_logger(__name__)


_REMEMBERED = 20  # readings in the history


@dataclass(frozen=True, slots=True)
class ConfigReading:
    """What became of one reading, at a time in seconds since the epoch."""

    at: float
    result: str  # "applied" or "refused"
    summary: str
    devices: Mapping[str, int] | None = None  # listed by each resource; None if nothing new was applied


@dataclass(slots=True)
class ReloadStatus:
    """What a person wants to know of reloads; times are seconds since the epoch, 0 for never.

    `last_was_good`: the last configuration read is the one in force. `kept_at` is when the one in force was kept by an
    earlier process, while it is that one because the files are bad since the start; else 0.
    """

    last_was_good: bool = True
    kept_at: float = 0.0
    applied_at: float = 0.0
    failed_at: float = 0.0
    applied: int = 0
    failed: int = 0
    problems: tuple[Problem, ...] = ()  # of the last reading, when it was bad
    history: deque[ConfigReading] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))  # the newest first

    @property
    def summary(self) -> str:
        """What was wrong with the last reading, in a line; empty when it was good."""
        return _in_a_line(self.problems)


class ConfigSource:
    """The files, and the history of their readings. `load` and `load_again` are those of `Options`."""

    def __init__(
        self,
        chooser: FileChooser,
        load: Callable[..., Loaded],
        load_again: Callable[[Texts], Loaded],
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self.status = ReloadStatus()
        self.chooser = chooser
        self.in_force = Chosen()  # the files of the last good reading
        self.files: set[Path] = set()  # all that the last reading read, presets and layouts as well
        self.good: Texts | None = None  # of the last good reading; None while none was good as a whole
        self.left_out: tuple[Problem, ...] = ()  # why only a part of the first reading is in force, while it is
        self._load = load
        self._load_again = load_again
        self._metrics = metrics
        self._clock = clock

    async def read_first(self) -> Loaded:
        """All that the files say, or the good part where they allow that themselves. Raises ConfigError."""
        try:
            return await self.read()
        except ConfigError:
            loaded = await self.read(partial=True)
            if loaded.errors and loaded.spec.flags.fail_on_init_error:
                raise
            return loaded

    async def read_later(self, spec: Spec) -> Loaded:
        """All that the files say; of files in force in part since the start, that part while they say the same `spec`.

        Raises ConfigError.
        """
        try:
            return await self.read()
        except ConfigError:
            if not self.left_out:
                raise
            loaded = await self.read(partial=True)
            if (loaded.spec, loaded.errors) != (spec, self.left_out):
                raise
            return loaded

    async def read(self, *, partial: bool = False) -> Loaded:
        """Read the files. Raises ConfigError; with `partial` wrong entries are dropped and reported instead."""
        chosen = await self.chooser.choose()
        try:
            return await self._read(chosen, partial=partial)
        except ConfigError:
            again = await self.chooser.choose()
            if again == chosen:
                raise
        return await self._read(again, partial=partial)  # they were swapped in between

    async def _read(self, chosen: Chosen, *, partial: bool) -> Loaded:
        try:
            loaded = await asyncio.to_thread(self._load, chosen.files, partial=partial)
        except ConfigError as bad:
            named = (each.place.file for each in bad.problems if isinstance(each, Problem) and each.place)
            self.files |= {Path(file) for file in named if "/" in file}  # flags and variables have none
            raise
        self.files = {*chosen.files, *map(Path, loaded.texts.taken)}
        return loaded

    async def read_again(self, texts: Texts) -> Loaded:
        """Load what an earlier process read. Raises ConfigError, in a sentence: its places are not in today's files."""
        try:
            return await asyncio.to_thread(self._load_again, texts)
        except ConfigError as bad:
            first = _in_a_line(bad.problems)
            raise ConfigError((error("", f"the last good configuration is refused as well: {first}"),)) from bad

    def applied(self, loaded: Loaded, summary: str, devices: Mapping[str, int] | None = None) -> None:
        """The last reading is in force now; `summary` says in a few words what it holds, `devices` how many of what."""
        self._in_force(loaded)
        self.status.last_was_good, self.status.kept_at = True, 0.0
        self.status.applied_at, self.status.problems = self._clock.wall(), loaded.errors
        self.status.applied += 1
        self.status.history.appendleft(ConfigReading(self.status.applied_at, "applied", summary, devices))
        self._metrics.reloads.labels("applied").inc()
        self._metrics.reload_ok.set(not loaded.errors)
        self._metrics.reload_time.set(self.status.applied_at)

    def _in_force(self, loaded: Loaded) -> None:
        self.in_force, self.left_out = self.chooser.chosen, loaded.errors
        if not loaded.errors:
            self.good = loaded.texts

    def fell_back(self, texts: Texts, kept_at: float, bad: ConfigError) -> None:
        """The first reading is bad, and what an earlier process kept at `kept_at` is in force."""
        self.in_force = Chosen(tuple(Path(each.file) for each in texts.files))
        self.status.applied_at = self.status.kept_at = kept_at
        self._metrics.reload_time.set(kept_at)
        self.refused(bad, "configuration refused; the last good one, kept from before the start, is used instead")

    def unchanged(self, loaded: Loaded) -> None:
        """The last reading says what is in force already."""
        if self.status.last_was_good and loaded.errors == self.left_out:
            self._in_force(loaded)
        elif loaded.errors:
            log.info("configuration is in force in part again, as it was")
            self.applied(loaded, "in part again, as it was")
        else:
            log.info("configuration is good again, and as it was")
            self.applied(loaded, "good again, and as it was")

    def broke_off(self) -> None:
        """Reading failed for a reason that is none of the files'; it is tried again, and says itself what is wrong."""
        self.status.last_was_good, self.status.failed_at = False, self._clock.wall()
        self._metrics.reload_ok.set(0)

    def refused(self, bad: ConfigError, event: str = "configuration refused; the last good one stays") -> None:
        """The last reading is bad; said once per set of problems, since an editor may touch a file often."""
        problems = tuple(problem for problem in bad.problems if isinstance(problem, Problem))
        self._metrics.reloads.labels("refused").inc()
        self._metrics.reload_ok.set(0)
        is_news = self.status.last_was_good or problems != self.status.problems
        self.status.last_was_good, self.status.failed_at, self.status.problems = False, self._clock.wall(), problems
        self.status.failed += 1
        if is_news:
            log.error(event, problems=[str(problem) for problem in problems])
            self.status.history.appendleft(ConfigReading(self.status.failed_at, "refused", self.status.summary))


def _in_a_line(problems: tuple[object, ...]) -> str:
    more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
    return f"{problems[0]}{more}" if problems else ""


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
