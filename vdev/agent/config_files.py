"""The configuration files: which ones are read, and the result of each reading.

If the files have errors, the last good configuration stays, and log, status and metrics say so. At the start, the last
good one is that of an earlier process. Files are read in a thread.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from ..aio.clock import PRODUCTION_TIMING, Clock, Timing
from ..config import FileTexts, Loaded, file_choice
from ..errors import ConfigError
from ..hostfs import root
from ..hostfs.files import is_directory
from ..model.problem import Problem, error
from ..observe.metrics import Metrics
from .node_objects import NodeObject

log = structlog.get_logger(__name__)


class NodeLabel:
    """The first of several labels that the node has."""

    def __init__(self, node: NodeObject, *labels: str) -> None:
        self.value = ""  # the last known one, empty if the node has none of the labels
        self.key = labels[0]
        self.trouble = ""  # why the node cannot be read
        self.answered = False  # whether the value is known, or the API server will certainly not answer
        self._node = node
        self._labels = labels

    async def read(self) -> bool:
        """Ask the API server; return whether the label changed. If it does not answer, the last value stays."""
        await self._node.read()
        return self._update()

    def follow(self, on_change: Callable[[], object]) -> None:
        """Call `on_change` whenever the label changes, or becomes known for the first time."""

        def update() -> None:
            if self._update():
                on_change()

        self._node.subscribe(update)

    def _update(self) -> bool:
        given = {key: value for key in self._labels if (value := self._node.labels.get(key))}
        key, value = next(iter(given.items()), (self._labels[0], ""))
        trouble = str(self._node.trouble or "")
        if trouble and trouble != self.trouble:
            write = log.warning if self._node.has_server else log.info  # without an account, no label was intended
            write("node label not readable; choosing by the node's name", label=key, reason=trouble)
        elif self.trouble and not trouble:
            log.info("node label readable again", label=key, value=value)
        is_first = not self.answered and not self._node.unanswered
        changed = is_first or (key, value) != (self.key, self.value)
        self.key, self.value, self.trouble = key, value, trouble
        self.answered = self.answered or is_first
        return changed


_ATTEMPTS = 3  # readings before the first choice, if the API server does not answer
_BEFORE = "it was chosen before this start, and the API server has not told the node's label yet"


@dataclass(frozen=True, slots=True)
class Why:
    """The file that was chosen from a directory, and the reason in a few words."""

    file: str
    reason: str


@dataclass(frozen=True, slots=True)
class Chosen:
    """The files to read."""

    files: tuple[Path, ...] = ()
    why: tuple[Why, ...] = ()  # the reason for each file from a directory


async def _none() -> Collection[Path]:
    return ()


class FileChooser:
    """Chooses the files of this node, at each reading again.

    `label` is followed once a directory is given, and `on_change` is called when it changes. `last` returns the files
    that an earlier process read: they are chosen until the API server answers.
    """

    def __init__(
        self,
        given: Sequence[Path],
        node: str,
        *,
        label: NodeLabel | None = None,
        last: Callable[[], Awaitable[Collection[Path]]] = _none,
        on_change: Callable[[], object] = lambda: None,
        timing: Timing = PRODUCTION_TIMING,
    ) -> None:
        self.given = tuple(given)
        self.chosen = Chosen()
        self._node = node
        self._label = label
        self._last = last
        self._before: Collection[Path] = ()
        self._on_change = on_change
        self._intervals, self._clock = timing
        self._uses_label = False

    async def choose(self) -> Chosen:
        """Choose the files. Raises ConfigError if a directory has none for this node."""
        directories = await asyncio.to_thread(lambda: frozenset(filter(is_directory, self.given)))
        if directories and self._label is not None and not self._uses_label:
            self._uses_label = True
            self._before = await asyncio.to_thread(_in, directories, await self._last())
            await self._first_reading(self._label)
            self._label.follow(self._on_change)
        chosen = await asyncio.to_thread(self._choose, directories) if directories else Chosen(self.given)
        if chosen != self.chosen:
            for why in chosen.why:
                log.info("configuration file chosen", file=why.file, by=why.reason)
        self.chosen = chosen
        return chosen

    async def _first_reading(self, label: NodeLabel) -> None:
        """Read the label before the first choice, with some patience, because the choice depends on it.

        If the choice of an earlier process is known, one attempt is enough.
        """
        if self._before:
            with contextlib.suppress(TimeoutError):
                async with self._clock.timeout(self._intervals.retry_label):
                    await label.read()
            return
        for _ in range(_ATTEMPTS):
            await label.read()
            if label.answered:
                return
            await self._clock.sleep(self._intervals.retry_label)

    def _choose(self, directories: frozenset[Path]) -> Chosen:
        files, reasons, problems = [], [], []
        key, value, trouble = file_choice.LABEL, "", ""
        if self._label is not None:
            key, value, trouble = self._label.key, self._label.value, self._label.trouble
        for path in self.given:
            if path not in directories:
                files.append(path)
                continue
            names = _names(path)
            before = [name for name in names if path / name in self._before]
            if before and self._label is not None and not self._label.answered:
                files.append(path / before[0])
                reasons.append(Why(before[0], _BEFORE))
                continue
            found = file_choice.choose(names, node=self._node, label=value, key=key)
            doubt = f" ({trouble})" if trouble else ""
            if found.name:
                files.append(path / found.name)
                reasons.append(Why(found.name, found.why + doubt))
            else:
                problems.append(error(str(path), found.why + doubt))
        if problems:
            raise ConfigError(tuple(problems))
        return Chosen(tuple(files), tuple(reasons))


def _in(directories: Collection[Path], files: Collection[Path]) -> frozenset[Path]:
    """Return the files that are in one of the directories."""
    return frozenset(path for path in files if path.parent in directories and path.is_file())


def _names(directory: Path) -> list[str]:
    try:
        return [path.name for path in directory.iterdir() if path.is_file()]
    except OSError as failed:
        raise ConfigError((error(str(directory), f"the directory cannot be read: {failed.strerror}"),)) from failed


_REMEMBERED = 20  # readings in the history


@dataclass(frozen=True, slots=True)
class ConfigReading:
    """The result of one reading, at a time in seconds since the epoch."""

    at: float
    result: str  # "applied" or "refused"
    summary: str
    devices: Mapping[str, int] | None = None  # listed by each resource; None if nothing new was applied


@dataclass(slots=True)
class ReloadStatus:
    """The results of all readings; times are seconds since the epoch, 0 for never."""

    last_was_good: bool = True  # the configuration that was read last is in force
    kept_at: float = 0.0  # when an earlier process kept the configuration in force, if the start failed
    applied_at: float = 0.0
    failed_at: float = 0.0
    applied: int = 0
    failed: int = 0
    problems: tuple[Problem, ...] = ()  # of the last reading, when it was bad
    history: deque[ConfigReading] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))  # the newest first

    @property
    def summary(self) -> str:
        """The errors of the last reading in a line, empty if there were none."""
        return _in_a_line(self.problems)


class ConfigSource:
    """Reads the files, and keeps the history; `load` and `load_again` are those of `Options`."""

    def __init__(
        self,
        chooser: FileChooser,
        load: Callable[..., Loaded],
        load_again: Callable[[FileTexts], Loaded],
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self.status = ReloadStatus()
        self.chooser = chooser
        self.in_force = Chosen()  # the files of the last good reading
        self.files: set[Path] = set()  # that the last reading read, with presets and layouts
        self.good: FileTexts | None = None  # the texts of the last reading without any error, if there was one
        self.left_out: tuple[Problem, ...] = ()  # the errors of a first reading of which only the good part is in force
        self._load = load
        self._load_again = load_again
        self._metrics = metrics
        self._clock = clock

    async def read_first(self) -> Loaded:
        """Read the files, or their good part if failOnInitError is false. Raises ConfigError."""
        try:
            return await self.read()
        except ConfigError:
            loaded = await self.read(partial=True)
            if loaded.errors and loaded.spec.flags.fail_on_init_error:
                raise
            return loaded

    async def read(self, *, partial: bool = False) -> Loaded:
        """Read the files. Raises ConfigError; with `partial` wrong entries are dropped and reported instead."""
        chosen = await self.chooser.choose()
        try:
            loaded = await asyncio.to_thread(self._load, chosen.files, partial=partial)
        except ConfigError as bad:
            named = (each.place.file for each in bad.problems if each.place)
            self.files |= {Path(file) for file in named if "/" in file}  # flags and variables have none
            raise
        self.files = {*chosen.files, *map(Path, loaded.texts.taken)}
        return loaded

    async def read_again(self, texts: FileTexts) -> Loaded:
        """Load the texts of an earlier process. Raises ConfigError without places, which are not in today's files."""
        try:
            return await asyncio.to_thread(self._load_again, texts)
        except ConfigError as bad:
            first = _in_a_line(bad.problems)
            raise ConfigError((error("", f"the last good configuration is refused as well: {first}"),)) from bad

    def applied(self, loaded: Loaded, summary: str, devices: Mapping[str, int] | None = None) -> None:
        """Record that the last reading is in force; `devices` are counts by resource."""
        self.in_force, self.left_out = self.chooser.chosen, loaded.errors
        if not loaded.errors:
            self.good = loaded.texts
        self.status.last_was_good, self.status.kept_at = True, 0.0
        self.status.applied_at, self.status.problems = self._clock.wall(), loaded.errors
        self.status.applied += 1
        self.status.history.appendleft(ConfigReading(self.status.applied_at, "applied", summary, devices))
        self._metrics.reloads.labels("applied").inc()
        self._metrics.reload_ok.set(not loaded.errors)
        self._metrics.reload_time.set(self.status.applied_at)

    def fell_back(self, texts: FileTexts, kept_at: float, bad: ConfigError) -> None:
        """Record that the first reading is bad, and the configuration kept at `kept_at` is in force."""
        self.in_force = Chosen(tuple(Path(each.file) for each in texts.files))
        self.status.applied_at = self.status.kept_at = kept_at
        self._metrics.reload_time.set(kept_at)
        self.refused(bad, "configuration refused; the last good one, kept from before the start, is used instead")

    def unchanged(self, loaded: Loaded) -> None:
        """Record that the last reading equals the configuration in force."""
        if self.status.last_was_good and not self.left_out:
            self.in_force, self.good = self.chooser.chosen, loaded.texts
        else:
            log.info("configuration is good again, and equals the one in force")
            self.applied(loaded, "good again, without a change")

    def broke_off(self) -> None:
        """Record that reading failed for a reason outside the files; the retrier reports the reason."""
        self.status.last_was_good, self.status.failed_at = False, self._clock.wall()
        self._metrics.reload_ok.set(0)

    def refused(self, bad: ConfigError, event: str = "configuration refused; the last good one stays") -> None:
        """Record that the last reading is bad. The same errors are logged once, because an editor may write often."""
        self._metrics.reloads.labels("refused").inc()
        self._metrics.reload_ok.set(0)
        is_news = self.status.last_was_good or bad.problems != self.status.problems
        self.status.last_was_good, self.status.failed_at, self.status.problems = False, self._clock.wall(), bad.problems
        self.status.failed += 1
        if is_news:
            log.error(event, problems=[str(problem) for problem in bad.problems])
            self.status.history.appendleft(ConfigReading(self.status.failed_at, "refused", self.status.summary))


def _in_a_line(problems: tuple[object, ...]) -> str:
    more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
    return f"{problems[0]}{more}" if problems else ""


def directories(paths: Iterable[Path]) -> frozenset[Path]:
    """Return the directories to watch for changes of the files, and of the directories that files are chosen from.

    The directory is watched and not the file, because editors rename a new file over it, and the files of a ConfigMap
    are links through `..data`, which is replaced. So the directory of every link on the way counts. Paths that cannot
    be read raise nothing here. Blocks.
    """
    found: set[Path] = set()
    for path in paths:
        way = root.follow_links(str(path.absolute()))
        found.update(map(Path, way.directories))
        if not way.is_loop:
            end = Path(way.path)
            found.add(end if is_directory(end) else end.parent)
    return frozenset(found)
