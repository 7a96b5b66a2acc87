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

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import DictSchema

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


class _JsonSchema(GenerateJsonSchema):
    """Forbids unknown keys in mappings whose keys follow a pattern, which pydantic's schema allows."""

    def dict_schema(self, schema: DictSchema) -> JsonSchemaValue:
        found = super().dict_schema(schema)
        return {**found, "additionalProperties": False} if "patternProperties" in found else found


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema 2020-12 of the configuration file."""
    found = Spec.model_json_schema(schema_generator=_JsonSchema)
    return {**found, "$schema": _JsonSchema.schema_dialect, "title": "vdev configuration"}


def json_schema_text() -> str:
    """Return the JSON Schema as text, the same on every run."""
    return json.dumps(json_schema(), indent=2, sort_keys=True) + "\n"
