"""Virtual devices: ids, attributes, and the nodes of the real device."""

import uuid
from pathlib import Path

from tests.kit.fakehost import FakeHost
from tests.kit.specs import made_entry, made_virtual
from vdev import config, discovery
from vdev.discovery import Found
from vdev.model.device import DeviceNode, IdStyle
from vdev.model.virtual import DriverNode, VirtualDevices


def find(tmp_path: Path, source: VirtualDevices, node: str = "n") -> Found:
    entry = made_entry("acme", "acme.dev/npu", virtual=source)
    return discovery.discover(entry, FakeHost(tmp_path).host, node=node)


def test_each_device_has_its_id_index_and_numa_node(tmp_path: Path) -> None:
    found = find(tmp_path, made_virtual(2, memory=2**34, numa=(0, 1), attributes={"model": "X1"}))
    assert [("acme-0", 0, (0,)), ("acme-1", 1, (1,))] == [(each.id, each.index, each.numa) for each in found.devices]
    assert {("X1", 2**34)} == {(each.attributes["model"], each.memory) for each in found.devices}


def test_nvidia_ids_depend_on_node_and_index_only(tmp_path: Path) -> None:
    source = made_virtual(2, id_style=IdStyle.NVIDIA)
    here, again, there = (find(tmp_path, source, node) for node in ("a", "a", "b"))
    assert here == again
    assert 4 == len({each.id for found in (here, there) for each in found.devices})
    assert all(each.id == f"GPU-{uuid.UUID(each.id[4:])}" for each in here.devices)


def test_a_device_has_the_driver_nodes_that_exist(tmp_path: Path) -> None:
    """A virtual GPU on a host with a real driver."""
    fake = FakeHost(tmp_path)
    fake.node("nvidia1", "195:1")
    wanted = DriverNode(path="/dev/nvidia{index}")
    found = find(tmp_path, made_virtual(2, nodes=(wanted,)))
    assert [(), (DeviceNode("/dev/nvidia1", "/dev/nvidia1", "rw"),)] == [each.driver_nodes for each in found.devices]
    assert {"/dev"} == found.watch


def test_a_gpu_has_the_nodes_of_its_mig_instances_that_exist(tmp_path: Path) -> None:
    """They are those of the GPU instance and of its first compute instance."""
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
