"""Entries that match the same node of the host: which entry gets it, and the reported problem."""

from pathlib import Path

import pytest

from tests.kit.fakehost import FakeHost
from vdev import config, discovery
from vdev.planning.inventory import arrange
from vdev.planning.resources import Inventory

ZIGBEE = "/dev/serial/by-id/*Zigbee*"


def planned(fake: FakeHost, tmp_path: Path, *entries: str) -> Inventory:
    """The inventory of this host with the entries `a`, `b` and so on, each with a resource of its name."""
    lines = [
        f"  - {{name: {name}, resource: example.com/{name}, {entry}}}"
        for name, entry in zip("abc", entries, strict=False)
    ]
    path = tmp_path / "vdev.yaml"
    path.write_text("\n".join(["version: v1", "devices:", *lines, ""]))
    spec = config.load([path]).spec
    found = {entry.name: discovery.discover(entry, fake.host, node="n") for entry in spec.entries}
    return arrange(spec, "n", {name: each.devices for name, each in found.items()})


def paths(stock: Inventory) -> dict[str, list[str]]:
    """The host paths of each entry's devices."""
    return {
        name.removeprefix("example.com/"): [slot.device.raw.paths[0].removeprefix("/dev/") for slot in resource.slots]
        for name, resource in stock.resources.items()
    }


@pytest.mark.parametrize(
    ("first", "second", "left", "told"),
    [
        (
            "glob: /dev/ttyUSB1",
            'glob: "/dev/ttyUSB*"',
            {"a": ["ttyUSB1"], "b": ["ttyUSB0", "ttyUSB2"]},
            "b-ttyUSB1 (/dev/ttyUSB1) is not advertised: "
            "it is the same device as a-ttyUSB1 (/dev/ttyUSB1) of the entry 'a', which comes first",
        ),
        (
            'glob: "/dev/ttyUSB*"',
            "glob: /dev/ttyUSB1",
            {"a": ["ttyUSB0", "ttyUSB1", "ttyUSB2"], "b": []},
            "b-ttyUSB1 (/dev/ttyUSB1) is not advertised: it is the same device as a-ttyUSB1",
        ),
        (
            'glob: "/dev/ttyUSB[2]"',
            f'glob: "{ZIGBEE}"',
            {"a": ["ttyUSB2"], "b": []},
            "it is the same device as a-ttyUSB2 (/dev/ttyUSB2) of the entry 'a'",
        ),
        (
            'usb: {vendor: "1a86", children: [tty]}',
            'usb: {class: "ff"}',
            {"a": ["bus/usb/001/010", "bus/usb/001/011"], "b": ["bus/usb/001/012"]},
            "b_1-1.1 (/dev/bus/usb/001/010) is not advertised (and 1 more like it): "
            "it is the same device as a_1-1.1 (/dev/bus/usb/001/010) of the entry 'a', which comes first",
        ),
        (
            'usb: {vendor: "1a86", children: [tty]}',
            'glob: "/dev/ttyUSB*"',
            {"a": ["bus/usb/001/010", "bus/usb/001/011"], "b": ["ttyUSB2"]},
            "b-ttyUSB0 (/dev/ttyUSB0) is not advertised (and 1 more like it): it is the same device as a_1-1.1 (",
        ),
        (
            'glob: "/dev/ttyUSB0"',
            'usb: {vendor: "1a86", children: [tty]}',
            {"a": ["ttyUSB0"], "b": ["bus/usb/001/011"]},
            "b_1-1.1 (/dev/bus/usb/001/010) is not advertised: it is the same device as a-ttyUSB0 (/dev/ttyUSB0)",
        ),
        (
            'sysfs: {class: video4linux, match: {index: "0"}}',
            'glob: "/dev/video*"',
            {"a": ["video0"], "b": ["video1"]},
            "it is the same device as a_1-4-1.0 (/dev/video0) of the entry 'a'",
        ),
    ],
    ids=["glob", "glob-first", "link", "usb", "child", "of-a-child", "sysfs"],
)
def test_the_first_entry_in_the_file_gets_the_node(
    desk: FakeHost, tmp_path: Path, first: str, second: str, left: dict[str, list[str]], told: str
) -> None:
    """One problem names both devices and the solution."""
    stock = planned(desk, tmp_path, first, second)
    assert left == paths(stock)
    (problem,) = stock.problems
    assert told in problem.message
    assert problem.where.endswith("devices[1]")
    assert "exclude one of the two, or set shared: true in 'b'" in problem.hint


def test_functions_of_one_iommu_group_in_two_entries(server: FakeHost, tmp_path: Path) -> None:
    """One pod at a time can open /dev/vfio/41. All such devices share /dev/vfio/vfio, so it is not compared."""
    group = server.root / "sys/devices/pci0000:80/0000:80:03.0/0000:86:01.1/iommu_group"
    entries = [
        f'sysfs: {{bus: pci, match: {{driver: vfio-pci, iommu_group: "{number}"}}, children: [vfio]}}'
        for number in (41, 42)
    ]
    assert {"a": ["vfio/41"], "b": ["vfio/42"]} == paths(planned(server, tmp_path, *entries))
    group.unlink()
    group.symlink_to(server.root / "sys/kernel/iommu_groups/41")
    both = "sysfs: {bus: pci, match: {driver: vfio-pci}, children: [vfio]}"
    stock = planned(server, tmp_path, "glob: /dev/vfio/41", both)
    assert {"a": ["vfio/41"], "b": []} == paths(stock)
    assert "b_0000-86-01.0 (/dev/vfio/41) is not advertised (and 1 more like it)" in stock.problems[0].message


def test_functions_of_one_iommu_group_in_one_entry(server: FakeHost, tmp_path: Path) -> None:
    """A second pod could not open the group."""
    group = server.root / "sys/devices/pci0000:80/0000:80:03.0/0000:86:01.1/iommu_group"
    group.unlink()
    group.symlink_to(server.root / "sys/kernel/iommu_groups/41")
    stock = planned(server, tmp_path, "sysfs: {bus: pci, match: {driver: vfio-pci}, children: [vfio]}")
    assert {"a": ["vfio/41"]} == paths(stock)
    (problem,) = stock.problems
    assert "a_0000-86-01.1 (/dev/vfio/41) is not advertised: it is the same device as a_0000-86-01.0" in problem.message
    assert "exclude one of the two, or set shared: true in 'a'" in problem.hint
