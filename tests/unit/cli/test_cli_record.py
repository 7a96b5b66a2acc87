"""Recordings: the hardware that is read, the resulting configuration, and hidden values."""

from dataclasses import replace
from pathlib import Path

import yaml

from tests.kit.fakehost import FakeHost
from vdev import config
from vdev.cli.record import HardwarePiece, Recording, pieces
from vdev.deviceplugin.podresources import KubeletDevice
from vdev.planning.inventory import inventory

UUIDS = tuple(f"GPU-00000000-0000-0000-0000-00000000000{n}" for n in range(3))
A100 = [
    HardwarePiece("pci", f"0000:8{n}:00.0", "10de", "20b0", serial=UUIDS[n], numa=n, is_accelerator=True)
    for n in range(2)
]
STICK = HardwarePiece("usb", "1-2", "1050", "0407", serial="ABC12345", maker="Yubico", model="YubiKey")


Lists = dict[str, dict[str, tuple[int, ...]]]


def played(
    devices: list[KubeletDevice], hardware: list[HardwarePiece] | None = None, salt: str = ""
) -> tuple[str, Lists]:
    """The text of the recording, and its ids and NUMA nodes by resource."""
    text = Recording(hardware or [], salt).of("gpu-7", devices).text
    spec = config.load_text(text).spec
    found = inventory(spec, "elsewhere")
    assert not [problem for problem in found.problems if problem.is_error]
    return text, {
        name: {slot.id: slot.device.raw.topology for slot in resource.slots}
        for name, resource in found.resources.items()
    }


def test_ids_and_numa_nodes_stay() -> None:
    devices = [
        KubeletDevice("acme.dev/npu", "npu-0", (1,)),
        KubeletDevice("acme.dev/npu", "npu-1"),
        KubeletDevice("intel.com/vf", "0000:81:00.2", (0,)),
        KubeletDevice("squat.ai/fuse", "a" * 40),
    ]

    assert {
        "acme.dev/npu": {"npu-0": (1,), "npu-1": ()},
        "intel.com/vf": {"0000:81:00.2": (0,)},
        "squat.ai/fuse": {"a" * 40: ()},
    } == played(devices)[1]


def test_a_known_model_has_its_preset() -> None:
    """It is found by UUID and PCI id, or if the node has one model. Partitions have no preset."""
    devices = [KubeletDevice("nvidia.com/gpu", uuid, (0,)) for uuid in UUIDS[:2]]
    for hardware in (A100, [replace(piece, serial="") for piece in A100]):
        text, lists = played(devices, hardware)
        (entry,) = yaml.safe_load(text)["devices"]
        assert ("a100-sxm4-40gb", list(UUIDS[:2])) == (entry["virtual"]["preset"], entry["virtual"]["ids"])
        assert list(UUIDS[:2]) == list(lists["nvidia.com/gpu"])
    mig = [KubeletDevice("nvidia.com/mig-1g.5gb", "MIG-00000000-0000-0000-0000-000000000001", (0,))]
    assert "preset" not in played(mig, A100)[0]


def test_facts_from_sysfs() -> None:
    """Vendor and model are attributes, and the address is a comment."""
    text, _ = played([KubeletDevice("a.b/key", "key-ABC12345")], [STICK])

    (entry,) = yaml.safe_load(text)["devices"]
    assert {"vendor": "1050", "product": "0407", "maker": "Yubico", "model": "YubiKey"} == entry["virtual"][
        "attributes"
    ]
    assert "# key-ABC12345: usb 1050:0407 1-2 Yubico YubiKey serial ABC12345" in text


def test_invalid_and_duplicate_ids() -> None:
    """They are replaced, with a warning."""
    seen = [KubeletDevice("a.b/x", "0"), KubeletDevice("a.b/y", "0"), KubeletDevice("a.b/y", "strange id/")]
    draft = Recording([]).of("n", seen)

    assert ["0", "0-2", "strange-id"] == [each for entry in draft.devices for each in entry["virtual"]["ids"]]
    assert 2 == len(draft.warnings)


def test_a_salt_hides_identities() -> None:
    """Serials, UUIDs, addresses, ids and the node's name are hashed; numbers, models and NUMA nodes stay."""
    devices = [
        KubeletDevice("nvidia.com/gpu", UUIDS[0], (1,)),
        KubeletDevice("intel.com/vf", "0000:81:00.2"),
        KubeletDevice("a.b/key", "key-ABC12345"),
    ]
    hardware = [*A100, STICK]

    text, lists = played(devices, hardware, salt="pepper")

    for secret in ("gpu-7", UUIDS[0], UUIDS[1], "0000:81", "0000:80", "ABC12345", " 1-2 "):
        assert secret not in text
    assert [(1,)] == list(lists["nvidia.com/gpu"].values())
    assert "a100-sxm4-40gb" in text
    assert next(iter(lists["nvidia.com/gpu"])).startswith("GPU-")
    assert next(iter(lists["a.b/key"])).startswith("key-")
    assert text == played(devices, hardware, salt="pepper")[0]
    assert text != played(devices, hardware, salt="other")[0]


def test_hardware_of_a_host(tmp_path: Path) -> None:
    """PCI devices with their NUMA node, USB devices except hubs, and GPUs of NVIDIA's driver."""
    fake = FakeHost(tmp_path)
    fake.plug("pci0000:00/0000:80:00.0", bus="pci", vendor="0x10de", device="0x20b0", numa_node=1, driver="nvidia")
    (tmp_path / "sys/devices/pci0000:00/0000:80:00.0/class").write_text("0x030200\n")
    fake.plug("pci0000:00/usb1/1-2", bus="usb", idVendor="1050", idProduct="0407", serial="ABC12345", product="YubiKey")
    fake.plug("pci0000:00/usb1", bus="usb", idVendor="1d6b", idProduct="0002", bDeviceClass="09")
    fake.file(
        "/proc/driver/nvidia/gpus/0000:80:00.0/information",
        f"Model: \t NVIDIA A100-SXM4-40GB\nGPU UUID: \t {UUIDS[0]}\n",
    )
    for slot in range(16):  # they cannot be read; in any order
        (tmp_path / f"proc/driver/nvidia/gpus/0000:90:{slot:02x}.0/information").mkdir(parents=True)

    gpu, stick = pieces(fake.host)

    assert ("0000:80:00.0", UUIDS[0], "NVIDIA A100-SXM4-40GB", "nvidia", 1, True) == (
        gpu.place,
        gpu.serial,
        gpu.model,
        gpu.driver,
        gpu.numa,
        gpu.is_accelerator,
    )
    assert ("1-2", "ABC12345", "YubiKey") == (stick.place, stick.serial, stick.model)
    assert [] == pieces(FakeHost(tmp_path / "empty").host)
