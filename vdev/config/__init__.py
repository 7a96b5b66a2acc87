"""Turns files, environment and flags into one checked `Spec` (`model.spec`).

    pipeline                   all of it in order: the tree to the models in `model` and `faults`, and entries with the
                               values of their preset (`presets`) and of their layouts (`partitions`)
    loader, parser             text to a tree of values, each with its position
    messages                   error messages for values, and the report of all problems
    entry_checks               checks of the keys of one entry against each other
    file_checks                checks of entries and sections against each other, with `fault_checks`
    origins                    where each value came from

Every problem goes to a `ProblemReport`, so that all are shown at once.
"""

import json
from typing import Any

from ..model.section import Plain
from ..model.spec import Spec
from ..model.virtual import Preset
from .loader import FileText, FileTexts, text_of, trees
from .origins import render
from .pipeline import Loaded, load, load_rules, load_text
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
    "load_preset",
    "load_rules",
    "load_text",
    "preset_names",
    "preset_of",
    "render",
    "text_of",
    "trees",
]

# --- the JSON Schema, for editors -------------------------------------------------------------------------------------

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema 2020-12 of the configuration file."""
    return {**_closed(Spec.model_json_schema()), "$schema": DIALECT, "title": "vdev configuration"}


def _closed(schema: Any) -> Any:
    """Forbid unknown keys in mappings whose keys follow a pattern, which pydantic's schema allows."""
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
