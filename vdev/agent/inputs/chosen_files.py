"""The configuration files of this node: those given, and for each directory given the one file that the node takes.

`core.file_choice` decides; this module reads the directory and, when there is one, the node's label. A choice that
cannot be made is a ConfigError, which the agent treats like a bad file: the last good one stays.
"""

import asyncio
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from ...aio.clock import SYSTEM, Clock
from ...core import file_choice
from ...core.intervals import PRODUCTION, Intervals
from ...core.model.problem import error
from ...errors import ConfigError
from ...hostfs.look import is_directory

if TYPE_CHECKING:
    from .node_label import NodeLabel

log = structlog.get_logger(__name__)

_ATTEMPTS = 3  # readings before the first choice, where the API server does not answer


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


class FileChooser:
    """Chooses again at each reading. `label_of` makes the node's label, where a directory is given."""

    def __init__(
        self,
        given: Sequence[Path],
        node: str,
        *,
        label_of: "Callable[[str], NodeLabel] | None" = None,
        intervals: Intervals = PRODUCTION,
        clock: Clock = SYSTEM,
    ) -> None:
        self.given = tuple(given)
        self.chosen = Chosen()
        self._node = node
        self._label_of = label_of or functools.partial(_label_of, within=intervals.api_answer)
        self._intervals = intervals
        self._clock = clock
        self._label: NodeLabel | None = None

    async def choose(self) -> Chosen:
        """The files as they are now. Raises ConfigError where a directory has none for this node."""
        directories = await asyncio.to_thread(lambda: frozenset(filter(is_directory, self.given)))
        if directories and self._label is None:
            self._label = await asyncio.to_thread(self._label_of, self._node)
            await self._first_reading(self._label)
        chosen = await asyncio.to_thread(self._choose, directories) if directories else Chosen(self.given)
        if chosen != self.chosen:
            for why in chosen.why:
                log.info("configuration file chosen", file=why.file, by=why.reason)
        self.chosen = chosen
        return chosen

    async def follow_label(self, on_change: Callable[[], None]) -> None:
        """Read the label at a slow pace, for ever, and tell of its changes; idle without a directory."""
        while True:
            await self._clock.sleep(self._intervals.look_at_label)
            if self._label is not None and await self._label.read():
                on_change()

    async def _first_reading(self, label: "NodeLabel") -> None:
        """Read the label before the first choice, with some patience: a choice without it would be another one."""
        for _ in range(_ATTEMPTS):
            await label.read()
            if not label.unanswered:
                return
            await self._clock.sleep(self._intervals.retry_label)

    def _choose(self, directories: frozenset[Path]) -> Chosen:
        files, reasons, problems = [], [], []
        value, trouble = ("", "") if self._label is None else (self._label.value, self._label.trouble)
        for path in self.given:
            if path not in directories:
                files.append(path)
                continue
            found = file_choice.choose(_names(path), node=self._node, label=value)
            doubt = f" ({trouble})" if trouble else ""
            if found.name:
                files.append(path / found.name)
                reasons.append(Why(found.name, found.why + doubt))
            else:
                problems.append(error(str(path), found.why + doubt))
        if problems:
            raise ConfigError(tuple(problems))
        return Chosen(tuple(files), tuple(reasons))


def _label_of(node: str, *, within: float) -> "NodeLabel":
    from .node_label import Account, NodeLabel  # TLS and HTTP, which nodes with plain files do without

    return NodeLabel(node, file_choice.LABEL, Account.in_cluster(), within=within)


def _names(directory: Path) -> list[str]:
    try:
        return [path.name for path in directory.iterdir() if path.is_file()]
    except OSError as failed:
        raise ConfigError((error(str(directory), f"the directory cannot be read: {failed.strerror}"),)) from failed
