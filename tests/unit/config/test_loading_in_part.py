"""Partial loading, and the sources of values."""

import json
import re
from pathlib import Path

import pytest

from vdev import config
from vdev.errors import ConfigError
from vdev.model.problem import Override

MIXED = """devices:
- {name: good, resource: a.b/good, virtual: {count: 2}}
- {name: broken, resource: a.b/broken, virtual: {count: x}}
- {name: clash, resource: a.b/clash, virtual: {preset: a30}, partitions: {0: [4g.24gb, 1g.6gb]}}
- {name: good, resource: a.b/twice, virtual: {}}
- {name: last, resource: a.b/last, virtual: {count: 3}}
sharing:
  timeSlicing:
    resources:
    - {name: a.b/good, replicas: 1}
    - {name: a.b/last, replicas: 2}
resources: {gpus: [{pattern: x}, {pattern: "*", name: gpu}]}
"""


def test_only_broken_items_are_left_out() -> None:
    """Entries, sharing items and patterns are independent; their errors are reported."""
    loaded = config.load_text(MIXED, "f", partial=True)
    assert ["good", "last"] == [entry.name for entry in loaded.spec.entries]
    assert loaded.spec.sharing is not None
    assert ["a.b/last"] == [item.name for item in loaded.spec.sharing.resources]
    assert ["*"] == [pattern.pattern for pattern in loaded.spec.resources.gpus]
    places = [str(problem).partition(": ")[0] for problem in loaded.errors]
    assert ["f:3:57", "f:4:88", "f:5:10", "f:10:34", "f:12:20"] == places


def test_later_items_keep_their_places() -> None:
    loaded = config.load_text(MIXED, "f", partial=True)
    assert ["f:2:3: devices[0]", "f:6:3: devices[4]"] == [entry.where for entry in loaded.spec.entries]
    count = next(origin for origin in loaded.origins() if origin.path.endswith("count") and origin.value == 3)
    assert "f:6:53" == count.source


def test_errors_outside_of_items_refuse_the_file(subtests):
    """They would change the meaning of the rest."""
    cases = [
        "flags: {migStrategy: x}",
        "version: v2",
        "unknown: 1",
        "devices: 4",
        "devices: []\nflags: {}\nflags: {}",
        "sharing: {timeSlicing: {resources: [{name: a, replicas: 2}]}, mps: {resources: [{name: a, replicas: 2}]}}\n"
        "devices: []",
        "devices: [",
    ]
    for text in cases:
        with subtests.test(text=text), pytest.raises(ConfigError):
            config.load_text(text, partial=True)


def test_a_block_without_a_valid_sharing_item_is_left_out() -> None:
    text = "sharing: {timeSlicing: {resources: [{name: a.b/c, replicas: 1}]}}"
    loaded = config.load_text(text, partial=True)
    assert loaded.spec.sharing is None or not loaded.spec.sharing.resources
    assert 1 == len(loaded.errors)


def test_each_value_has_its_source() -> None:
    """A flag overrides the environment, the environment the file, and the file the default."""
    overrides = {
        "flags.migStrategy": Override("single", "flag --mig-strategy"),
        "flags.plugin.deviceListStrategy": Override(("envvar", "cdi-cri"), "env DEVICE_LIST_STRATEGY"),
        "flags.plugin.passDeviceSpecs": Override(value=True, source="flag --pass-device-specs"),
    }
    text = "flags:\n  migStrategy: mixed\n  failOnInitError: false\n" + MIXED.partition("- {name: broken")[0]
    loaded = config.load_text(text, "f", overrides=overrides)
    sources = {origin.path: (origin.value, origin.source) for origin in loaded.origins()}
    assert ("single", "flag --mig-strategy") == sources["flags.migStrategy"]
    assert (False, "f:3:20") == sources["flags.failOnInitError"]
    assert ("cdi-cri", "env DEVICE_LIST_STRATEGY") == sources["flags.plugin.deviceListStrategy[1]"]
    assert (True, "flag --pass-device-specs") == sources["flags.plugin.passDeviceSpecs"]
    assert ("uuid", "default") == sources["flags.plugin.deviceIDStrategy"]
    assert (2, "f:5:53") == sources["devices[0].virtual.count"]


def test_a_rendered_configuration_loads_to_the_same() -> None:
    """The file has every key of the schema; the other values are defaults."""
    path = Path(__file__).parent / "everything.yaml"
    once = config.load([path])
    again = config.load_text(config.render(once.origins()), str(path))
    assert once.spec == again.spec


@pytest.mark.parametrize("key", ["x" * 200, "ends with:", "? x", "- y", "two\nlines", "a  # b", "yes", "/dev/x", "0o7"])
def test_a_rendered_key_is_read_as_it_was(key):
    virtual = {"attributes": {key: key, "other": "1"}, "node": {"pty": "script", "answers": {key: key}}}
    once = config.load_text(json.dumps({"devices": [{"name": "a", "resource": "a.b/c", "virtual": virtual}]}), "f")
    written = config.render(once.origins())
    assert once.spec == config.load_text(written, "f").spec
    assert [each.source for each in once.origins()] == re.findall("  # (default|f:[0-9:]+)$", written, re.MULTILINE)


@pytest.mark.parametrize(
    "extra",
    ["where: x", "partitions: {}, seed: 1", "virtual: {model: x}", "virtual: {name: x}", '"\\0": x', "layouts: {}"],
)
def test_a_file_cannot_set_what_is_derived(extra):
    with pytest.raises(ConfigError, match=r"unknown key|NUL"):
        config.load_text("devices: [{name: a, resource: a.b/c, usb: {vendor: '1050'}, " + extra + "}]", "f")


def test_a_single_item_has_places_like_a_list_of_one():
    text = "devices:\n- name: a\n  resource: a.b/c\n  usb: {vendor: '1050'}\n  onNodes: x\n"
    sources = {each.path: each.source for each in config.load_text(text, "f").origins()}
    assert ("f:4:17", "default") == (sources["devices[0].usb[0].vendor"], sources["devices[0].usb[0].permissions"])
    assert "f:5:12" == sources["devices[0].onNodes[0]"]


def test_a_short_form_has_its_place():
    text = "devices: [{name: a, resource: a.b/c, virtual: {}, advertise: dra, dra: {capacity: {x: 5}}}]"
    sources = {each.path: each.source for each in config.load_text(text, "f").origins()}
    assert "f:1:87" == sources["devices[0].dra.capacity.x.value"]
