"""What the file says about the load of devices, and what a model of device is like under it.

`config` makes these values of the keys `telemetry` and of presets; `telemetry.sensors` makes readings of them.
"""

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from .device import Device, Mount


class LoadPattern(StrEnum):
    """How the load of a device runs over time."""

    IDLE = "idle"
    STEADY = "steady"
    BUSY = "busy"
    BURST = "burst"
    WAVE = "wave"
    RAMP = "ramp"


@dataclass(frozen=True, slots=True)
class Range:
    """From `low` to `high` percent, 0 to 100."""

    low: float
    high: float


NOTHING = Range(0.0, 0.0)


class SmiTool(StrEnum):
    """The makers that have a tool which shows a container its devices, and an exporter."""

    NVIDIA = "nvidia"
    AMD = "amd"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSpec:
    """The load of an entry's devices while a pod holds them, or at all times (`always`).

    `period` is in seconds. `gpu`, `memory`, `encoder` and `decoder` are between what a pattern moves.
    """

    pattern: LoadPattern = LoadPattern.BUSY
    period: float = 10.0
    gpu: Range = Range(80.0, 98.0)
    memory: Range = Range(50.0, 60.0)
    encoder: Range = NOTHING
    decoder: Range = NOTHING
    always: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Physics:
    """What a device of some model is like: W, °C, seconds, MHz, MiB, bytes a second.

    It draws `idle_power` without a load and `peak_power` under a full one, where it settles at `idle_temperature` and
    `peak_temperature`; after a step it is most of the way there (63 %) after `thermal_seconds`. From
    `slowdown_temperature` on it lowers its clock by itself, from `throttle_temperature` on the driver does.
    `memory_temperature`: whether the memory has a sensor of its own. `reserved_memory` is what the driver keeps.
    `links` are fast links to other devices, of `link_bytes` each.
    """

    idle_power: float = 20.0
    peak_power: float = 150.0
    idle_temperature: float = 30.0
    peak_temperature: float = 70.0
    throttle_temperature: float = 85.0
    slowdown_temperature: float = 90.0
    shutdown_temperature: float = 95.0
    thermal_seconds: float = 20.0
    idle_clock: float = 210.0
    peak_clock: float = 1500.0
    idle_memory_clock: float = 405.0
    peak_memory_clock: float = 1200.0
    memory_temperature: bool = False
    reserved_memory: int = 0
    pcie_generation: int = 4
    pcie_lanes: int = 16
    links: int = 0
    link_bytes: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySpec:
    """What is told of all devices, once it is `on`.

    `address` is where metrics are served ("" nowhere), `hostname_label` the label with the node's name in metrics that
    are named as NVIDIA's exporter names them. `annotations`: what annotations of pods say of their load is asked for.
    """

    on: bool = False
    address: str = ""
    hostname_label: str = "Hostname"
    annotations: bool = False


UNMEASURED = TelemetrySpec()


@dataclass(frozen=True, slots=True)
class EntryTelemetry:
    """The load of one entry's devices, what they are like, and under whose names they are told of."""

    load: LoadSpec = LoadSpec()
    physics: Physics = Physics()
    maker: SmiTool | None = None


DIRECTORY = "/var/lib/vdev/smi"
"""The root on the node, unless it is told otherwise."""

IN_CONTAINER = "/run/vdev/smi"

TOOLS: Mapping[SmiTool, str] = MappingProxyType({SmiTool.NVIDIA: "nvidia-smi", SmiTool.AMD: "amd-smi"})


def tool_path(root: str, name: str) -> str:
    """Where a tool is on the node."""
    return posixpath.join(root, "bin", name)


def device_directory(root: str, device: str) -> str:
    """Where the data of a device is on the node, by its id."""
    return posixpath.join(root, "devices", device)


def mounts(root: str, tool: SmiTool, device: Device) -> tuple[Mount, ...]:
    """What a container mounts for a device; the tool is the same for all."""
    name = TOOLS[tool]
    program = Mount(tool_path(root, name), f"/usr/bin/{name}", read_only=True)
    data = Mount(device_directory(root, device.id), posixpath.join(IN_CONTAINER, order(device)), read_only=True)
    return program, data


def order(device: Device) -> str:
    """The name of a device's directory in a container: sorted by it, partitions of one device stand together."""
    number, *part = device.sort_key
    return f"{number:05}.{device.raw.id}" + "".join(f".{each:03}" for each in part)
