"""Preset files by name: those of the user's directories first, then ours.

A file is read once and its text remembered, so that all entries of one reading see the same, and so that it can be read
again when the directories are not there.
"""

from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from ...core.model.place import Place
from ..document.loader import Text, decoded
from ..document.position import refusal

_SUFFIXES = (".yaml", ".yml")
_NONE: Mapping[str, Text] = {}


class PresetTexts:
    """The presets that one reading of the configuration can name. `known` are texts that stand for `dirs`."""

    def __init__(self, dirs: Sequence[Path] = (), *, known: Mapping[str, Text] = _NONE) -> None:
        self.own = dict(known)  # those of the user's that were asked for, by name
        self._dirs = tuple(dirs)

    @property
    def only_ours(self) -> bool:
        """Whether the user has no presets."""
        return not self._dirs and not self.own

    def names(self) -> tuple[str, ...]:
        """All presets that can be named, sorted. Raises ConfigError for a directory that cannot be read."""
        found = (name for directory in (*self._dirs, _ours()) for name in _files(directory))
        return tuple(sorted({*self.own, *found}))

    def find(self, name: str) -> Text | None:
        """The text of the preset, or None where there is none of that name. Raises ConfigError."""
        if name in self.own:
            return self.own[name]
        for directory in self._dirs:
            if file := _files(directory).get(name):
                self.own[name] = _read(file)
                return self.own[name]
        file = _files(_ours()).get(name)
        return _read(file) if file else None


def _ours() -> Traversable:
    return resources.files("vdev").joinpath("presets")


def _files(directory: Traversable) -> dict[str, Traversable]:
    try:
        entries = sorted(directory.iterdir(), key=lambda entry: entry.name, reverse=True)  # .yaml wins over .yml
    except OSError as error:
        message = f"the presets directory cannot be read: {error.strerror}"
        raise refusal(Place(str(directory)), message) from error
    return {entry.name.rpartition(".")[0]: entry for entry in entries if entry.name.endswith(_SUFFIXES)}


def _read(file: Traversable) -> Text:
    place = Place(str(file))
    try:
        if not file.is_file():  # a pipe would keep its reader waiting
            raise refusal(place, "is not a plain file")
        data = file.read_bytes()
    except OSError as error:
        raise refusal(place, f"cannot be read: {error.strerror}") from error
    return Text(str(file), decoded(data, str(file)))
