"""The schema as a JSON Schema document, for editors."""

import json
from typing import Any

from .schema import ConfigFile

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of the configuration file."""
    schema: dict[str, Any] = {"$schema": DIALECT, "title": "vdev configuration"}
    return schema | {key: value for key, value in ConfigFile.model_json_schema().items() if key != "title"}


def json_schema_text() -> str:
    """The schema as text, the same on every run."""
    return json.dumps(json_schema(), indent=2, sort_keys=True) + "\n"
