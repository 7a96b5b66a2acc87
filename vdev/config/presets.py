"""Preset files by name: those of the user's directories first, then those that come with vdev.

A file is read once and its text remembered, so that all entries of one reading see the same, and so that it can be read
again when the directories no longer exist.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from ..errors import ConfigError
from ..model.problem import Place, did_you_mean, listed
from ..model.virtual import Preset
from .links import check_links, check_numa
from .loader import Text as FileText
from .loader import read_text, text_of
from .messages import ProblemReport, checked
from .parser import refusal
from .partitions import check_partitioning

_PACKAGED = Path(__file__).parents[1] / "presets"
_SUFFIXES = (".yaml", ".yml")
_NONE: Mapping[str, FileText] = {}


class PresetTexts:
    """The presets that one reading of the configuration can name. `known` are texts to use instead of `dirs`."""

    def __init__(self, dirs: Sequence[Path] = (), *, known: Mapping[str, FileText] = _NONE) -> None:
        self.own = dict(known)  # the user's presets that were asked for, by name
        self._dirs = tuple(dirs)

    @property
    def only_ours(self) -> bool:
        """Whether the user has no presets."""
        return not self._dirs and not self.own

    def names(self) -> tuple[str, ...]:
        """All presets that can be named, sorted. Raises ConfigError for a directory that cannot be read."""
        found = (name for directory in (*self._dirs, _PACKAGED) for name in _files(directory))
        return tuple(sorted({*self.own, *found}))

    def find(self, name: str) -> FileText | None:
        """Return the text of the preset, or None if no preset has that name. Raises ConfigError."""
        if name in self.own:
            return self.own[name]
        for directory in self._dirs:
            if file := _files(directory).get(name):
                self.own[name] = FileText(str(file), text_of(file))
                return self.own[name]
        file = _files(_PACKAGED).get(name)
        return FileText(str(file), text_of(file)) if file else None


def _files(directory: Path) -> dict[str, Path]:
    try:
        entries = sorted(directory.iterdir(), reverse=True)  # .yaml takes precedence over .yml
    except OSError as error:
        message = f"the presets directory cannot be read: {error.strerror}"
        raise refusal(Place(str(directory)), message) from error
    return {entry.stem: entry for entry in entries if entry.suffix in _SUFFIXES}


_MAKER = re.compile(r"(nvidia|amd|intel|google)[-_ ]", re.IGNORECASE)


class UnknownPresetError(ConfigError):
    """No preset has that name. `message` and `hint` have no place, which only the caller knows."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.message = f"unknown preset {name!r}"
        near = did_you_mean(_MAKER.sub("", name, count=1), known)
        self.hint = listed(known, near, lead="known:", command="vdev presets")
        super().__init__(refusal(Place(""), self.message, self.hint).problems)


def load_preset(name: str, texts: PresetTexts | None = None) -> Preset:
    """Return the preset of that name, of the presets that `texts` finds, or of those that come with vdev.
    Raises ConfigError with every problem of the files that it takes, and UnknownPresetError.
    """
    return _packaged(name) if texts is None or texts.only_ours else _load(name, texts)


@cache  # the files that come with vdev do not change
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
    """Return the base with the preset's own values over it; the result's `base` is that of the base."""
    own = {name: getattr(model, name) for name in model.model_fields_set - {"base"}}
    return base.model_copy(update={**own, "attributes": base.attributes | model.attributes})


def _preset(name: str, model: Preset, report: ProblemReport) -> Preset:
    if model.numa:
        check_numa(model.numa, model.count, ("numa",), report)
    check_links(model.links, model.count, ("links",), report)
    _refuse(report)
    return model.named(name)


def _refuse(report: ProblemReport) -> None:
    if report.problems:
        raise ConfigError(tuple(report.problems))
