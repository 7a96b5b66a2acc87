"""The simulation of one device: its load over time, and the sensors that follow the load.

The load is a function of the pattern, the seed and the time, so the same configuration gives the same load on every
run. Only counters and the temperature depend on the past.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntFlag
from typing import Any, NamedTuple

from ..faults.effects import HardwareErrorsFault, SensorFault
from ..faults.schedule import draw
from ..model.device import HEALTHY, Device, Health
from ..model.geometry import PIN, Geometry
from ..model.telemetry import NOTHING, EntryTelemetry, LoadPattern, PhysicsModel, Range, SmiTool, percents
from ..planning.in_use import Use

_HUNDRED = 100.0


def parse_load(text: str) -> Range:
    """Parse the load in a pod's annotation: a number, or a range such as 60-90, in percent. Raises ValueError."""
    ends = [each.strip().removesuffix("%").strip() for each in text.split("-")]
    return percents(ends if len(ends) > 1 else ends[0])


class Levels(NamedTuple):
    """The load at one moment, in percent."""

    gpu: float = 0.0
    memory: float = 0.0
    encoder: float = 0.0
    decoder: float = 0.0


IDLE = Levels()


class Throttle(IntFlag):
    """Why the clocks are below their maximum, with the bits of NVML."""

    NONE = 0
    IDLE = 0x1
    HARDWARE = 0x8
    SOFTWARE_THERMAL = 0x20
    HARDWARE_THERMAL = 0x40


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorReading:
    """The sensors of a device or a partition at one moment, with the units in their names.

    A sensor that the device does not have is None. For sensors that a partition lacks, it shows those of its device.
    Counters start when vdev first sees the device.
    """

    gpu_percent: float
    copy_percent: float
    encoder_percent: float
    decoder_percent: float
    memory_total_mib: int
    memory_used_mib: int
    memory_free_mib: int
    memory_reserved_mib: int
    temperature_c: float
    memory_temperature_c: float | None
    power_w: float
    energy_mj: int
    sm_clock_mhz: int
    memory_clock_mhz: int
    pcie_rx_bytes_s: float
    pcie_tx_bytes_s: float
    pcie_replays: int
    nvlink_mb: int | None  # both directions of all links
    ecc_corrected: int
    ecc_uncorrected: int
    remapped_rows: int
    remap_failed: bool
    xid: int  # the last one in force, 0 for none
    throttle: Throttle
    lost: bool  # off the bus: only `xid` and the counters are valid


NO_LOAD = EntryTelemetry(pattern=LoadPattern.IDLE)
LOST = 79
"""The Xid of a device that has fallen off the bus."""

_UNCORRECTED = frozenset({48, 94, 95, 140})  # Xids of uncorrectable memory errors
_REMAP_FAILED = 64
_REMAPPED = frozenset({63, _REMAP_FAILED})  # Xids of a remapped memory row

_MINUTE = 60.0
_MIB = 2**20
_SPREAD = 2.0  # °C by which devices of a model differ, up and down
_LANE_BYTES = {3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}  # per second and direction, by PCIe generation
_RECEIVED, _SENT, _LINKED = 0.20, 0.08, 0.35  # fraction of the bandwidth that a full load uses
_COPIED = 0.6  # memory traffic, as a fraction of the load
_LOWEST_CLOCK = 0.5  # of the peak clock, when the device slows itself down
_MEMORY_ABOVE = 4.0  # °C by which the memory is warmer than the chip


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """A partition or an unpartitioned device: its load, and the other data that exporters and tools show."""

    device: Device
    physics: PhysicsModel
    resource: str = ""
    vendor: SmiTool | None = None
    number: int = 0  # of the whole device, among the vendor's devices on the node
    first: int = 0  # the number of preceding devices of the vendor, counting each partition
    count: int = 1  # of the vendor's devices on the node
    peers: Mapping[str, int] = field(default_factory=dict)  # the number of links to other devices, by their ids
    geometry: Geometry | None = None  # how the whole device can be partitioned
    health: Health = HEALTHY
    users: tuple[Use, ...] = ()  # all containers that use the device or a replica of it
    load: EntryTelemetry = NO_LOAD
    since: float = 0.0  # when a ramp of the load begins
    seed: str = ""  # differs from device to device, so that equal patterns give different loads

    @property
    def attributes(self) -> Mapping[str, str]:
        """The attributes of the whole device, from the file and the preset."""
        return self.device.raw.attributes

    @property
    def title(self) -> str:
        return self.attributes.get("model") or self.attributes.get("product") or self.device.raw.entry

    @property
    def slices(self) -> int:
        """The memory slices of the whole device, 0 if it cannot be partitioned."""
        return self.geometry.slices if self.geometry else 0

    @property
    def compute(self) -> float:
        """The fraction of the whole device's compute, 1 for the whole device."""
        if self.geometry is None or not self.device.is_partition:
            return 1.0
        profile = self.geometry.profile(self.device.profile.partition(PIN)[0])
        if profile.compute is not None and self.geometry.compute is not None:
            return profile.compute / self.geometry.compute
        return profile.slices / self.geometry.slices

    @property
    def pods(self) -> frozenset[str]:
        """The pods that use it, as `namespace/name`."""
        return frozenset(user.pod for user in self.users)


