"""Resource names with placeholders: one resource for each name of the devices."""

from pathlib import Path

import pytest

from tests.kit.fakehost import FakeHost
from tests.kit.refused import refusals
from vdev import config, discovery
from vdev.model.spec import Spec
from vdev.planning.inventory import arrange
from vdev.planning.resources import Inventory


def spec(text: str) -> Spec:
    return config.load_text(text).spec


def arranged(text: str | Spec, fake: FakeHost) -> Inventory:
    known = spec(text) if isinstance(text, str) else text
    found = {entry.name: discovery.discover(entry, fake.host, node="n").devices for entry in known.entries}
    return arrange(known, "n", found)


def listed(inventory: Inventory) -> dict[str, list[str]]:
    return {name: [slot.id for slot in resource.slots] for name, resource in inventory.resources.items()}


@pytest.fixture
def fake(tmp_path: Path) -> FakeHost:
    fake = FakeHost(tmp_path)
    for number, name in enumerate(("video0", "video1", "net/tun", "odd.one")):
        fake.node(name, f"81:{number}")
    return fake


NODES = """
devices:
  - {name: video, resource: "acme.dev/{attributes.below}", glob: "/dev/video*"}
  - {name: rest, resource: "acme.dev/{attributes.below}", glob: [{path: "/dev/**"}], exclude: ["/dev/video*"]}
"""
SHARED = """
sharing:
  timeSlicing:
    resources: [{name: "acme.dev/{attributes.below}", devices: [video], replicas: 2}]
"""


def test_each_node_has_its_own_resource(fake: FakeHost) -> None:
    """Characters that are not allowed in a name become '_'."""
    assert {
        "acme.dev/video0": ["video-video0"],
        "acme.dev/video1": ["video-video1"],
        "acme.dev/net_tun": ["rest-net-tun-39904eb5"],
        "acme.dev/odd_one": ["rest-odd.one"],
    } == listed(arranged(NODES, fake))


def test_a_sharing_item_is_for_all_names_of_a_template(fake: FakeHost) -> None:
    """It shares the devices of the entries that it lists."""
    found = listed(arranged(NODES + SHARED, fake))

    assert ["video-video0::0", "video-video0::1"] == found["acme.dev/video0"]
    assert ["video-video1::0", "video-video1::1"] == found["acme.dev/video1"]
    assert ["rest-odd.one"] == found["acme.dev/odd_one"]


def test_rename_by_default(fake: FakeHost) -> None:
    """Each resource has its own new name."""
    text = NODES + SHARED.replace("timeSlicing:", "timeSlicing:\n    renameByDefault: true")

    assert ["acme.dev/video0.shared", "acme.dev/video1.shared"] == [
        name for name in listed(arranged(text, fake)) if "video" in name
    ]


def test_devices_with_the_same_name_are_one_resource(fake: FakeHost) -> None:
    """They may be of several entries, also of one without placeholders."""
    text = """
devices:
  - {name: a, resource: "acme.dev/n{numa}", virtual: {count: 3, numa: [0, 1, 0]}}
  - {name: b, resource: acme.dev/n0, virtual: {count: 1}}
"""
    inventory = arranged(text, fake)

    assert {"acme.dev/n0": ["a-0", "a-2", "b-0"], "acme.dev/n1": ["a-1"]} == listed(inventory)
    assert ["acme.dev/n0", "acme.dev/n0"] == [
        entry.resource for entry in inventory.resources["acme.dev/n0"].entries.values()
    ]


def test_a_device_with_an_invalid_name_is_left_out(fake: FakeHost) -> None:
    """The error names the device; other devices are not affected."""
    fake.node("-")

    inventory = arranged('devices: [{name: a, resource: "acme.dev/{attributes.below}", glob: "/dev/[v-]*"}]', fake)

    assert ["acme.dev/video0", "acme.dev/video1"] == list(inventory.resources)
    (problem,) = [str(each) for each in inventory.problems]
    assert ": a-5754d847 has no resource: acme.dev/{attributes.below} would be 'acme.dev/-' for it" in problem


def test_invalid_templates(subtests):
    cases = [
        ("{name}/x", "must begin with a domain without placeholders, such as example.com/{index}"),
        ("acme.dev/{indx}", "unknown placeholder {indx}"),
        ("acme.dev/{profile}", "{profile} cannot be part of a resource's name; expected {index}, {id}"),
        ("acme.dev/_{index}", "may hold letters, digits"),
        ("acme.dev/{attributes.speed}", "unknown attribute 'speed'; the device's attributes: model"),
    ]
    for resource, expected in cases:
        with subtests.test(resource=resource):
            text = f'devices: [{{name: a, resource: "{resource}", virtual: {{attributes: {{model: x}}}}}}]'

            assert expected in "\n".join(refusals(text))
