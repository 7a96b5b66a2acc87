"""Turns files, environment and flags into one checked `Spec` (`model.spec`).

    pipeline                   all of it in order, with the step from the tree to the models in `model` and `faults`
    loader, parser             text to a tree of values, each with its position
    messages                   error messages for values, and the report of all problems
    entry_checks               keys of one entry that must fit together
    resolution                 entries with the values of their preset (`presets`) and of their layouts (`partitions`)
    file_checks                entries and sections that must fit together, with `fault_checks`
    origins                    where each value came from

Every problem goes to a `ProblemReport`, so that all are shown at once.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..faults.rules import FaultRule
from ..model.problem import Override
from ..model.section import Plain
from ..model.spec import Spec
from ..model.virtual import Preset
from .loader import FileText, FileTexts, read_text, text_of, trees
from .origins import render
from .pipeline import Loaded, built, built_rules
from .presets import load_preset, preset_names, preset_of

__all__ = [
    "FileText",
    "FileTexts",
    "Loaded",
    "Plain",
    "Preset",
    "json_schema",
    "json_schema_text",
    "load",
    "load_again",
    "load_preset",
    "load_rules",
    "load_text",
    "preset_names",
    "preset_of",
    "render",
    "text_of",
    "trees",
]

NO_OVERRIDES: Mapping[str, Override] = {}


def load(
    paths: Sequence[Path | str],
    *,
    overrides: Mapping[str, Override] = NO_OVERRIDES,
    preset_dirs: Sequence[Path] = (),
    partial: bool = False,
) -> Loaded:
    """Load and check the files, joined by their top-level sections.

    `overrides` maps paths such as `flags.migStrategy` to values that take precedence over the files. With `partial`,
    items of `devices`, `sharing.*.resources` and `resources.*` with errors are left out and reported, and the others
    are served. Raises ConfigError with every problem found.
    """
    return built(list(map(Path, paths)), overrides, FileTexts(preset_dirs=tuple(preset_dirs)), partial=partial)


def load_again(texts: FileTexts, *, overrides: Mapping[str, Override] = NO_OVERRIDES) -> Loaded:
    """Like `load`, from the texts of an earlier reading and without files. Raises ConfigError."""
    return built(texts.files, overrides, texts)


def load_text(
    text: str,
    name: str = "<text>",
    *,
    overrides: Mapping[str, Override] = NO_OVERRIDES,
    preset_dirs: Sequence[Path] = (),
    partial: bool = False,
) -> Loaded:
    """Like `load`, for the text of one file. Raises ConfigError."""
    return built([FileText(name, text)], overrides, FileTexts(preset_dirs=tuple(preset_dirs)), partial=partial)


def load_rules(text: str, name: str, spec: Spec) -> tuple[FaultRule, ...]:
    """Load fault rules for the configuration `spec` from a text: a mapping with `rules`, or a single rule.

    The default seed is that of the configuration. Raises ConfigError.
    """
    return built_rules(read_text(text, name, has_rules=True), spec)


# --- its JSON Schema, for editors -------------------------------------------------------------------------------------

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema 2020-12 of the configuration file."""
    return {**_closed(Spec.model_json_schema()), "$schema": DIALECT, "title": "vdev configuration"}


def _closed(schema: Any) -> Any:
    """Forbid other keys in mappings whose keys follow a pattern; pydantic leaves that open."""
    match schema:
        case dict():
            inner = {key: _closed(value) for key, value in schema.items()}
            return {"additionalProperties": False, **inner} if "patternProperties" in inner else inner
        case list():
            return [_closed(item) for item in schema]
        case _:
            return schema


def json_schema_text() -> str:
    """Return the JSON Schema as text, the same on every run."""
    return json.dumps(json_schema(), indent=2, sort_keys=True) + "\n"