def levels(info: DeviceInfo, at: float) -> Levels:
    """Return the load at this time; all levels are at the same point of their ranges."""
    load = info.load
    if load.pattern is LoadPattern.IDLE:
        return IDLE
    point = _point(info, at)
    ranges = (load.gpu_load, load.memory_load, load.encoder or NOTHING, load.decoder or NOTHING)
    return Levels(*(each.low + (each.high - each.low) * point for each in ranges))


def _point(info: DeviceInfo, at: float) -> float:
    """The position of the load in its range, from 0 (low end) to 1 (high end)."""
    match info.load.pattern:
        case LoadPattern.STEADY:
            return draw(info.seed, "steady")
        case LoadPattern.BUSY:
            return draw(info.seed, math.floor(at / info.load.seconds))
        case LoadPattern.BURST:
            return math.floor(2 * _phase(info, at))  # 0 in the first half of the period, then 1
        case LoadPattern.WAVE:
            return 0.5 - 0.5 * math.cos(math.tau * _phase(info, at))
        case LoadPattern.RAMP:
            return min(1.0, max(0.0, (at - info.since) / info.load.seconds))
    return 0.0


def _phase(info: DeviceInfo, at: float) -> float:
    """The completed fraction of the current period. It differs from device to device."""
    return (at / info.load.seconds + draw(info.seed, "phase")) % 1


@dataclass(frozen=True, slots=True)
class MeasuredDevice:
    """The sensors of a device or a partition at one moment."""

    info: DeviceInfo
    whole: SensorReading  # of the whole device
    own: SensorReading  # of the partition; the same as `whole` for a whole device

    @property
    def process_mib(self) -> int:
        """The memory of one container's program, in MiB."""
        return self.own.memory_used_mib // len(self.info.users) if self.info.users else 0


