"""The keys `telemetry` and `physics`: the load of devices, and their power, temperature and clocks under load.

`telemetry.sensors` computes readings from them. This module also has the paths of the vendors' tools on the node.
"""

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import BeforeValidator, WithJsonSchema

from .device import Device, Mount
from .scalars import Duration, Flag, HostPort, Number, Whole, between, longer_than_nothing
from .section import Section, described, refuse


class LoadPattern(StrEnum):
    """How the load of a device changes over time."""

    IDLE = "idle"
    STEADY = "steady"
    BUSY = "busy"
    BURST = "burst"
    WAVE = "wave"
    RAMP = "ramp"


@dataclass(frozen=True, slots=True)
class Range:
    """A range in percent, 0 to 100."""

    low: float
    high: float


NOTHING = Range(0.0, 0.0)


_HUNDRED = 100
_PERCENT = re.compile(r"\d{1,3}(\.\d{1,6})?%?")
_EXAMPLE = "such as 60, or [5, 95]"


def _percent(value: object) -> float:
    text = str(value)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)) or not _PERCENT.fullmatch(text):
        refuse(f"expected percent, got {described(value)}", _EXAMPLE)
    number = float(text.removesuffix("%"))
    return number if number <= _HUNDRED else refuse(f"{text} is more than 100 percent", _EXAMPLE)


def percents(value: object) -> Range:
    """Parse a level or the two ends of a range. Raises ValueError."""
    if isinstance(value, Range):
        return value
    ends = value if isinstance(value, (list, tuple)) else (value, value)
    if len(ends) != 2:
        refuse(f"expected the two ends of a range, got {len(ends)} values", _EXAMPLE)
    low, high = map(_percent, ends)
    if low > high:
        refuse(f"the range begins at {low:g} and ends at {high:g}", "write the lower end first")
    return Range(low, high)


_LEVEL_JSON = {"type": "number", "minimum": 0, "maximum": 100}
Percents = Annotated[
    Range,
    BeforeValidator(percents),
    WithJsonSchema({"anyOf": [_LEVEL_JSON, {"type": "array", "minItems": 2, "maxItems": 2, "items": _LEVEL_JSON}]}),
]
"""A level or a range in percent."""


_BUSY_PERIOD = 10.0  # seconds
_PERIOD = 60.0
_DEFAULT_LOADS = {  # of the compute units, and of the memory
    LoadPattern.IDLE: (NOTHING, NOTHING),
    LoadPattern.STEADY: (Range(70, 70), Range(55, 55)),
    LoadPattern.BUSY: (Range(80, 98), Range(50, 60)),
    LoadPattern.BURST: (Range(5, 95), Range(10, 80)),
    LoadPattern.WAVE: (Range(10, 90), Range(30, 60)),
    LoadPattern.RAMP: (Range(0, 100), Range(0, 80)),
}


class EntryTelemetry(Section):
    """The load of devices while a pod holds them. Other devices are idle."""

    pattern: LoadPattern = LoadPattern.BUSY
    """How the load changes. idle: none; steady: one level for each device; busy: up and down at random; burst: low for
    half of the period, then high; wave: a sine; ramp: from low to high within the period, then it stays high."""
    period: Annotated[Duration, longer_than_nothing(86400 * 7, "168h")] | None = None
    """Time from one burst, wave or level of busy to the next, or the duration of a ramp. Default: 10s for busy, else
    60s."""
    gpu: Percents | None = None
    """Load of the compute units: a percentage, or a range [low, high]. Default: depends on the pattern."""
    memory: Percents | None = None
    """Used memory: a percentage, or a range [low, high]. Default: depends on the pattern."""
    encoder: Percents | None = None
    """Load of video encoders: a percentage, or a range [low, high]. Default: none."""
    decoder: Percents | None = None
    """Load of video decoders: a percentage, or a range [low, high]. Default: none."""
    always: Flag = False
    """Whether devices that no pod holds also have load."""

    @property
    def seconds(self) -> float:
        return self.period or (_BUSY_PERIOD if self.pattern is LoadPattern.BUSY else _PERIOD)

    @property
    def gpu_load(self) -> Range:
        return self.gpu or _DEFAULT_LOADS[self.pattern][0]

    @property
    def memory_load(self) -> Range:
        return self.memory or _DEFAULT_LOADS[self.pattern][1]


