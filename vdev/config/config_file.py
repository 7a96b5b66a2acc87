"""The whole file."""

import json
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from ..faults.rules import Faults
from ..model.fleet import Fleet
from ..model.nvidia_forms import Imex
from ..model.scalars import Section, Word, refuse
from ..model.spec import Flags, Node, Resources, Sharing
from ..model.telemetry import Telemetry
from .entry import Entry


def _version(value: object) -> str:
    if value in ("v1", ""):
        return "v1"
    return refuse(f"unknown version: {value}", "the only version is v1")


class ConfigFile(Section):
    """A vdev configuration, version v1."""

    version: Annotated[str, BeforeValidator(_version), WithJsonSchema({"const": "v1"})] = "v1"
    """Version of the file format."""
    flags: Flags = Flags()
    devices: list[Entry] = []
    """The devices, the nodes that have them, and the extended resources that advertise them."""
    sharing: Sharing = Sharing()
    faults: Faults = Faults()
    resources: Resources = Resources()
    node: Node = Node()
    telemetry: Telemetry | None = None
    """Sensors of devices, and where their metrics are served. Default: no sensors."""
    fleet: Fleet | None = None
    """Nodes without a kubelet; only for `vdev fleet`."""
    imex: Imex | None = None
    """NVIDIA's; accepted and not used."""
    presets_dir: Word | None = None
    """Directory with your own preset files, relative to this file."""


# --- its JSON Schema, for editors -------------------------------------------------------------------------------------

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of the configuration file."""
    return {**_closed(ConfigFile.model_json_schema()), "$schema": DIALECT, "title": "vdev configuration"}


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