@dataclass(slots=True, kw_only=True)
class SimulatedDevice:
    """One device: its load and its faults now, and the counters that have accumulated until `at`."""

    parts: Sequence[DeviceInfo]  # its partitions, or the whole device
    xids: tuple[int, ...] = ()  # in force now
    faults: Sequence[SensorFault] = ()
    at: float = 0.0
    energy: float = 0.0  # J
    work: float = 0.0  # seconds under full load
    corrected: float = 0.0
    uncorrected: float = 0.0
    replays: float = 0.0
    remapped: float = 0.0
    temperature: float = field(init=False)

    def __post_init__(self) -> None:
        self.temperature = self._steady_temperature(0.0)

    def change(
        self, at: float, parts: Sequence[DeviceInfo], xids: tuple[int, ...] = (), faults: Sequence[SensorFault] = ()
    ) -> None:
        """Use this load and these faults from `at` on."""
        self.advance(at)
        new = set(xids) - set(self.xids)
        self.uncorrected += sum(number in _UNCORRECTED for number in new)
        self.remapped += sum(number in _REMAPPED for number in new)
        self.parts, self.xids, self.faults = parts, xids, faults

    @property
    def _physics(self) -> PhysicsModel:
        return self.parts[0].physics

    @property
    def _lost(self) -> bool:
        return LOST in self.xids

    def _levels(self, part: DeviceInfo, at: float) -> Levels:
        return IDLE if self._lost else levels(part, at)

    def _busy(self, at: float) -> float:
        """The load of the compute units of the whole device, in percent."""
        return sum(part.compute * self._levels(part, at).gpu for part in self.parts)

    def _power(self, percent: float) -> float:
        """The power under this load of the whole device, in W."""
        idle, peak = self._physics.idle_power, self._physics.peak_power
        return 0.0 if self._lost else idle + (peak - idle) * percent / _HUNDRED

    def _steady_temperature(self, percent: float) -> float:
        """The temperature that the device approaches under this load, in °C."""
        idle, peak = self._physics.idle_temperature, self._physics.peak_temperature
        spread = _SPREAD * (2 * draw(self.parts[0].seed, "temperature") - 1)
        return idle + (peak - idle) * percent / _HUNDRED + spread

    def advance(self, at: float) -> None:
        """Simulate the time until `at`, with the mean of the load at both ends."""
        seconds, physics = at - self.at, self._physics
        if seconds <= 0:
            return
        percent = (self._busy(self.at) + self._busy(at)) / 2
        self.at = at
        self.energy += self._power(percent) * seconds
        self.work += percent / _HUNDRED * seconds
        minutes = seconds / _MINUTE
        # The temperature approaches that of the load exponentially. A fault heats linearly, and wins if it is hotter.
        approached = 1 - math.exp(-seconds / physics.thermal_time)  # as a fraction of the difference
        normal = self.temperature + (self._steady_temperature(percent) - self.temperature) * approached
        temperature = normal
        for fault in self.faults:
            if isinstance(fault, HardwareErrorsFault):
                self.corrected += fault.corrected_ecc * minutes
                self.uncorrected += fault.uncorrected_ecc * minutes
                self.replays += fault.pcie_replays * minutes
                self.remapped += fault.remapped_rows * minutes
            else:
                heated = self.temperature + (fault.to - physics.idle_temperature) * seconds / fault.within
                temperature = max(normal, min(heated, fault.to))  # of several faults, the last one counts
        self.temperature = temperature

    def read(self, at: float) -> SensorReading:
        """Read the sensors of the whole device. `at` must not be before the time of the last call."""
        self.advance(at)
        physics, busy = self._physics, self._busy(at)
        lane = _LANE_BYTES.get(physics.pcie_generation, _LANE_BYTES[4]) * physics.pcie_lanes * busy / _HUNDRED
        linked = _LINKED * physics.links * physics.link_speed * 1e3  # MB per second under full load
        return SensorReading(
            **self._together([self._own(part, at) for part in self.parts]),
            temperature_c=self.temperature,
            memory_temperature_c=self.temperature + _MEMORY_ABOVE if physics.memory_sensor else None,
            power_w=self._power(busy),
            energy_mj=math.floor(self.energy * 1000),
            sm_clock_mhz=_clock(physics, self.temperature, idle=not busy),
            memory_clock_mhz=round(physics.peak_memory_clock if busy else physics.idle_memory_clock),
            pcie_rx_bytes_s=lane * _RECEIVED,
            pcie_tx_bytes_s=lane * _SENT,
            pcie_replays=math.floor(self.replays),
            nvlink_mb=math.floor(self.work * linked) if physics.links else None,
            ecc_corrected=math.floor(self.corrected),
            ecc_uncorrected=math.floor(self.uncorrected),
            remapped_rows=math.floor(self.remapped),
            remap_failed=_REMAP_FAILED in self.xids,
            xid=self.xids[-1] if self.xids else 0,
            throttle=_throttle(physics, self.temperature, busy),
            lost=self._lost,
        )

    def measured(self, at: float) -> Iterable[MeasuredDevice]:
        """Read the sensors of all partitions, or of the whole device."""
        whole = self.read(at)
        for part in self.parts:
            own = replace(whole, **self._own(part, at)) if part.device.is_partition else whole
            yield MeasuredDevice(part, whole, own)

    def _own(self, part: DeviceInfo, at: float) -> dict[str, Any]:
        """The sensors that each partition has: load and memory."""
        load, whole = self._levels(part, at), part.device.raw.memory // _MIB
        total = part.device.memory // _MIB if part.device.is_partition else whole
        reserved = min(part.physics.reserved_memory, whole) * total // whole if whole else 0
        used = int((total - reserved) * load.memory / _HUNDRED)
        return {
            "gpu_percent": load.gpu,
            "copy_percent": load.gpu * _COPIED,
            "encoder_percent": load.encoder,
            "decoder_percent": load.decoder,
            "memory_total_mib": total,
            "memory_used_mib": used,
            "memory_free_mib": total - used - reserved,
            "memory_reserved_mib": reserved,
        }

    def _together(self, owns: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The same sensors for the whole device."""
        first = self.parts[0].device
        if not first.is_partition:
            return owns[0]
        found = {
            name: sum(part.compute * own[name] for part, own in zip(self.parts, owns, strict=True))
            for name in ("gpu_percent", "copy_percent", "encoder_percent", "decoder_percent")
        }
        total, used = first.raw.memory // _MIB, sum(own["memory_used_mib"] for own in owns)
        # The reserved memory is limited to the memory outside of partitions and the reserved memory in them.
        room = total - sum(own["memory_total_mib"] - own["memory_reserved_mib"] for own in owns)
        reserved = min(self._physics.reserved_memory, room)
        memory = {"total": total, "used": used, "free": total - used - reserved, "reserved": reserved}
        return found | {f"memory_{name}_mib": amount for name, amount in memory.items()}


def idle(info: DeviceInfo, *, lost: bool) -> MeasuredDevice:
    """A device or a partition without load."""
    (measured,) = SimulatedDevice(parts=(info,), xids=(LOST,) if lost else ()).measured(0.0)
    return measured


def _throttle(physics: PhysicsModel, temperature: float, busy: float) -> Throttle:
    found = Throttle.NONE if busy else Throttle.IDLE
    if temperature >= physics.throttle_temperature:
        found |= Throttle.SOFTWARE_THERMAL
    if temperature >= physics.slowdown_temperature:
        found |= Throttle.HARDWARE | Throttle.HARDWARE_THERMAL
    return found


def _clock(physics: PhysicsModel, temperature: float, *, idle: bool) -> int:
    """The clock in MHz. It sinks from the throttle temperature on, to half its peak at the slowdown temperature."""
    if idle:
        return round(physics.idle_clock)
    above = temperature - physics.throttle_temperature
    if above < 0:
        return round(physics.peak_clock)
    room = physics.slowdown_temperature - physics.throttle_temperature
    lowered = 1.0 if above >= room else above / room
    return round(max(physics.idle_clock, physics.peak_clock * (1 - (1 - _LOWEST_CLOCK) * lowered)))
