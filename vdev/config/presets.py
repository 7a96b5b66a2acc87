"""Preset files by name: those of the user's directories first, then those that come with vdev."""

import re
from functools import cache
from pathlib import Path

from ..errors import ConfigError
from ..model.problem import Place, did_you_mean, listed
from ..model.virtual import Preset
from .entry_checks import check_links, check_numa
from .loader import FileText, FileTexts, read_text, text_of
from .messages import ProblemReport, checked
from .parser import refusal
from .partitions import check_partitioning

_PACKAGED = Path(__file__).parents[1] / "presets"
_SUFFIXES = (".yaml", ".yml")


def preset_names(files: FileTexts | None = None) -> tuple[str, ...]:
    """Return the names of all presets, sorted. Raises ConfigError for a directory that cannot be read."""
    directories = (*(files.preset_dirs if files else ()), _PACKAGED)
    return tuple(sorted({*(files.presets if files else ()), *(name for each in directories for name in _files(each))}))


def _found(name: str, files: FileTexts) -> FileText | None:
    """Return the text of the preset, or None if no preset has that name. Raises ConfigError."""
    if name in files.presets:
        return files.presets[name]
    for directory in files.preset_dirs:
        if file := _files(directory).get(name):
            files.presets[name] = FileText(str(file), text_of(file))
            return files.presets[name]
    file = _files(_PACKAGED).get(name)
    return FileText(str(file), text_of(file)) if file else None


def _files(directory: Path) -> dict[str, Path]:
    try:
        entries = sorted(directory.iterdir(), reverse=True)  # .yaml takes precedence over .yml
    except OSError as error:
        message = f"the presets directory cannot be read: {error.strerror}"
        raise refusal(Place(str(directory)), message) from error
    return {entry.stem: entry for entry in entries if entry.suffix in _SUFFIXES}


_NOWHERE = Place("")
_MAKER = re.compile(r"(nvidia|amd|intel|google)[-_ ]", re.IGNORECASE)


@cache
def _packaged(name: str) -> Preset:
    return _load(name, FileTexts(), _NOWHERE)


def load_preset(name: str, files: FileTexts | None = None) -> Preset:
    """Return the preset of that name, from the user's files or from vdev. Packaged presets are cached.

    Raises ConfigError with every problem of its files. If no preset has the name, the problem has no place.
    """
    return _load(name, files, _NOWHERE) if files and (files.preset_dirs or files.presets) else _packaged(name)


def _load(name: str, files: FileTexts, at: Place, derived: tuple[str, ...] = ()) -> Preset:
    """Load a preset and its bases. `derived` are the presets based on it; the last one refers to it at `at`."""
    path = ("base",) if derived else ()
    if name in derived:
        chain = " -> ".join((*derived, name))
        raise refusal(at, f"a preset cannot be based on itself: {chain}", path=path)
    text = _found(name, files)
    if text is None:
        known = preset_names(files)
        near = did_you_mean(_MAKER.sub("", name, count=1), known)
        hint = listed(known, near, lead="known:", command="vdev presets")
        raise refusal(at, f"unknown preset {name!r}", hint, path=path)
    report, model = checked(read_text(text.text, text.file), Preset)
    if model.partitioning:
        check_partitioning(model.partitioning, report.at("partitioning"))
    _refuse(report)
    if model.base is not None:
        base = _load(model.base, files, report.place("base"), (*derived, name))
        attributes = base.attributes | model.attributes
        model = model.over(base).model_copy(update={"base": base.base, "attributes": attributes})
    if model.numa and not derived:
        check_numa(model.numa, model.count, report.at("numa"))
    if model.links and not derived:
        check_links(model.links, model.count, report.at("links"))
    _refuse(report)
    return model if derived else model.named(name)


@cache
def _by_product() -> dict[str, str]:
    found: dict[str, str] = {}
    for preset in map(load_preset, preset_names()):
        for key in ("pciDeviceId", "product", "model"):
            if not preset.count and (text := preset.attributes.get(key)):
                found.setdefault(_normal(text), preset.name)
    return found


def _normal(text: str) -> str:
    return text.lower().replace(" ", "-").removeprefix("nvidia-")


def preset_of(product: str) -> str:
    """Return the preset of a model by its product name, driver name or PCI id; empty if there is none."""
    return _by_product().get(_normal(product), "")


def _refuse(report: ProblemReport) -> None:
    if report.problems:
        raise ConfigError(tuple(report.problems))
