"""The JSON Schema for editors: it is current and agrees with the loader."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from vdev import config
from vdev.errors import ConfigError

CONFIGS = Path(__file__).parents[3] / "configs"
PUBLISHED = CONFIGS / "vdev.schema.json"
FILES = sorted([*CONFIGS.rglob("*.yaml"), *CONFIGS.rglob("*.yml")])


@pytest.fixture(scope="session")
def validator() -> Any:
    return jsonschema.Draft202012Validator(json.loads(PUBLISHED.read_text()))


def test_the_published_schema_is_valid() -> None:
    schema = json.loads(PUBLISHED.read_text())
    assert jsonschema.Draft202012Validator is jsonschema.validators.validator_for(schema, default=None)
    jsonschema.Draft202012Validator.check_schema(schema)


def test_the_published_schema_is_current() -> None:
    """`make schema` writes it."""
    assert config.json_schema_text() == PUBLISHED.read_text()


def test_every_mapping_with_known_keys_is_closed_and_described() -> None:
    """Editors can mark unknown keys and describe known ones."""
    schema = config.json_schema()
    for name, part in {"file": schema, **schema["$defs"]}.items():
        if part.get("type") == "object" and "properties" in part:
            assert part["additionalProperties"] is False, name
            missing = [
                key for key, value in part["properties"].items() if "description" not in value and "$ref" not in value
            ]
            assert not missing, (name, missing)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_examples_are_valid_for_both(path: Path, validator: Any) -> None:
    """The schema and the loader accept each file under configs/."""
    document = yaml.safe_load(path.read_text())
    if not isinstance(document, dict) or document.keys() & {"kind", "mig-configs"}:
        pytest.skip("not a configuration but a Kubernetes object, or layouts that one names")
    assert [] == [error.message for error in validator.iter_errors(document)]
    config.load([path])


VIRTUAL = "devices: [{name: a, resource: example.com/a, virtual: {%s}}]"
GLOB = "devices: [{name: a, resource: example.com/a, glob: [{path: /dev/a, %s}]}]"
SHARED = "sharing: {timeSlicing: {resources: [{name: gpu, %s}]}}"


@pytest.mark.parametrize(
    "text",
    [
        "unknown: 1",
        "version: v2",
        "flags: []",
        "flags: {migStrategy: both}",
        "flags: {plugin: {deviceListStrategy: []}}",
        "flags: {nvidiaDriverRoot: x}",
        "devices: [{name: a, virtual: {}}]",
        "devices: [{name: A, resource: example.com/a, virtual: {}}]",
        "devices: [{name: a, resource: gpu, virtual: {}}]",
        "devices: [{name: a, resource: example.com/a}]",
        "devices: [{name: a, resource: example.com/a, virtual: {}, glob: /dev/a}]",
        "devices: [{name: a, resource: example.com/a, glob: []}]",
        "devices: [{name: a, resource: example.com/a, glob: dev}]",
        "devices: [{name: a, resource: example.com/a, usb: {vendor: 1050}}]",
        "devices: [{name: a, resource: example.com/a, usb: {vendor: xyz}}]",
        "devices: [{name: a, resource: example.com/a, sysfs: {class: drm, match: {a: 1}}}]",
        "devices: [{name: a, resource: example.com/a, sysfs: {class: drm, match: {a: {like: x}}}}]",
        "devices: [{name: a, resource: example.com/a, virtual: {}, partitions: {x: [y]}}]",
        "devices: [{name: a, resource: example.com/a, virtual: {}, partitions: {'0': 5}}]",
        VIRTUAL % "count: '4'",
        VIRTUAL % "count: 0",
        VIRTUAL % "memory: 16Q",
        VIRTUAL % "attributes: {a: [1]}",
        GLOB % "permissions: rwx",
        GLOB % "container_path: /x",
        "devices: [{name: a, resource: example.com/a, sysfs: {class: a/b}}]",
        "devices: [{name: a, resource: example.com/a, sysfs: {class: a, match: {/b: c}}}]",
        "devices: [{name: a, resource: example.com/a, sysfs: {class: a, match: {b: {exists: 'true'}}}}]",
        SHARED % "replicas: 1",
        SHARED % "replicas: 2, devices: some",
        SHARED % "replicas: 2, devices: [0, 0]",
        "sharing: {timeSlicing: {resources: []}}",
        "resources: {gpus: [{pattern: x}]}",
        "faults: {seed: x}",
    ],
)
def test_bad_documents_are_refused_by_both(text: str, validator: Any) -> None:
    assert not validator.is_valid(yaml.safe_load(text))
    with pytest.raises(ConfigError):
        config.load_text(text if text.startswith("devices") else f"{text}\ndevices: []")


@pytest.mark.parametrize(
    "text",
    [
        VIRTUAL % "count: 4, memory: 16Gi, numa: 0, attributes: {a: 1, b: true}",
        "devices: [{name: a, resource: example.com/a, glob: /dev/a, onNodes: x, exclude: /dev/b}]",
        "devices: [{name: a, resource: example.com/a, glob: {path: /dev/a}}]",
        "devices: [{name: a, resource: example.com/a, glob: [/dev/a, {path: /dev/b, optional: true}]}]",
        "devices: [{name: a, resource: example.com/a, usb: {vendor: '0x46D', class: '03'}}]",
        "devices: [{name: a, resource: example.com/a, sysfs: {bus: pci, match: {a: {ge: 4}, b: {in: [x]}}}}]",
        "devices: [{name: a, resource: example.com/a, sysfs: {class: drm, match: {a: {exists: true}, b: x}}}]",
        "devices: [{name: a, resource: example.com/a, virtual: {preset: a30}, partitions: {all: all-1g.6gb}}]",
        "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: [0, '0:1', GPU-x]}]}}",
        "flags: {plugin: {deviceListStrategy: 'envvar,cdi-cri'}, gfd: {sleepInterval: infinite}}",
    ],
)
def test_good_documents_are_valid_for_both(text: str, validator: Any) -> None:
    assert [] == [error.message for error in validator.iter_errors(yaml.safe_load(text))]
    config.load_text(text)
