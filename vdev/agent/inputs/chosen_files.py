"""The configuration files of this node: those given, and for each directory given the one file that the node takes.

`core.file_choice` decides; this module reads the directory and, when there is one, the node's label. A choice that
cannot be made is a ConfigError, which the agent treats like a bad file: the last good one stays.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from ...aio.timing import PRODUCTION_TIMING, Timing
from ...core import file_choice
from ...core.model.problem import error
from ...errors import ConfigError
from ...hostfs.look import is_directory
from .node_label import NodeLabel

log = structlog.get_logger(__name__)

_ATTEMPTS = 3  # readings before the first choice, where the API server does not answer
_BEFORE = "it was chosen before this start, and the API server has not told the node's label yet"


@dataclass(frozen=True, slots=True)
class Why:
    """The file that was chosen from a directory, and the reason in a few words."""

    file: str
    reason: str


@dataclass(frozen=True, slots=True)
class Chosen:
    """The files to read, in order, and why those, for each directory among them."""

    files: tuple[Path, ...] = ()
    why: tuple[Why, ...] = ()


async def _none() -> Collection[Path]:
    return ()


class FileChooser:
    """Chooses again at each reading. `label` is the node's, which is followed once a directory is given.

    `on_change` is called when it is another one. `last` returns the files that an earlier process read: one of them is
    chosen until the API server tells the label.
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
        """The files as they are now. Raises ConfigError where a directory has none for this node."""
        directories = await asyncio.to_thread(lambda: frozenset(filter(is_directory, self.given)))
        if directories and self._label is not None and not self._uses_label:
            self._uses_label = True
            self._before = await asyncio.to_thread(_in, directories, await self._last())
            await self._first_reading(self._label)
            self._label.use(self._on_change)
        chosen = await asyncio.to_thread(self._choose, directories) if directories else Chosen(self.given)
        if chosen != self.chosen:
            for why in chosen.why:
                log.info("configuration file chosen", file=why.file, by=why.reason)
        self.chosen = chosen
        return chosen

    async def _first_reading(self, label: NodeLabel) -> None:
        """Read the label before the first choice, with some patience: a choice without it would be another one.

        If it is known what was chosen before, an API server that is well has enough time to answer, and no other.
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
    """Those files that are in one of the directories."""
    return frozenset(path for path in files if path.parent in directories and path.is_file())


def _names(directory: Path) -> list[str]:
    try:
        return [path.name for path in directory.iterdir() if path.is_file()]
    except OSError as failed:
        raise ConfigError((error(str(directory), f"the directory cannot be read: {failed.strerror}"),)) from failed
