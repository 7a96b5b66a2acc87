"""nvidia-smi in a container: output and exit codes like those of drivers 550 to 580."""

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from tests.kit.smi_tools import BUSY, IDLE, Container, h100, instance
from vdev.telemetry.simulation import MeasuredDevice

TIME = "Tue Jul 14 09:00:26 2026"
NO_PROGRAMS = {"PATH": "/nonexistent"}
"""A container without any program but its shell."""

TABLE = """\
Tue Jul 14 09:00:26 2026       
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:01:00.0 Off |                    0 |
| N/A   59C    P0            629W /  700W |   19818MiB /  81559MiB |    100%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA H100 80GB HBM3          On  |   00000000:11:00.0 Off |                    0 |
| N/A   31C    P0             70W /  700W |       0MiB /  81559MiB |      0%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|    0   N/A  N/A               1      C   python3                               19818MiB |
+-----------------------------------------------------------------------------------------+
"""  # noqa: W291 - the tool itself ends its first line so

MIG_TABLE = """\
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:01:00.0 Off |                   On |
| N/A   59C    P0            629W /  700W |   19818MiB /  81559MiB |     N/A      Default |
|                                         |                        |              Enabled |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| MIG devices:                                                                            |
+------------------+----------------------------------+-----------+-----------------------+
| GPU  GI  CI  MIG |              Shared Memory-Usage |        Vol|        Shared         |
|      ID  ID  Dev |                Shared BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |
|                  |                                  |        ECC|                       |
|==================+==================================+===========+=======================|
|  0    2   0   0  |           11091MiB / 40448MiB    | 60      0 |  4   0    1    0    0 |
|                  |               0MiB / 24756MiB    |           |                       |
+------------------+----------------------------------+-----------+-----------------------+
|  0    9   0   1  |               0MiB /  9984MiB    | 16      0 |  1   0    1    0    0 |
|                  |               0MiB /  6189MiB    |           |                       |
+------------------+----------------------------------+-----------+-----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|    0     2    0               1      C   python3                               11091MiB |
+-----------------------------------------------------------------------------------------+
"""


def timeless(box: Container, text: str) -> str:
    """The text with the time of the data. busybox has a built-in `date`; other shells have none here."""
    now = re.search(r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}", text) if box.shell == "busybox" else None
    return text.replace(now[0], TIME) if now else text


def with_raw(shown: MeasuredDevice, **changes: object) -> MeasuredDevice:
    """The device with other facts."""
    device = shown.info.device
    raw = replace(device.raw, **changes)  # type: ignore[arg-type]
    return replace(shown, info=replace(shown.info, device=replace(device, raw=raw)))


def give_mig(box: Container) -> None:
    """Two MIG devices of one GPU."""
    box.give(
        instance(h100(0), 0, "3g.40gb", range(4, 8), 40448, 11091, 60),
        instance(h100(0), 1, "1g.10gb", range(2, 3), 9984, 0, 16),
    )


def test_the_table(box: Container) -> None:
    """The table has the form of driver 550 and later. The image needs no program except the shell."""
    box.give(h100(0), h100(1, IDLE))
    shown = box.run("nvidia-smi", environment=NO_PROGRAMS)
    assert (TABLE, "", 0) == (timeless(box, shown.stdout), shown.stderr, shown.returncode)


def test_mig_devices(box: Container) -> None:
    """A GPU is shown once, with the container's instances."""
    give_mig(box)
    shown = box.run("nvidia-smi").stdout
    assert shown.partition("======|\n")[2] == MIG_TABLE
    assert box.run("nvidia-smi", "-L").stdout == (
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-0000-0000-0000-000000000000)\n"
        "  MIG 3g.40gb     Device  0: (UUID: MIG-00000001-0000-0000-0000-000000000000)\n"
        "  MIG 1g.10gb     Device  1: (UUID: MIG-00000002-0000-0000-0000-000000000000)\n"
    )


QUERY = "index,name,uuid,memory.total,memory.used,utilization.gpu,power.draw,clocks.sm,temperature.gpu,fan.speed"


