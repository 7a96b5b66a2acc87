"""Devices in sysfs: conditions, nodes of children, ids, NUMA."""

from collections.abc import Callable

import pytest

from tests.kit.fakehost import FakeHost
from tests.kit.specs import made_entry
from vdev import discovery
from vdev.discovery import Found, Numbering
from vdev.model.entry import Container
from vdev.model.sources import AttributeTest, Sysfs

GPU = "pci0000:00/0000:00:01.0/0000:01:00.0"
CAMERA = "pci0000:00/0000:00:14.0/usb1/1-4"


Match = tuple[str, AttributeTest]


def where(attribute: str, operand: object, operator: str = "") -> tuple[str, AttributeTest]:
    return attribute, AttributeTest(operator, operand)


def find(fake: FakeHost, source: Sysfs, numbering: Numbering | None = None) -> Found:
    entry = made_entry("e", "example.com/e", sysfs=source)
    return discovery.discover(entry, fake.host, node="n", numbering=numbering)


def by_class(name: str, *match: Match) -> Sysfs:
    return Sysfs(**{"class": name, "match": dict(match)})


def by_bus(name: str, *match: Match, children: tuple[str, ...] = ()) -> Sysfs:
    return Sysfs(bus=name, match=dict(match), children=children)


def nodes(found: Found) -> dict[str, list[str]]:
    return {device.id: [node.host_path for node in device.nodes] for device in found.devices}


def test_a_camera_by_its_name_and_its_parents_vendor(desk: FakeHost) -> None:
    """`../../` goes from video0 via the USB interface to the USB device and skips the grouping directory."""
    source = by_class("video4linux", where("name", "HD *"), where("../../idVendor", "046d"), where("index", "0"))
    assert {"e_1-4-1.0": ["/dev/video0"]} == nodes(find(desk, source))


def test_a_replug_keeps_a_class_devices_id(desk: FakeHost) -> None:
    """Video0 and video1 become video5 and video6 in the same port."""
    source = by_class("video4linux", where("../../idVendor", "046d"))
    before = find(desk, source)
    desk.unplug(f"{CAMERA}/{'1-4:1.0/video4linux'}")
    assert () == find(desk, source).devices
    for number, index in ((5, 0), (6, 1)):
        desk.plug(
            f"{CAMERA}/1-4:1.0/video4linux/video{number}",
            **{"class": "video4linux", "index": index, "node": {"path": f"video{number}", "number": f"81:{number}"}},
        )
    after = find(desk, source)
    assert [device.id for device in before.devices] == [device.id for device in after.devices]
    assert [["/dev/video5"], ["/dev/video6"]] == list(nodes(after).values())


def test_conditions_on_pci_devices(subtests, server):
    """Ids, drivers, virtual functions, numbers, parents; the value of a link is its target's name."""
    cases = [
        ([where("vendor", "0x1002")], ["0000:01:00.0", "0000:81:00.0"]),
        ([where("vendor", "1002"), where("class", "0x03*")], ["0000:01:00.0", "0000:81:00.0"]),
        ([where("mem_info_vram_total", "16000000000", ">=")], ["0000:01:00.0"]),
        ([where("mem_info_vram_total", "17163091968", "<")], ["0000:81:00.0"]),
        ([where("driver", ("apex", "ice"), "in")], ["0000:02:00.0", "0000:86:00.0"]),
        (
            [where("driver", ("amdgpu", "pcieport", "vfio-pci"), "notIn")],
            ["0000:02:00.0", "0000:86:00.0", "0000:86:01.2"],
        ),
        ([where("physfn", True, "exists"), where("driver", "iavf")], ["0000:86:01.2"]),
        ([where("physfn/driver", "ice"), where("iommu_group", "42")], ["0000:86:01.1"]),
        ([where("sriov_numvfs", "0", ">")], ["0000:86:00.0"]),
        ([where("sriov_numvfs", True, "exists")], ["0000:86:00.0"]),
        ([where("../vendor", "0x8086"), where("vendor", "0x1ac1")], ["0000:02:00.0"]),
        ([where("drm", True, "exists")], ["0000:01:00.0", "0000:81:00.0"]),
        ([where("vendor", "five", ">=")], []),
        ([where("../../../../../../../../etc/hostname", "*")], []),
    ]
    for conditions, expected in cases:
        with subtests.test(conditions=conditions):
            found = find(server, by_bus("pci", *conditions))
            assert expected == [device.attributes["name"] for device in found.devices]


