"""Virtual devices: ids, facts, and the nodes that the real device would have."""

import uuid
from pathlib import Path

import pytest

from tests.kit.fakehost import FakeHost
from tests.kit.specs import made_entry, made_virtual
from vdev import config, discovery
from vdev.discovery import Found
from vdev.model.device import DeviceNode, IdStyle
from vdev.model.virtual import DriverNode, VirtualDevices


def test_an_entry_whose_source_discovery_does_not_know(fake: FakeHost) -> None:
    entry = made_entry("e", "example.com/e")
    with pytest.raises(ValueError, match="a source that discovery does not know"):
        discovery.discover(entry, fake.host, node="n")


def find(tmp_path: Path, source: VirtualDevices, node: str = "n") -> Found:
    entry = made_entry("acme", "acme.dev/npu", virtual=source)
    return discovery.discover(entry, FakeHost(tmp_path).host, node=node)


def test_each_has_its_own_id_index_and_numa_node(tmp_path: Path) -> None:
    """One NUMA value per device."""
    found = find(tmp_path, made_virtual(2, memory=2**34, numa=(0, 1), attributes={"model": "X1"}))
    assert [("acme-0", 0, (0,)), ("acme-1", 1, (1,))] == [(each.id, each.index, each.numa) for each in found.devices]
    assert {("X1", 2**34)} == {(each.attributes["model"], each.memory) for each in found.devices}


def test_ids_as_nvidias_driver_gives_them_differ_by_node_and_index_only(tmp_path: Path) -> None:
    """Stable over restarts, other on every node, never random."""
    source = made_virtual(2, id_style=IdStyle.NVIDIA)
    here, again, there = (find(tmp_path, source, node) for node in ("a", "a", "b"))
    assert here == again
    assert 4 == len({each.id for found in (here, there) for each in found.devices})
    assert all(each.id == f"GPU-{uuid.UUID(each.id[4:])}" for each in here.devices)


def test_the_real_devices_nodes_are_kept_where_the_host_has_them(tmp_path: Path) -> None:
    """A mock GPU next to a real driver."""
    fake = FakeHost(tmp_path)
    fake.node("nvidia1", "195:1")
    wanted = DriverNode(path="/dev/nvidia{index}")
    found = find(tmp_path, made_virtual(2, nodes=(wanted,)))
    assert [(), (DeviceNode("/dev/nvidia1", "/dev/nvidia1", "rw"),)] == [each.driver_nodes for each in found.devices]
    assert {"/dev"} == found.watch


def test_the_nodes_of_mig_instances_are_kept_where_the_host_has_them(tmp_path: Path) -> None:
    """Each GPU has those of its own instances: of the instance, and of its first compute instance."""
    fake = FakeHost(tmp_path)
    lines = ["config 1", "gpu0/gi7/access 66", "gpu0/gi7/ci0/access 67", "gpu0/gi7/ci1/access 68", "nonsense 5"]
    lines += ["gpu1/gi7/access 201", "gpu1/gi7/ci0/access 202", "gpu1/gi8/access 210"]
    fake.file("/proc/driver/nvidia-caps/mig-minors", "\n".join(lines))
    for minor in (1, 5, 66, 67, 68, 201):
        fake.node(f"nvidia-caps/nvidia-cap{minor}", f"508:{minor}")
    text = "devices: [{name: a, resource: nvidia.com/gpu, virtual: {preset: a100-sxm4-40gb, count: 3}}]"
    (entry,) = config.load_text(text).spec.entries

    def found() -> list[dict[int, list[str]]]:
        devices = discovery.discover(entry, fake.host, node="n").devices
        return [
            {
                number: [node.host_path.rpartition("-")[2] for node in nodes]
                for number, nodes in each.instance_nodes.items()
            }
            for each in devices
        ]

    assert [{7: ["cap66", "cap67"]}, {7: ["cap201"]}, {}] == found()
    assert "/dev/nvidia-caps" in discovery.discover(entry, fake.host, node="n").watch
    fake.remove("/dev/nvidia-caps/nvidia-cap66")
    assert {7: ["cap67"]} == found()[0]
