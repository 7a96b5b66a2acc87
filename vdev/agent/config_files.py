"""The configuration files: which ones are read, and the result of each reading.

If the files have errors, the last good configuration stays, and log, status and metrics say so. At the start, the last
good one is that of an earlier process. Files are read in a thread.
"""

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from .. import file_choice
from ..config import FileTexts, Loaded, load
from ..errors import ConfigError, HostError
from ..file_choice import LABELS, Choice
from ..hostfs import root
from ..model.problem import Problem, error

if TYPE_CHECKING:
    from .agent import Agent

log = structlog.get_logger(__name__)


_REMEMBERED = 20  # readings in the history
_BEFORE = "it was chosen before this start, and the node's label is not known yet"


class ConfigSource:
    """Chooses the files of this node, reads them, and keeps the history.

    The files are chosen at each reading. If a directory is given, the Node is watched, and the configuration is read
    again when the Node's label changes. Until the API server answers, the files of an earlier process are chosen.
    """

    def __init__(self, agent: "Agent") -> None:
        # The results of all readings; times are seconds since the epoch, 0 for never.
        self.last_was_good = True  # the configuration that was read last is in force
        self.kept_at = 0.0  # when an earlier process kept the configuration in force, if the start failed
        self.applied_at = self.failed_at = 0.0
        self.applied = self.failed = 0
        self.problems: tuple[Problem, ...] = ()  # of the last reading; if it was good, of the entries left out
        # Documents for the status, the newest first. "devices" are counts by resource; None if nothing new was applied.
        self.history: deque[Mapping[str, Any]] = deque(maxlen=_REMEMBERED)
        self.chosen: tuple[Choice, ...] = ()  # the files of the last reading
        self.in_force: tuple[Choice, ...] = ()  # the files of the last good reading
        self.directories: frozenset[Path] = frozenset()  # whose changes are a reason to read again
        self.good: FileTexts | None = None  # the texts of the last reading without any error, if there was one
        self._agent = agent
        self._node = agent.node_api.object
        options = agent.options
        self._given = options.config_files
        self._changes: Any = {"overrides": options.overrides, "preset_dirs": options.preset_dirs}
        self._metrics = agent.metrics
        self._intervals, self._clock = agent.options.timing
        self._files: set[Path] = set()  # that the last reading read, with presets and layouts
        self._follows_node = False  # from the first directory on
        self._kept: Collection[Path] = ()  # the files that an earlier process read
        self._labels: Mapping[str, str] = {}  # those of the Node that name a file
        self._is_known = False  # whether the labels of the Node are known, or there is no API server

    @property
    def summary(self) -> str:
        """The errors of the last reading in a line, empty if there were none."""
        return _in_a_line(self.problems)

    # --- the choice ---------------------------------------------------------------------------------------------------

    async def _choose(self) -> None:
        """Choose the files. Raises ConfigError if a directory has none for this node."""
        if not self._follows_node and await asyncio.to_thread(lambda: any(map(os.path.isdir, self._given))):
            self._follows_node = True
            with contextlib.suppress(ConfigError):  # it is reported if the configuration is needed
                if kept := await self._agent.state.kept_config():
                    self._kept = [Path(each.file) for each in kept.texts.files]
            await self._first_reading()
        chosen = await asyncio.to_thread(self._choices)
        if chosen != self.chosen:
            for each in chosen:
                if each.reason:
                    log.info("configuration file chosen", file=each.file.name, by=each.reason)
        self.chosen = chosen

    async def _first_reading(self) -> None:
        """Wait for the Node before the first choice, which depends on it.

        If the choice of an earlier process is known, a short time is enough.
        """
        has_before = await asyncio.to_thread(self._before)
        patience = self._intervals.know_label_again if has_before else self._intervals.know_label
        self._node.subscribe(self._look)
        with contextlib.suppress(TimeoutError):
            async with self._clock.timeout(patience):
                await self._node.answered()
        self._look()

    def _look(self) -> None:
        labels = {key: value for key, value in self._node.labels.items() if key in LABELS}
        is_known = self._is_known or self._node.is_known
        if (labels, is_known) != (self._labels, self._is_known):
            self._labels, self._is_known = labels, is_known
            self._agent.reload()

    def _choices(self) -> tuple[Choice, ...]:
        before = {} if self._is_known else self._before()
        paths = [before.get(path, path) for path in self._given]
        doubt = str(self._node.trouble or "") if self._follows_node else ""
        choices = file_choice.choose(paths, node=self._agent.options.node_name, labels=self._labels, doubt=doubt)
        return tuple(Choice(each.file, _BEFORE) if each.file in before.values() else each for each in choices)

    def _before(self) -> dict[Path, Path]:
        """Return the file that an earlier process read, by its directory. Blocks."""
        return {path.parent: path for path in self._kept if path.parent in self._given and path.is_file()}

    # --- reading ------------------------------------------------------------------------------------------------------

    async def find_directories(self) -> None:
        """Set `directories` by the links that lead to the files now."""
        chosen = (each.file for each in self.chosen)
        files = {*self._given, *chosen, *self._files}
        self.directories = await asyncio.to_thread(directories, files)

    async def read_first(self) -> Loaded:
        """Read the files, or their good part if failOnInitError is false. Raises ConfigError."""
        loaded = await self.read(partial=True)
        must_be_good = loaded.errors and loaded.spec.flags.fail_on_init_error
        return await self.read() if must_be_good else loaded

    async def read(self, *, partial: bool = False) -> Loaded:
        """Read the files. Raises ConfigError; with `partial` wrong entries are dropped and reported instead."""
        try:
            await self._choose()
            files = tuple(each.file for each in self.chosen)
            loaded = await asyncio.to_thread(load, files, partial=partial, **self._changes)
        except ConfigError as bad:
            named = (each.place.file for each in bad.problems if each.place)
            self._files |= {Path(file) for file in named if "/" in file}  # flags and variables have none
            raise
        else:
            used = (*loaded.texts.presets.values(), *loaded.texts.layouts.values())
            self._files = {Path(each.file) for each in used}
            return loaded
        finally:
            await self.find_directories()

    async def read_again(self, texts: FileTexts) -> Loaded:
        """Load the texts of an earlier process. Raises ConfigError without places, because the files have changed."""
        try:
            return await asyncio.to_thread(load, texts.files, texts=texts, **self._changes)
        except ConfigError as bad:
            first = _in_a_line(bad.problems)
            raise ConfigError((error("", f"the last good configuration is refused as well: {first}"),)) from bad

    def put_in_force(self, loaded: Loaded, devices: Mapping[str, int] | None) -> None:
        """Record that the last reading is in force; `devices` are counts by resource, None if nothing changed."""
        self.in_force = self.chosen
        if not loaded.errors:
            self.good = loaded.texts
        self.last_was_good, self.kept_at = True, 0.0
        self.applied_at, self.problems = self._clock.wall(), loaded.errors
        self.applied += 1
        summary = "good again, without a change"
        if devices is not None:
            summary = ", ".join(f"{name} {count}" for name, count in devices.items()) or "no devices"
        self._remember(self.applied_at, "applied", summary, devices)
        self._metrics.reloads.labels("applied").inc()
        self._metrics.reload_ok.set(not loaded.errors)
        self._metrics.reload_time.set(self.applied_at)

    def fell_back(self, texts: FileTexts, kept_at: float, bad: ConfigError) -> None:
        """Record that the first reading is bad, and the configuration kept at `kept_at` is in force."""
        self.in_force = tuple(Choice(Path(each.file)) for each in texts.files)
        self.applied_at = self.kept_at = kept_at
        self._metrics.reload_time.set(kept_at)
        self.refused(bad, "configuration refused; the last good one, kept from before the start, is used instead")

    def unchanged(self, loaded: Loaded) -> None:
        """Record that the last reading equals the configuration in force."""
        if self.last_was_good and not self.problems:
            self.in_force, self.good = self.chosen, loaded.texts
        else:
            log.info("configuration is good again, and equals the one in force")
            self.put_in_force(loaded, None)

    def broke_off(self) -> None:
        """Record that reading failed for a reason outside the files; the retrier reports the reason."""
        self.last_was_good, self.failed_at = False, self._clock.wall()
        self._metrics.reload_ok.set(0)

    def refused(self, bad: ConfigError, event: str = "configuration refused; the last good one stays") -> None:
        """Record that the last reading is bad. The same errors are logged once, because an editor may write often."""
        self._metrics.reloads.labels("refused").inc()
        self._metrics.reload_ok.set(0)
        is_news = self.last_was_good or bad.problems != self.problems
        self.last_was_good, self.failed_at, self.problems = False, self._clock.wall(), bad.problems
        self.failed += 1
        if is_news:
            log.error(event, problems=[str(problem) for problem in bad.problems])
            self._remember(self.failed_at, "refused", self.summary)

    def _remember(self, at: float, result: str, summary: str, devices: Mapping[str, int] | None = None) -> None:
        self.history.appendleft({"at": at, "result": result, "summary": summary, "devices": devices})


def _in_a_line(problems: tuple[object, ...]) -> str:
    more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
    return f"{problems[0]}{more}" if problems else ""


def directories(paths: Iterable[Path]) -> frozenset[Path]:
    """Return the directories to watch for changes of the files, and of the directories that files are chosen from.

    Files are not watched themselves, because editors rename a new file over the old one, and the files of a ConfigMap
    are links through `..data`, which is replaced. So the result includes the directory of every link on the path. Paths
    that cannot be read raise no exception. Blocks.
    """
    found: set[Path] = set()
    for path in paths:
        try:
            end, of_links = root.follow_links(str(path.absolute()))
        except HostError:  # a loop of links
            end, of_links = str(path.absolute()), []
        found.update(map(Path, of_links))
        found.add(Path(end) if os.path.isdir(end) else Path(end).parent)
    return frozenset(found)
