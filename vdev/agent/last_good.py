"""The file that keeps the last good configuration, for a start that finds the files bad.

It holds the texts that the configuration was read from, and not what became of them: the next vdev reads them as it
reads files, under the flags of its own. Other `--config-file` arguments ask for another configuration, and what is kept
is no answer to that; which file is chosen from a directory is part of what is kept.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from ..aio.clock import Timing
from ..config import Text, Texts
from ..errors import ConfigError, HostError
from ..model.problem import error
from ..planning.plan import Plan
from .applier import Output
from .state_file import Owner, RecordError, StateFile, StateKeeper

VERSION = 1


@dataclass(frozen=True, slots=True)
class Kept:
    """A configuration that was good, and since when it was in force (seconds since the epoch)."""

    texts: Texts
    at: float


@dataclass(frozen=True, slots=True)
class _Row:
    """What stands in the file. `given` are the paths of --config-file."""

    given: tuple[str, ...]
    at: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    files: Annotated[tuple[Text, ...], Field(min_length=1)]
    presets: dict[str, Text]
    layouts: dict[str, Text]


_ROW: TypeAdapter[_Row] = TypeAdapter(_Row)
_ROW_KEYS = tuple(field.name for field in fields(_Row))


class LastGood(StateKeeper, Output):
    """Keeps what `current` says in `directory`; None: nothing is kept. `given` are the paths of --config-file.

    `current` returns the texts of the configuration in force, or None where that is not good as a whole.
    """

    name = "keeping the configuration"

    def __init__(
        self,
        directory: Path | None,
        owner: Owner,
        given: Sequence[Path],
        *,
        current: Callable[[], Texts | None],
        timing: Timing,
    ) -> None:
        super().__init__(StateFile.within(directory, "config", owner, version=VERSION, timing=timing))
        self._given = tuple(str(path.absolute()) for path in given)
        self._current = current
        self._clock = timing.clock
        self._kept: Texts | None = None  # what is on disk, once that is known

    async def read(self) -> Kept | None:
        """What an earlier process kept; None where there is nothing. Raises ConfigError where it is of no use."""
        if self._file is None:
            return None
        try:
            found = await self._file.read()
            return None if found is None else self._decoded(found)
        except (HostError, RecordError) as wrong:
            problem = error(str(self.path), f"the last good configuration is not used instead: {wrong}")
            raise ConfigError((problem,)) from wrong

    async def files(self) -> frozenset[Path]:
        """The files that an earlier process read; none where that is not known."""
        try:
            kept = await self.read()
        except ConfigError:  # said where it is needed
            return frozenset()
        return frozenset(Path(each.file) for each in kept.texts.files) if kept else frozenset()

    async def settle(self, _plan: Plan) -> None:
        """Write down the configuration where it is a new one, or the file is gone. Raises HostError."""
        texts = self._current()
        if self._file is None or texts is None or (texts == self._kept and await self._file.stands()):
            return
        written = await asyncio.to_thread(self._write, self._file, texts)
        self._kept = texts
        if written:
            self._file.sync_soon()  # so that it survives a power cut

    def _write(self, file: StateFile, texts: Texts) -> bool:
        """Whether it had to be written."""
        if self._is_there(file, texts):
            return False
        presets = {name: _encoded(preset) for name, preset in texts.presets.items()}
        layouts = {path: _encoded(layout) for path, layout in texts.layouts.items()}
        row = {
            "given": self._given,
            "at": self._clock.wall(),
            "files": [*map(_encoded, texts.files)],
            "presets": presets,
            "layouts": layouts,
        }
        file.write({name: json.dumps(value) for name, value in row.items()})
        return True

    def _is_there(self, file: StateFile, texts: Texts) -> bool:
        try:
            found = file.read_now()
            return found is not None and self._decoded(found).texts == texts
        except (HostError, RecordError):  # it is of no use to anybody
            return False

    def _decoded(self, found: dict[str, Any]) -> Kept:
        try:
            kept = {"layouts": {}} | found  # which older versions did not know
            row = _ROW.validate_python({name: kept.get(name) for name in _ROW_KEYS})
        except ValidationError as wrong:
            raise RecordError("the file is damaged") from wrong
        if row.given != self._given:
            raise RecordError(f"it was kept for --config-file {', '.join(row.given)}")
        return Kept(Texts(row.files, row.presets, row.layouts), row.at)


def _encoded(text: Text) -> dict[str, str]:
    return {"file": text.file, "text": text.text}
