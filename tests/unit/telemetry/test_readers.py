"""Programs that read the output of nvidia-smi, and were written for the real one."""

import json
import os
import subprocess
import sys

import pytest

from tests.kit.smi_tools import IDLE, Container, h100, instance
from vdev.telemetry.tool_data import script


def nvsmi(box: Container, *arguments: str) -> list[dict[str, object]]:
    """The output of the package nvsmi for the container's devices."""
    pytest.importorskip("nvsmi", reason="no nvsmi here: it is one of the packages for development")
    place = box.root / "bin"
    place.mkdir(exist_ok=True)
    path = place / "nvidia-smi"
    path.write_text(f"#!{box.program} {'sh' if box.shell == 'busybox' else ''}\n" + script("nvidia-smi"))
    path.chmod(0o755)
    found = subprocess.run(
        [sys.executable, "-m", "nvsmi", *arguments, "--json"],
        capture_output=True,
        text=True,
        check=True,
        env={
            "PATH": f"{place}:{os.environ['PATH']}",
            "VDEV_SMI_DIR": str(box.data),
            "VDEV_SMI_PROC": str(box.root / "proc"),
        },
    )
    return [json.loads(line) for line in found.stdout.splitlines()]


def test_nvsmi_reads_gpus(box: Container) -> None:
    box.give(h100(0), h100(1, IDLE))
    first, second = nvsmi(box, "ls")
    assert ("0", "NVIDIA H100 80GB HBM3", 100.0) == (first["id"], first["name"], first["gpu_util"])
    assert (81559.0, 19818.0, 61262.0, 59.0) == tuple(
        first[key] for key in ("mem_total", "mem_used", "mem_free", "temperature")
    )
    assert ("580.95.05", "GPU-00000001-0000-0000-0000-000000000000") == (second["driver"], second["uuid"])


def test_nvsmi_reads_programs(box: Container) -> None:
    """The program of a MIG device is listed under its GPU."""
    box.give(instance(h100(0), 0, "3g.40gb", range(4, 8), 40448, 11091, 60))
    (program,) = nvsmi(box, "ps")
    assert {
        "pid": 1,
        "process_name": "python3",
        "gpu_id": "0",
        "used_memory": 11091.0,
    }.items() <= program.items()
