"""Preset files by name: those of the user's directories first, then those that come with vdev.

A file is read once and its text remembered, so that all entries of one reading see the same, and so that it can be read
again when the directories no longer exist.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from ..errors import ConfigError
from ..model.problem import Place, did_you_mean, listed
from ..model.virtual import Preset
from .links import device_links, numa_nodes
from .loader import Text as FileText
from .loader import decoded, read_text
from .messages import ProblemReport, checked
from .parser import refusal
from .partitions import check_partitioning

_SUFFIXES = (".yaml", ".yml")
_NONE: Mapping[str, FileText] = {}


class PresetTexts:
    """The presets that one reading of the configuration can name. `known` are texts that stand for `dirs`."""

    def __init__(self, dirs: Sequence[Path] = (), *, known: Mapping[str, FileText] = _NONE) -> None:
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

    def find(self, name: str) -> FileText | None:
        """The text of the preset, or None where there is none of that name. Raises ConfigError."""
        if name in self.own:
            return self.own[name]
        for directory in self._dirs:
            if file := _files(directory).get(name):
                self.own[name] = _read_text(file)
                return self.own[name]
        file = _files(_ours()).get(name)
        return _read_text(file) if file else None


def _ours() -> Traversable:
    return resources.files("vdev").joinpath("presets")


def _files(directory: Traversable) -> dict[str, Traversable]:
    try:
        entries = sorted(directory.iterdir(), key=lambda entry: entry.name, reverse=True)  # .yaml wins over .yml
    except OSError as error:
        message = f"the presets directory cannot be read: {error.strerror}"
        raise refusal(Place(str(directory)), message) from error
    return {entry.name.rpartition(".")[0]: entry for entry in entries if entry.name.endswith(_SUFFIXES)}


def _read_text(file: Traversable) -> FileText:
    place = Place(str(file))
    try:
        if not file.is_file():  # a pipe would keep its reader waiting
            raise refusal(place, "is not a plain file")
        data = file.read_bytes()
    except OSError as error:
        raise refusal(place, f"cannot be read: {error.strerror}") from error
    return FileText(str(file), decoded(data, str(file)))


_MAKER = re.compile(r"(nvidia|amd|intel|google)[-_ ]", re.IGNORECASE)


class UnknownPresetError(ConfigError):
    """No preset has that name. `message` and `hint` say so without a place, which only the caller knows."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.message = f"unknown preset {name!r}"
        near = did_you_mean(_MAKER.sub("", name, count=1), known)
        self.hint = listed(known, near, lead="known:", command="vdev presets")
        super().__init__(refusal(Place(""), self.message, self.hint).problems)


def load_preset(name: str, texts: PresetTexts | None = None) -> Preset:
    """The preset of that name, of those that `texts` finds, or of ours.

    Raises ConfigError with every problem of the files that it takes, and UnknownPresetError.
    """
    return _packaged(name) if texts is None or texts.only_ours else _load(name, texts)


@cache  # our own files do not change
def _packaged(name: str) -> Preset:
    return _load(name, PresetTexts())


def _load(name: str, texts: PresetTexts) -> Preset:
    report, model = _read(name, texts)
    seen, of_base = [name], report
    while model.base is not None:
        document = of_base.document
        place = document.values.get(("base",), Place(document.files[0]))
        if model.base in seen:
            chain = " -> ".join((*seen, model.base))
            raise refusal(place, f"a preset cannot be based on itself: {chain}", path=("base",))
        seen.append(model.base)
        try:
            of_base, base = _read(model.base, texts)
        except UnknownPresetError as unknown:
            raise refusal(place, unknown.message, unknown.hint, path=("base",)) from None
        model = _over(base, model)
    return _preset(name, model, report)


def _read(name: str, texts: PresetTexts) -> tuple[ProblemReport, Preset]:
    found = texts.find(name)
    if found is None:
        raise UnknownPresetError(name, texts.names())
    report, model = checked(read_text(found.text, found.file), Preset)
    check_partitioning(model.partitioning, ("partitioning",), report)
    _refuse(report)
    return report, model


def _over(base: Preset, model: Preset) -> Preset:
    """The base with what the preset itself says in place of it; the result's base is the base's own."""
    own = {name: getattr(model, name) for name in model.model_fields_set - {"base"}}
    return base.model_copy(update={**own, "attributes": base.attributes | model.attributes})


def _preset(name: str, model: Preset, report: ProblemReport) -> Preset:
    if model.numa:
        numa_nodes(model.numa, model.count, ("numa",), report)
    pairs = device_links(model.links, model.count, ("links",), report, score=model.link_score)
    _refuse(report)
    return model.loaded(name, pairs)


def _refuse(report: ProblemReport) -> None:
    if report.problems:
        raise ConfigError(tuple(report.problems))
