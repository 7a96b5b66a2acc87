"""The JSON Schema of the configuration file, for editors."""

import json
from typing import Any

from ..model.spec import Spec

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of the configuration file."""
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
    """The JSON Schema as text, the same on every run."""
    return json.dumps(json_schema(), indent=2, sort_keys=True) + "\n"
