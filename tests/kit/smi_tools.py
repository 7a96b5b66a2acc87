"""Runs the tools of containers as in a container: in a shell, on directories of data files."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from vdev.model.device import Device, RawDevice
from vdev.model.geometry import Geometry
from vdev.model.telemetry import PhysicsModel, order
from vdev.planning.in_use import Use
from vdev.telemetry.amd_tool import amd_data
from vdev.telemetry.nvidia_tool import nvidia_data
from vdev.telemetry.simulation import DeviceInfo, MeasuredDevice, SensorReading, Throttle
from vdev.telemetry.tool_data import script

WALL = 1784019626.792  # 2026-07-14 09:00:26 UTC
SHELLS: Mapping[str, Sequence[str]] = {"busybox": ("busybox", "sh"), "dash": ("dash",), "bash": ("bash", "--posix")}

H100 = PhysicsModel(
    idlePower=70,
    peakPower=700,
    throttleTemperature=85,
    slowdownTemperature=87,
    shutdownTemperature=92,
    idleClock=345,
    peakClock=1980,
    idleMemoryClock=2619,
    peakMemoryClock=2619,
    memorySensor=True,
    pcieGeneration=5,
    links=18,
    linkSpeed=50,
)
BUSY = SensorReading(
    gpu_percent=99.6,
    copy_percent=41.4,
    encoder_percent=0,
    decoder_percent=3,
    memory_total_mib=81559,
    memory_used_mib=19818,
    memory_free_mib=61262,
    memory_reserved_mib=479,
    temperature_c=58.7,
    memory_temperature_c=55.2,
    power_w=629.449,
    energy_mj=1000,
    sm_clock_mhz=1980,
    memory_clock_mhz=2619,
    pcie_rx_bytes_s=6.346e6,
    pcie_tx_bytes_s=3.092e6,
    pcie_replays=0,
    nvlink_mb=0,
    ecc_corrected=0,
    ecc_uncorrected=0,
    remapped_rows=0,
    remap_failed=False,
    xid=0,
    throttle=Throttle.NONE,
    lost=False,
)
IDLE = replace(
    BUSY,
    gpu_percent=0,
    copy_percent=0,
    decoder_percent=0,
    memory_used_mib=0,
    memory_free_mib=81080,
    temperature_c=31,
    power_w=70.64,
    sm_clock_mhz=345,
    throttle=Throttle.IDLE,
)


EIGHT = Geometry(slices=8, profiles={"1": {"slices": 1, "memory": "1Gi"}})


def _measured(raw: RawDevice, physics: PhysicsModel, reading: SensorReading, **more: object) -> MeasuredDevice:
    """Return a device that one container uses."""
    device = Device(id=raw.id, raw=raw, ordinal=str(raw.index), attributes=raw.attributes)
    info = DeviceInfo(
        device=device,
        physics=physics,
        number=raw.index,
        count=8,
        geometry=EIGHT,
        users=(Use("default/train", "main"),),
        **more,  # type: ignore[arg-type]
    )
    return MeasuredDevice(info, reading, reading)


def h100(index: int, whole: SensorReading = BUSY, **more: object) -> MeasuredDevice:
    """Return the data of an H100 for nvidia-smi; `more` are fields of `DeviceInfo`."""
    raw = RawDevice(
        id=f"GPU-0000000{index}-0000-0000-0000-000000000000",
        entry="gpu",
        index=index,
        numa=(0,),
        attributes={
            "model": "NVIDIA H100 80GB HBM3",
            "architecture": "hopper",
            "computeCapability": "9.0",
            "pciDeviceId": "0x233010DE",
        },
    )
    return _measured(raw, H100, whole, **more)


def instance(
    of: MeasuredDevice, position: int, profile: str, slices: range, mib: int, used: int, sms: int
) -> MeasuredDevice:
    """Return the data of a MIG device of a GPU."""
    number, raw = position + 1, of.info.device.raw
    device = Device(
        id=f"MIG-0000000{number}-0000-0000-0000-000000000000",
        raw=raw,
        ordinal=f"{raw.index}:{position}",
        profile=profile,
        slices=slices,
        memory=mib * 2**20,
        attributes={"multiprocessors": str(sms), "engines.copy": str(len(slices)), "engines.decoder": "1"},
    )
    own = replace(of.whole, memory_total_mib=mib, memory_used_mib=used, memory_free_mib=mib - used)
    return MeasuredDevice(replace(of.info, device=device), of.whole, replace(own, memory_reserved_mib=0))


def mi300x(index: int) -> MeasuredDevice:
    """Return the data of an MI300X for amd-smi."""
    raw = RawDevice(
        id=f"mi300x-{index}",
        entry="mi300x",
        index=index,
        numa=(index // 4,),
        attributes={"model": "AMD Instinct MI300X", "pciDeviceId": "0x74A1", "computeUnits": "304"},
    )
    physics = H100.model_copy(
        update={"peak_power": 750, "idle_clock": 132, "peak_clock": 2100, "throttle_temperature": 100}
    )
    reading = replace(BUSY, memory_total_mib=196608, memory_used_mib=49152, memory_free_mib=147171)
    reading = replace(reading, memory_reserved_mib=285, power_w=412.4, memory_clock_mhz=1300)
    return _measured(raw, physics, reading)


class Container:
    """A container's files, with the data of its devices, and its shell."""

    def __init__(self, root: Path, shell: str) -> None:
        self.root = root
        self.shell = shell
        self.program = str(shutil.which(SHELLS[shell][0]))
        self.data = root / "data"
        self.data.mkdir()
        process = root / "proc/1"
        process.mkdir(parents=True)
        (process / "cmdline").write_bytes(b"/usr/bin/python3\0train.py\0")
        (process / "comm").write_text("python3\n")

    def give(self, *shown: MeasuredDevice, of: str = "nvidia") -> None:
        """Mount the directories of these devices."""
        for each in shown:
            directory = self.data / order(each.info.device)
            directory.mkdir(exist_ok=True)
            text = nvidia_data(each, WALL) if of == "nvidia" else amd_data(each)
            (directory / of).write_text(text)

    def run(
        self, tool: str, *arguments: str, environment: Mapping[str, str] | None = None, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run a tool of the container."""
        with self.start(tool, *arguments, environment=environment) as running:
            out, err = running.communicate(timeout=timeout)
        return subprocess.CompletedProcess(arguments, running.returncode, out, err)

    def start(self, tool: str, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a tool of the container."""
        path = self.root / tool
        path.write_text(script(tool))
        return subprocess.Popen(
            [self.program, *SHELLS[self.shell][1:], str(path), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                "PATH": os.environ["PATH"],
                "TZ": "UTC",
                "VDEV_SMI_DIR": str(self.data),
                "VDEV_SMI_PROC": str(self.root / "proc"),
                **(environment or {}),
            },
        )


def container(root: Path, shell: str) -> Container:
    """Return a container whose image has this shell. Skips the test if the shell is not installed."""
    if shutil.which(SHELLS[shell][0]) is None:
        pytest.skip(f"no {SHELLS[shell][0]} here: install it to run the tools under it")
    return Container(root, shell)