def test_selected_fields(box: Container) -> None:
    """The header has the names with units. Values have units too, except with nounits."""
    box.give(h100(0), h100(1, IDLE))
    uuid = "GPU-00000000-0000-0000-0000-000000000000"
    header = (
        "index, name, uuid, memory.total [MiB], memory.used [MiB], utilization.gpu [%], power.draw [W], "
        "clocks.current.sm [MHz], temperature.gpu, fan.speed [%]"
    )
    row = f"0, NVIDIA H100 80GB HBM3, {uuid}, 81559 MiB, 19818 MiB, 100 %, 629.45 W, 1980 MHz, 59, [N/A]"
    plain = f"0, NVIDIA H100 80GB HBM3, {uuid}, 81559, 19818, 100, 629.45, 1980, 59, [N/A]"
    all_lines = box.run("nvidia-smi", f"--query-gpu={QUERY}", "--format=csv").stdout.splitlines()
    assert [header, row] == all_lines[:2]
    assert len(all_lines) == 3
    bare = box.run("nvidia-smi", "--format=csv,noheader,nounits", f"--query-gpu={QUERY}", "-i", "0")
    assert (f"{plain}\n", 0) == (bare.stdout, bare.returncode)
    nounits = box.run("nvidia-smi", "--query-gpu=memory.total, uuid", "--format=csv,nounits", "--id=1").stdout
    assert "memory.total [MiB], uuid\n81559, GPU-00000001-0000-0000-0000-000000000000\n" == nounits


def test_every_field_of_the_help(box: Container) -> None:
    """Each field in --help-query-gpu has a value."""
    box.give(h100(0))
    listed = box.run("nvidia-smi", "--help-query-gpu")
    names = [name for line in listed.stdout.splitlines() if line.startswith('"') for name in line.split('"')[1::2]]
    assert listed.returncode == 0
    assert len(names) > 200
    answered = box.run("nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader")
    assert answered.returncode == 0
    values = dict(zip(names, answered.stdout.strip().split(", "), strict=True))
    bare = {name for name, value in values.items() if value == "N/A"}
    assert all(name.startswith("fabric.health.") for name in bare)  # the real tool prints these without brackets
    assert all(value and "$" not in value for value in values.values())


LEFT_OUT = (
    "This nvidia-smi shows simulated GPUs and has no {}. Available are: the table (no arguments), -L, -q -x, topo -m, "
    "and --query-gpu=... and --query-compute-apps=... with --format=csv."
)
DENIED = "Unable to do {} for GPU 00000000:11:00.0: Insufficient Permissions"


def test_errors(subtests, box):
    """A wrong argument has the real tool's message on stdout, and its exit code."""
    box.give(h100(0), h100(1))
    cases = [
        (("--query-gpu=name,cuda_version", "--format=csv"), 'Field "cuda_version" is not a valid field to query.', 2),
        (("--query-gpu=name",), "\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help.", 2),
        (("--query-compute-apps=gpu", "--format=csv"), 'Field "gpu" is not a valid field to query.', 2),
        (("--format=csv",), "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.", 2),
        (("-L", "-q"), "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.", 2),
        (("-x",), "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.", 2),
        (("--json",), "ERROR: Option --json is not recognized. Please run 'nvidia-smi -h'.", 2),
        (("-i",), "ERROR: Option -i is missing its value. Please run 'nvidia-smi -h' for help.", 2),
        (("topo", "-p"), "ERROR: Option -p is not recognized. Please run 'nvidia-smi -h'.", 2),
        (("-i", "2"), "No devices were found", 6),
        (("--query-gpu=name", "--format=csv", "-i", "GPU-1"), "No devices were found", 6),
        (("-q",), LEFT_OUT.format("-q as text"), 2),
        (("-q", "-d", "MEMORY"), LEFT_OUT.format("-q as text"), 2),
        (("dmon", "-c", "1"), LEFT_OUT.format("dmon"), 2),
        (("pmon",), LEFT_OUT.format("pmon"), 2),
        (("mig", "-lgi"), DENIED.format("mig -lgi"), 4),
        (("mig", "-cgi", "19", "-C"), DENIED.format("mig -cgi 19 -C"), 4),
        (("-pm", "1"), DENIED.format("-pm"), 4),
    ]
    for asked, said, code in cases:
        with subtests.test(asked=asked):
            shown = box.run("nvidia-smi", *asked)
            assert (said, code) == (shown.stdout.strip(), shown.returncode)


def test_no_device(box: Container) -> None:
    shown = box.run("nvidia-smi")
    assert ("No devices were found\n", 6) == (shown.stdout, shown.returncode)