def test_a_candidate_has_a_result_for_each_condition(server: FakeHost) -> None:
    """`vdev plan` shows the expected and the actual values."""
    found = find(server, by_bus("pci", where("vendor", "0x1002"), where("sriov_numvfs", "0", ">")))
    told = {
        candidate.path.rpartition("/")[2]: [(check.condition, check.actual, check.ok) for check in candidate.checks]
        for candidate in found.candidates
    }
    assert [("vendor = 0x1002", "0x1002", True), ("sriov_numvfs > 0", "(absent)", False)] == told["0000:01:00.0"]
    assert [("vendor = 0x1002", "0x8086", False), ("sriov_numvfs > 0", "3", True)] == told["0000:86:00.0"]
    assert "bus pci has no device on this node that meets the conditions" == found.problems[0].message


def test_a_gpu_has_its_drm_nodes_and_numa(server: FakeHost) -> None:
    """It has card and render node, not the connector. If its own NUMA node is -1, the bridge's counts."""
    found = find(server, by_bus("pci", where("class", "0x03*"), children=("drm",)))
    assert {
        "e_0000-01-00.0": ["/dev/dri/card0", "/dev/dri/renderD128"],
        "e_0000-81-00.0": ["/dev/dri/card1", "/dev/dri/renderD129"],
    } == nodes(found)
    assert [(0,), (1,)] == [device.numa for device in found.devices]
    assert "/dev/dri" in found.watch


def test_a_virtual_function_on_vfio_has_the_nodes_of_its_group(server: FakeHost) -> None:
    found = find(server, by_bus("pci", where("driver", "vfio-pci"), children=("vfio",)))
    assert [["/dev/vfio/41", "/dev/vfio/vfio"], ["/dev/vfio/42", "/dev/vfio/vfio"]] == list(nodes(found).values())


def test_a_network_interface_has_a_name_and_no_node(server: FakeHost) -> None:
    """Templates use the name."""
    found = find(server, by_bus("pci", where("driver", "iavf"), children=("net",)))
    assert ("ens3f0v2", (), True) == (
        found.devices[0].attributes["net"],
        found.devices[0].nodes,
        found.devices[0].health.healthy,
    )


@pytest.mark.parametrize(
    ("break_it", "reason"),
    [
        (lambda fake: fake.remove("/dev/dri/renderD128"), "/dev/dri/renderD128 is missing"),
        (lambda fake: fake.remove(f"/sys/devices/{GPU}/drm"), "no drm device below 0000:01:00.0"),
    ],
)
def test_a_missing_child_makes_the_device_unhealthy(
    server: FakeHost, break_it: Callable[[FakeHost], None], reason: str
) -> None:
    """The directory in which the child may appear is watched."""
    break_it(server)
    found = find(server, by_bus("pci", where("device", "0x73bf"), children=("drm",)))
    assert [reason, ""] == [device.health.reason for device in found.devices]
    assert "/dev/dri" in found.watch


def test_a_missing_class_is_a_warning(server: FakeHost) -> None:
    """Its directory is watched, because a driver may create it."""
    found = find(server, by_class("nothing"))
    assert ["class nothing does not exist on this node"] == [problem.message for problem in found.problems]
    assert {"/sys/class/nothing"} == found.watch


@pytest.mark.parametrize(
    ("source", "container", "reason"),
    [
        (
            by_bus("pci", where("driver", "vfio-pci")),
            Container(),
            "0000:86:01.0 has no device node; give children or container, so that a pod gets something",
        ),
        (by_bus("pci", where("driver", "vfio-pci"), children=("vfio",)), Container(), ""),
        (by_bus("pci", where("driver", "vfio-pci")), Container(env={"VF": "{attributes.name}"}), ""),
        (by_class("net"), Container(), ""),
    ],
    ids=["nothing", "children", "container", "interface"],
)
def test_a_device_without_anything_for_a_container_is_unhealthy(
    server: FakeHost, source: Sysfs, container: Container, reason: str
) -> None:
    """It needs a node, an interface or the entry's own edits; a PCI function alone is not enough."""
    entry = made_entry("e", "example.com/e", sysfs=source, container=container)
    assert reason == discovery.discover(entry, server.host, node="n").devices[0].health.reason
