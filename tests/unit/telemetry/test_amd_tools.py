"""amd-smi in a container, as that of ROCm 6 and 7 on MI300X."""

import csv
import io
import json
from dataclasses import replace

import pytest

from tests.kit.smi_tools import Container, mi300x
from vdev.model.device import Device
from vdev.telemetry.exporters import GTT

NO_PROGRAMS = {"PATH": "/nonexistent"}


def answer(box: Container, *arguments: str) -> object:
    """The JSON output of amd-smi."""
    shown = box.run("amd-smi", *arguments, "--json", environment=NO_PROGRAMS)
    assert ("", 0) == (shown.stderr, shown.returncode)
    return json.loads(shown.stdout)


def test_the_list(box: Container) -> None:
    """`list` is a list without the enumeration; -e adds it."""
    box.give(mi300x(0), mi300x(1), of="amd")
    listed = answer(box, "list")
    assert isinstance(listed, list)
    assert [0, 1] == [each["gpu"] for each in listed]
    assert ["0000:01:00.0", "0000:11:00.0"] == [each["bdf"] for each in listed]
    assert ["gpu", "bdf", "uuid", "kfd_id", "node_id", "partition_id"] == list(listed[0])
    (one,) = answer(box, "list", "-e", "-g", "1")  # type: ignore[misc]  # a list, as above
    assert ("renderD129", "card1", 1) == (one["render"], one["card"], one["hip_id"])
    text = box.run("amd-smi", "list").stdout
    assert text.startswith("GPU: 0\n    BDF: 0000:01:00.0\n    UUID: ")
    rows = list(csv.DictReader(io.StringIO(box.run("amd-smi", "list", "--csv").stdout)))
    assert ["0", "0000:01:00.0"] == [rows[0]["gpu"], rows[0]["gpu_bdf"]]


def test_metrics(box: Container) -> None:
    """The values have units, and are in the list gpu_data."""
    box.give(mi300x(0), of="amd")
    (gpu,) = answer(box, "metric")["gpu_data"]  # type: ignore[index]
    assert {"value": 100, "unit": "%"} == gpu["usage"]["gfx_activity"]
    assert {"value": 41, "unit": "%"} == gpu["usage"]["umc_activity"]
    assert "N/A" == gpu["usage"]["mm_activity"]
    assert [{"value": 0, "unit": "%"}] * 4 == gpu["usage"]["vcn_activity"]
    assert [{"value": 0, "unit": "%"}] * 32 + ["N/A"] * 8 == gpu["usage"]["jpeg_activity"]
    assert {"value": 412, "unit": "W"} == gpu["power"]["socket_power"]
    assert {"value": 59, "unit": "C"} == gpu["temperature"]["edge"]
    assert {"value": 59, "unit": "C"} == gpu["temperature"]["hotspot"]
    assert {"value": 55, "unit": "C"} == gpu["temperature"]["mem"]
    assert {"value": 2100, "unit": "MHz"} == gpu["clock"]["gfx_0"]["max_clk"]
    memory = {key: each["value"] for key, each in gpu["mem_usage"].items()}
    assert memory["total_vram"] == 196608 == memory["used_vram"] + memory["free_vram"]
    assert 0 == gpu["ecc"]["total_uncorrectable_count"]


def test_static_facts(box: Container) -> None:
    box.give(mi300x(0), of="amd")
    (gpu,) = answer(box, "static")["gpu_data"]  # type: ignore[index]
    assert ("AMD Instinct MI300X", "0x1002", "0x74a1") == tuple(
        gpu["asic"][key] for key in ("market_name", "vendor_id", "device_id")
    )
    assert (304, "gfx942") == (gpu["asic"]["num_compute_units"], gpu["asic"]["target_graphics_version"])
    assert {"value": 750, "unit": "W"} == gpu["limit"]["max_power"]
    assert {"value": 196608, "unit": "MB"} == gpu["vram"]["size"]
    assert ("SPX", "NPS1") == (gpu["partition"]["accelerator_partition"], gpu["partition"]["memory_partition"])
    assert 0 == gpu["numa"]["node"]


def test_a_partition(box: Container) -> None:
    """A partition is a device with its own modes, memory and PCI function."""
    whole = mi300x(1)
    part = replace(whole.whole, memory_total_mib=24576, memory_used_mib=100, memory_free_mib=24476, gpu_percent=12)
    device = Device(
        id="mi300x-1-cpx_nps4-3", raw=whole.info.device.raw, ordinal="1:3", profile="cpx_nps4", slices=range(3, 4)
    )
    info = replace(whole.info, device=device)
    box.give(replace(whole, info=info, own=replace(part, memory_reserved_mib=0)), of="amd")
    (listed,) = answer(box, "list")  # type: ignore[misc]  # a list
    assert ("0000:11:00.3", 3) == (listed["bdf"], listed["partition_id"])
    (asic,) = answer(box, "static", "-a")["gpu_data"]  # type: ignore[index]
    assert 1 == asic["asic"]["oam_id"], "the module is that of its device"
    (static,) = answer(box, "static", "-p")["gpu_data"]  # type: ignore[index]
    assert {"accelerator_partition": "CPX", "memory_partition": "NPS4", "partition_id": 3} == static["partition"]
    (metric,) = answer(box, "metric", "-m", "-u")["gpu_data"]  # type: ignore[index]
    assert (12, 24576) == (metric["usage"]["gfx_activity"]["value"], metric["mem_usage"]["total_vram"]["value"])
    assert GTT == metric["mem_usage"]["total_gtt"]["value"] == metric["mem_usage"]["free_gtt"]["value"]


TABLE = """\
+------------------------------------------------------------------------------+
| AMD-SMI 26.0.2  amdgpu version: 6.14.14  ROCm version: 7.0.2                 |
| VBIOS version: N/A                                                           |
| Platform: Linux Baremetal                                                    |
|-------------------------------------+----------------------------------------|
| BDF                        GPU-Name | Mem-Uti   Temp   UEC       Power-Usage |
| GPU  HIP-ID  OAM-ID  Partition-Mode | GFX-Uti    Fan               Mem-Usage |
|=====================================+========================================|
| 0000:01:00.0    AMD Instinct MI300X | 41 %      59 °C     0        412/750 W |
|   0       0       0        SPX/NPS1 | 100 %      N/A         49437/196608 MB |
+-------------------------------------+----------------------------------------+
+------------------------------------------------------------------------------+
| Processes:                                                                   |
|  GPU        PID  Process Name          GTT_MEM  VRAM_MEM  MEM_USAGE     CU % |
|==============================================================================|
|    0          1  python3                 0.0 B  49152 MB   49152 MB    100%  |
+------------------------------------------------------------------------------+
"""


def test_the_table(box: Container) -> None:
    box.give(mi300x(0), of="amd")
    shown = box.run("amd-smi").stdout
    assert shown == TABLE
    assert {80} == {len(line) for line in shown.splitlines()}


@pytest.mark.parametrize(
    ("asked", "said", "code"),
    [
        (("lists",), "Command 'lists' is invalid", 255),
        (("metric", "--colour"), "Parameter '--colour' is invalid", 254),
        (("list", "-g", "7"), "Device '7' is not found", 253),
    ],
)
def test_errors(box: Container, asked: tuple[str, ...], said: str, code: int) -> None:
    """A wrong argument has the message and the exit code of the real tool."""
    box.give(mi300x(0), of="amd")
    shown = box.run("amd-smi", *asked)
    assert (code, "") == (shown.returncode, shown.stdout)
    assert said in shown.stderr