def test_a_driver_that_does_not_answer(box: Container) -> None:
    """A directory without its file has the exit code of a driver that is not loaded."""
    (box.data / "00000.GPU-1").mkdir()
    shown = box.run("nvidia-smi")
    assert shown.stdout.startswith("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
    assert shown.returncode == 9


LOST = (
    "Unable to determine the device handle for GPU1: 0000:11:00.0: GPU is lost.  Reboot the system to recover this GPU"
)


@pytest.mark.parametrize("asked", [(), ("-L",), ("-q", "-x"), ("--query-gpu=name", "--format=csv")])
def test_a_gpu_that_fell_off_the_bus(box: Container, asked: tuple[str, ...]) -> None:
    """Every call fails with exit code 15, except for the other GPU alone."""
    box.give(h100(0), h100(1, replace(BUSY, lost=True)))
    shown = box.run("nvidia-smi", *asked)
    assert (LOST, 15) == (shown.stdout.strip(), shown.returncode)
    assert box.run("nvidia-smi", *asked, "-i", "0").returncode == 0
    alone = box.run("nvidia-smi", *asked, "-i", "1")
    assert (f"{LOST}\nNo devices were found", 15) == (alone.stdout.strip(), alone.returncode)


@pytest.mark.parametrize(
    "chosen",
    [
        "1",
        "GPU-00000001-0000-0000-0000-000000000000",
        "00000000:11:00.0",
        "0000:11:00.0",
        "11:00.0",
        "7,1",
    ],
)
def test_a_chosen_gpu(box: Container, chosen: str) -> None:
    """A GPU is chosen by number, UUID or PCI address; unknown ids are ignored."""
    box.give(h100(0), h100(1))
    shown = box.run("nvidia-smi", "--query-gpu=index", "--format=csv,noheader", "-i", chosen)
    assert ("1\n", 0) == (shown.stdout, shown.returncode)


def test_programs(box: Container) -> None:
    """Process 1 of the container has the memory."""
    box.give(h100(0), h100(1, IDLE))
    (box.root / "proc/1/exe").symlink_to("/opt/venv/bin/python3")
    asked = "pid,process_name,used_memory,gpu_uuid"
    shown = box.run("nvidia-smi", f"--query-compute-apps={asked}", "--format=csv").stdout
    assert shown == (
        "pid, process_name, used_gpu_memory [MiB], gpu_uuid\n"
        "1, /opt/venv/bin/python3, 19818 MiB, GPU-00000000-0000-0000-0000-000000000000\n"
    )


ELEMENTS = {
    "product_name": "NVIDIA H100 80GB HBM3",
    "product_brand": "NVIDIA",
    "product_architecture": "Hopper",
    "mig_mode/current_mig": "Disabled",
    "uuid": "GPU-00000000-0000-0000-0000-000000000000",
    "minor_number": "0",
    "pci/pci_bus": "01",
    "pci/pci_bus_id": "00000000:01:00.0",
    "pci/pci_device_id": "233010DE",
    "pci/pci_gpu_link_info/pcie_gen/max_link_gen": "5",
    "pci/pci_gpu_link_info/link_widths/current_link_width": "16x",
    "pci/tx_util": "3092 KB/s",
    "fan_speed": "N/A",
    "performance_state": "P0",
    "clocks_event_reasons/clocks_event_reason_gpu_idle": "Not Active",
    "fb_memory_usage/total": "81559 MiB",
    "fb_memory_usage/reserved": "479 MiB",
    "fb_memory_usage/used": "19818 MiB",
    "fb_memory_usage/free": "61262 MiB",
    "bar1_memory_usage/total": "131072 MiB",
    "compute_mode": "Default",
    "utilization/gpu_util": "100 %",
    "utilization/memory_util": "41 %",
    "utilization/decoder_util": "3 %",
    "ecc_mode/current_ecc": "Enabled",
    "ecc_errors/volatile/dram_uncorrectable": "0",
    "remapped_rows/remapped_row_unc": "0",
    "temperature/gpu_temp": "59 C",
    "temperature/memory_temp": "55 C",
    "gpu_power_readings/average_power_draw": "629.45 W",
    "gpu_power_readings/current_power_limit": "700.00 W",
    "clocks/sm_clock": "1980 MHz",
    "max_clocks/mem_clock": "2619 MHz",
    "processes/process_info/pid": "1",
    "processes/process_info/process_name": "python3",
    "processes/process_info/used_memory": "19818 MiB",
}


def test_the_log_as_xml(box: Container) -> None:
    """The log has all elements that parsers of DTD versions 12 and 13 read."""
    box.give(h100(0), h100(1, IDLE))
    shown = box.run("nvidia-smi", "-q", "-x").stdout
    assert shown.splitlines()[:3] == [
        '<?xml version="1.0" ?>',
        '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">',
        "<nvidia_smi_log>",
    ]
    log = ET.fromstring(shown)
    assert log.findtext("attached_gpus") == "2"
    gpu = log.findall("gpu")[0]
    assert gpu.get("id") == "00000000:01:00.0"
    assert {path: gpu.findtext(path) for path in ELEMENTS} == ELEMENTS
    assert (gpu.findtext("mig_devices") or "").strip() == "None"


def test_mig_devices_as_xml(box: Container) -> None:
    give_mig(box)
    log = ET.fromstring(box.run("nvidia-smi", "-x", "-q").stdout)
    parts = log.findall("gpu/mig_devices/mig_device")
    assert [("0", "2", "60"), ("1", "9", "16")] == [
        (
            each.findtext("index"),
            each.findtext("gpu_instance_id"),
            each.findtext("device_attributes/shared/multiprocessor_count"),
        )
        for each in parts
    ]
    assert parts[0].findtext("fb_memory_usage/used") == "11091 MiB"
    assert log.findtext("gpu/utilization/gpu_util") == "N/A"
    assert log.findtext("gpu/processes/process_info/gpu_instance_id") == "2"


def test_hostile_names(box: Container) -> None:
    """A model's name with special characters runs no program, and the XML stays valid."""
    name = "A'\"$(touch /tmp/vdev-was-here)`id`<&> \\n %s"
    box.give(with_raw(h100(0), attributes={"model": name}))
    assert f"GPU 0: {name} (UUID" in box.run("nvidia-smi", "-L").stdout
    log = ET.fromstring(box.run("nvidia-smi", "-q", "-x").stdout)
    assert name == log.findtext("gpu/product_name")
    box.give(with_raw(h100(0), attributes={"model": "A @program@ @index@"}))  # marks of vdev's own texts
    assert 0 == box.run("nvidia-smi").returncode


def test_errors_show(box: Container) -> None:
    ill = replace(BUSY, ecc_corrected=7, ecc_uncorrected=2, remapped_rows=1, xid=95)
    box.give(h100(0, ill))
    asked = (
        "ecc.errors.corrected.volatile.total,ecc.errors.uncorrected.volatile.total,remapped_rows.uncorrectable,"
        "gpu_recovery_action"
    )
    assert "7, 2, 1, Reset\n" == box.run("nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader").stdout
    assert "Off |                    2 |" in box.run("nvidia-smi").stdout


def test_the_topology(box: Container) -> None:
    """Linked GPUs show their links, others depend on NUMA nodes."""
    linked = h100(0, peers={"GPU-00000001-0000-0000-0000-000000000000": 18})
    back = h100(1, peers={"GPU-00000000-0000-0000-0000-000000000000": 18})
    box.give(linked, back, with_raw(h100(2), numa=(1,)))
    lines = box.run("nvidia-smi", "topo", "-m").stdout.splitlines()
    assert lines[0] == "\tGPU0\tGPU1\tGPU2\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"
    cells = [line.split("\t") for line in lines[1:4]]
    assert [row[:4] for row in cells] == [
        ["GPU0", " X ", "NV18", "SYS"],
        ["GPU1", "NV18", " X ", "SYS"],
        ["GPU2", "SYS", "SYS", " X "],
    ]
    assert [row[5:] for row in cells] == [["0", "", "N/A"], ["0", "", "N/A"], ["1", "", "N/A"]]


def test_the_version_and_the_help(box: Container) -> None:
    box.give(h100(0))
    assert box.run("nvidia-smi", "--version").stdout == (
        "NVIDIA-SMI version  : 580.95.05\n"
        "NVML version        : 580.95\n"
        "DRIVER version      : 580.95.05\n"
        "CUDA Version        : 13.0\n"
    )
    assert box.run("nvidia-smi", "-h").returncode == 0
    assert '"used_gpu_memory" or "used_memory"' in box.run("nvidia-smi", "--help-query-compute-apps").stdout
