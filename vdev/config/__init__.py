"""The configuration: files, environment and flags to one checked `Spec` (`model.spec`).

    loader, parser             text to a tree of values, each with its position
    validation                 tree to the models in `model` and `faults`; `messages` explains what is wrong
    resolution                 entries with the values of their preset (`presets`) and of their layouts (`layouts`)
    …_checks                   what must fit together
    pipeline                   all of it, in order
    origins                    where each value came from

`load` reads, `pipeline` does the rest, and every problem goes to a `ProblemReport`, so that all are shown at once.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import ConfigError
from ..faults.rules import FaultRule
from ..model.problem import Override
from ..model.scalars import Plain
from ..model.spec import Spec
from ..model.virtual import Preset
from .loader import Document, Text, Texts, join, read_file, read_text, text_of, trees
from .origins import render
from .parser import quoted
from .pipeline import Loaded, built, built_rules
from .presets import PresetTexts, load_preset
from .schema import json_schema, json_schema_text

__all__ = [
    "Loaded",
    "Plain",
    "Preset",
    "Text",
    "Texts",
    "json_schema",
    "json_schema_text",
    "load",
    "load_again",
    "load_rules",
    "load_text",
    "preset",
    "preset_names",
    "quoted",
    "render",
    "text_of",
    "trees",
]

_RULES = "a rule, such as {name: x, devices: [a/0], health: Unhealthy}, or a mapping with `rules`"
NO_OVERRIDES: Mapping[str, Override] = {}


def load(
    paths: Sequence[Path | str],
    *,
    overrides: Mapping[str, Override] = NO_OVERRIDES,
    preset_dirs: Sequence[Path] = (),
    partial: bool = False,
) -> Loaded:
    """Load and check the files, joined by their top-level sections.

    `overrides` maps paths such as `flags.migStrategy` to values that win over the files. With `partial`, items of
    `devices`, `sharing.*.resources` and `resources.*` that have errors are left out and reported: a broken entry never
    takes down its neighbours. Raises ConfigError with every problem found.
    """
    several = len(paths) > 1
    documents: list[Document] = []
    problems: list[object] = []
    for path in paths:
        try:
            documents.append(read_file(Path(path), may_be_empty=several))
        except ConfigError as bad:
            problems += bad.problems
    if problems:
        raise ConfigError(tuple(problems))
    if not any(document.root for document in documents):
        read_file(Path(paths[0]))  # raises the error that says so
    return built(join(documents), overrides, preset_dirs, partial=partial)


def load_again(texts: Texts, *, overrides: Mapping[str, Override] = NO_OVERRIDES) -> Loaded:
    """As `load`, from the texts of what was loaded once; nothing is read. Raises ConfigError."""
    several = len(texts.files) > 1
    documents = [read_text(each.text, each.file, may_be_empty=several) for each in texts.files]
    return built(join(documents), overrides, (), partial=False, known=texts)


def load_text(
    text: str,
    name: str = "<text>",
    *,
    overrides: Mapping[str, Override] = NO_OVERRIDES,
    preset_dirs: Sequence[Path] = (),
    partial: bool = False,
) -> Loaded:
    """As `load`, for the text of one file. Raises ConfigError."""
    return built(read_text(text, name), overrides, preset_dirs, partial=partial)


def load_rules(text: str, name: str, spec: Spec) -> tuple[FaultRule, ...]:
    """The fault rules of a text that stands beside the configuration `spec`: `rules` with a list, or a single rule.

    Without a seed of its own it has that of the configuration. Raises ConfigError.
    """
    return built_rules(read_text(text, name, form=_RULES), spec)


def preset_names(dirs: Sequence[Path] = ()) -> tuple[str, ...]:
    """All presets, those of the user's directories included, sorted. Raises ConfigError."""
    return PresetTexts(dirs).names()


def preset(name: str, dirs: Sequence[Path] = ()) -> Preset:
    """The preset of that name, of the user's directories or ours. Raises ConfigError."""
    return load_preset(name, PresetTexts(dirs))
