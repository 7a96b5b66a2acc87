"""The keys `telemetry`: of the file, which says what is told of devices, and of an entry, which says how they run.

A preset says under `physics` what a model of device is like.
"""

import re
from dataclasses import replace
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from ..model.scalars import (
    AsWritten,
    Duration,
    Flag,
    Number,
    Section,
    Text,
    Whole,
    between,
    choice,
    described,
    longer_than_nothing,
    matching,
    refuse,
)
from ..model.telemetry import LoadPattern, Physics, Range

_HUNDRED = 100
_PERCENT = re.compile(r"\d{1,3}(\.\d{1,6})?%?")
_EXAMPLE = "such as 60, or [5, 95]"


def _percent(value: object) -> float:
    text = str(value)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)) or not _PERCENT.fullmatch(text):
        refuse(f"expected percent, got {described(value)}", _EXAMPLE)
    number = float(text.removesuffix("%"))
    return number if number <= _HUNDRED else refuse(f"{text} is more than 100 percent", _EXAMPLE)


def _range(value: object) -> Range:
    if isinstance(value, Range):
        return value
    if not isinstance(value, (list, tuple)):
        level = _percent(value)
        return Range(level, level)
    if len(value) != 2:
        refuse(f"expected the two ends of a range, got {len(value)} values", _EXAMPLE)
    low, high = map(_percent, value)
    if low > high:
        refuse(f"the range begins at {low:g} and ends at {high:g}", "write the lower end first")
    return Range(low, high)


_LEVEL_JSON = {"type": "number", "minimum": 0, "maximum": 100}
Percents = Annotated[
    Range,
    BeforeValidator(_range),
    WithJsonSchema({"anyOf": [_LEVEL_JSON, {"type": "array", "minItems": 2, "maxItems": 2, "items": _LEVEL_JSON}]}),
]
"""A level, or the two ends of a range, in percent."""


class EntryTelemetry(Section):
    """How the devices are loaded while a pod holds them; without a pod they are idle."""

    pattern: Annotated[LoadPattern, choice(LoadPattern)] = LoadPattern.BUSY
    """How the load runs. idle: none; steady: one level for each device; busy: up and down at random; burst: low for
    half of the period, then high; wave: a sine; ramp: from low to high within the period, then it stays."""
    period: Annotated[Duration, longer_than_nothing(86400 * 7, "168h")] | None = None
    """Time from one burst or wave to the next, from one level of busy to the next, or that a ramp takes. Default: 10s
    for busy, else 60s."""
    gpu: Percents | None = None
    """Load of the device's compute: a level in percent, or from where to where it goes. Default: as the pattern."""
    memory: Percents | None = None
    """How much of the memory is used, likewise."""
    encoder: Percents | None = None
    """Load of video encoders, likewise. Default: none."""
    decoder: Percents | None = None
    """Load of video decoders, likewise. Default: none."""
    always: Flag = False
    """Whether devices that no pod holds are loaded, too."""


def _address(value: str) -> str:
    host, colon, port = value.rpartition(":")
    if not (colon and port.isascii() and port.isdigit() and 0 <= int(port) <= 65535):
        refuse(f"{value!r} is not an address", 'expected host:port, or ":9400" for all addresses of the node')
    if host.count(":") and not (host.startswith("[") and host.endswith("]")):
        refuse(f"{value!r} is not an address", 'write an IPv6 address in brackets, such as "[::1]:9400"')
    return value


class Telemetry(Section):
    """What devices measure, for Prometheus, for `vdev top` and for the tools in containers."""

    address: Annotated[AsWritten, AfterValidator(_address)] | None = None
    """Where metrics of the devices are served: "host:port", or ":9400" for all addresses. NVIDIA's devices have the
    names of DCGM's exporter, AMD's those of AMD's, others are called vdev_device_... Default: nowhere."""
    hostname_label: Annotated[Text, matching("[Hh]ostname", "Hostname or hostname")] = "Hostname"
    """The label with the node's name, as NVIDIA's exporter writes it: Hostname up to 4.8.2, hostname since."""
    pod_annotations: Flag = False
    """Whether the annotations vdev.dev/load and run.ai/simulated-gpu-utilization of pods say how they load their
    devices. It needs the permission to list and watch pods."""


# --- presets ----------------------------------------------------------------------------------------------------------

_SECTION_DEFAULTS = Physics()


class PhysicsModel(Section):
    """What a device draws, how warm it gets, and how fast it runs."""

    idle_power: Number = _SECTION_DEFAULTS.idle_power
    """Power without a load, in W."""
    peak_power: Number = _SECTION_DEFAULTS.peak_power
    """Power under full load, in W."""
    idle_temperature: Number = _SECTION_DEFAULTS.idle_temperature
    """Temperature without a load, in °C."""
    peak_temperature: Number = _SECTION_DEFAULTS.peak_temperature
    """Temperature under full load, in °C."""
    throttle_temperature: Number = _SECTION_DEFAULTS.throttle_temperature
    """Temperature from which on the driver lowers the clocks, in °C."""
    slowdown_temperature: Number = _SECTION_DEFAULTS.slowdown_temperature
    """Temperature from which on the device slows itself down, in °C."""
    shutdown_temperature: Number = _SECTION_DEFAULTS.shutdown_temperature
    """Temperature at which the device shuts itself down, in °C."""
    thermal_time: Annotated[Duration, longer_than_nothing(86400, "24h")] = _SECTION_DEFAULTS.thermal_seconds
    """Time in which the temperature makes 63 % of the way to that of a new load."""
    idle_clock: Number = _SECTION_DEFAULTS.idle_clock
    """Clock of the compute units without a load, in MHz."""
    peak_clock: Number = _SECTION_DEFAULTS.peak_clock
    """Clock of the compute units under load, in MHz."""
    idle_memory_clock: Number = _SECTION_DEFAULTS.idle_memory_clock
    """Clock of the memory without a load, in MHz."""
    peak_memory_clock: Number = _SECTION_DEFAULTS.peak_memory_clock
    """Clock of the memory under load, in MHz."""
    memory_sensor: Flag = _SECTION_DEFAULTS.memory_temperature
    """Whether the memory has a temperature sensor of its own."""
    reserved_memory: Annotated[Whole, between(0)] = _SECTION_DEFAULTS.reserved_memory
    """Memory that the driver keeps, in MiB."""
    pcie_generation: Annotated[Whole, between(3, 6)] = _SECTION_DEFAULTS.pcie_generation
    """Generation of PCI Express."""
    pcie_lanes: Annotated[Whole, between(1, 16)] = _SECTION_DEFAULTS.pcie_lanes
    """Lanes of PCI Express."""
    links: Annotated[Whole, between(0)] = _SECTION_DEFAULTS.links
    """How many fast links to other devices it has, such as NVLinks."""
    link_speed: Number = 0.0
    """Speed of each of them, both ways together, in GB/s."""

    def over(self, base: Physics) -> Physics:
        """The core's value of it, with that of the base where nothing is given."""
        given = {_CORE.get(name, name): getattr(self, name) for name in self.model_fields_set}
        if "link_bytes" in given:
            given["link_bytes"] *= 1e9
        return replace(base, **given)


_CORE = {"thermal_time": "thermal_seconds", "memory_sensor": "memory_temperature", "link_speed": "link_bytes"}