class Telemetry(Section):
    """Sensors of devices, for Prometheus, `vdev top` and the tools in containers."""

    address: HostPort | None = None
    """Address of the devices' metrics: "host:port", or ":9400" for all addresses. Names are those of dcgm-exporter for
    NVIDIA's devices, those of device-metrics-exporter for AMD's, and vdev_device_... for others. Default: no
    metrics."""
    hostname_label: Literal["Hostname", "hostname"] = "Hostname"
    """The label with the node's name, as NVIDIA's exporter writes it: Hostname up to 4.8.2, hostname since."""
    pod_annotations: Flag = False
    """Whether pods can set the load of their devices with the annotations vdev.dev/load and
    run.ai/simulated-gpu-utilization. Needs the permission to list and watch pods."""


class PhysicsModel(Section):
    """Power, temperature and clocks of a device."""

    idle_power: Number = 20.0
    """Power without a load, in W."""
    peak_power: Number = 150.0
    """Power under full load, in W."""
    idle_temperature: Number = 30.0
    """Temperature without a load, in °C."""
    peak_temperature: Number = 70.0
    """Temperature under full load, in °C."""
    throttle_temperature: Number = 85.0
    """Temperature at which the driver starts to lower the clocks, in °C."""
    slowdown_temperature: Number = 90.0
    """Temperature at which the device starts to slow itself down, in °C."""
    shutdown_temperature: Number = 95.0
    """Temperature at which the device shuts itself down, in °C."""
    thermal_time: Annotated[Duration, longer_than_nothing(86400, "24h")] = 20.0
    """Time in which the temperature covers 63 % of the difference to the temperature of a new load."""
    idle_clock: Number = 210.0
    """Clock of the compute units without a load, in MHz."""
    peak_clock: Number = 1500.0
    """Clock of the compute units under load, in MHz."""
    idle_memory_clock: Number = 405.0
    """Clock of the memory without a load, in MHz."""
    peak_memory_clock: Number = 1200.0
    """Clock of the memory under load, in MHz."""
    memory_sensor: Flag = False
    """Whether the memory has its own temperature sensor."""
    reserved_memory: Annotated[Whole, between(0)] = 0
    """Memory that the driver keeps, in MiB."""
    pcie_generation: Annotated[Whole, between(3, 6)] = 4
    """Generation of PCI Express."""
    pcie_lanes: Annotated[Whole, between(1, 16)] = 16
    """Lanes of PCI Express."""
    links: Annotated[Whole, between(0)] = 0
    """Number of fast links to other devices, such as NVLinks."""
    link_speed: Number = 0.0
    """Speed of each link, both directions together, in GB/s."""


class SmiTool(StrEnum):
    """Vendors with a metrics exporter and a tool that shows the devices in a container."""

    NVIDIA = "nvidia"
    AMD = "amd"


DIRECTORY = "/var/lib/vdev/smi"
"""The default directory for the tools and their data on the node."""

IN_CONTAINER = "/run/vdev/smi"

TOOLS: Mapping[SmiTool, str] = MappingProxyType({SmiTool.NVIDIA: "nvidia-smi", SmiTool.AMD: "amd-smi"})


def tool_path(root: str, name: str) -> str:
    return posixpath.join(root, "bin", name)


def device_directory(root: str, device: str) -> str:
    return posixpath.join(root, "devices", device)


def mounts(root: str, tool: SmiTool, device: Device) -> tuple[Mount, ...]:
    """Return the mounts of a container for a device: the tool, and the device's data."""
    name = TOOLS[tool]
    program = Mount(tool_path(root, name), f"/usr/bin/{name}", read_only=True)
    data = Mount(device_directory(root, device.id), posixpath.join(IN_CONTAINER, order(device)), read_only=True)
    return program, data


def order(device: Device) -> str:
    """Return the name of a device's directory in a container. Partitions of a device sort next to each other."""
    number, *part = device.sort_key
    return f"{number:05}.{device.raw.id}" + "".join(f".{each:03}" for each in part)
