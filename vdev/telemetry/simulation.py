"""The simulation of one device: its load over time, and the sensors that follow the load.

The load is a function of the pattern, the seed and the time, so the same configuration gives the same load on every
run. Only counters and the temperature depend on the past.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntFlag
from typing import Any, NamedTuple

from ..faults.effects import HardwareErrorsFault, OverheatFault
from ..model.telemetry import NOTHING, LoadPattern, PhysicsModel, Range, percents

_HUNDRED = 100.0


def parse_load(text: str) -> Range:
    """Parse the load in a pod's annotation: a number, or a range such as 60-90, in percent. Raises ValueError."""
    ends = [each.strip().removesuffix("%").strip() for each in text.split("-")]
    return percents(ends if len(ends) > 1 else ends[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A load pattern with its ranges, in percent."""

    pattern: LoadPattern = LoadPattern.IDLE
    period: float = 10.0  # seconds
    gpu: Range = NOTHING
    memory: Range = NOTHING
    encoder: Range = NOTHING
    decoder: Range = NOTHING
    since: float = 0.0  # when a ramp begins
    seed: str = ""  # differs from device to device, so that equal patterns give different loads


class Levels(NamedTuple):
    """The load at one moment, in percent."""

    gpu: float = 0.0
    memory: float = 0.0
    encoder: float = 0.0
    decoder: float = 0.0


IDLE = Levels()


def levels(load: Load, at: float) -> Levels:
    """Return the load at this time; all levels are at the same point of their ranges."""
    if load.pattern is LoadPattern.IDLE:
        return IDLE
    point = _point(load, at)
    ranges = (load.gpu, load.memory, load.encoder, load.decoder)
    return Levels(*(each.low + (each.high - each.low) * point for each in ranges))


def draw(seed: str, name: object) -> float:
    """Return a pseudo-random number, at least 0 and below 1, that depends only on the arguments."""
    digest = hashlib.blake2b(f"{seed}\0{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _point(load: Load, at: float) -> float:
    """The position of the load in its range, from 0 (low end) to 1 (high end)."""
    match load.pattern:
        case LoadPattern.STEADY:
            return draw(load.seed, "steady")
        case LoadPattern.BUSY:
            return draw(load.seed, math.floor(at / load.period))
        case LoadPattern.BURST:
            return math.floor(2 * _phase(load, at))  # 0 in the first half of the period, then 1
        case LoadPattern.WAVE:
            return 0.5 - 0.5 * math.cos(math.tau * _phase(load, at))
        case LoadPattern.RAMP:
            return min(1.0, max(0.0, (at - load.since) / load.period))
    return 0.0


def _phase(load: Load, at: float) -> float:
    """The completed fraction of the current period. It differs from device to device."""
    return (at / load.period + draw(load.seed, "phase")) % 1


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


NO_ERRORS = HardwareErrorsFault()
NO_LOAD = Load()
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
class Part:
    """A partition, or a whole device that has none."""

    id: str
    is_partition: bool = False
    compute: float = 1.0  # as a fraction of the whole device
    memory: int = 0  # bytes
    load: Load = NO_LOAD
    pods: frozenset[str] = frozenset()  # that hold it


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceConditions:
    """The model, the load and the faults of a device."""

    physics: PhysicsModel
    memory: int  # of the whole device, in bytes
    parts: Sequence[Part]
    xids: tuple[int, ...] = ()  # in force now
    heat: OverheatFault | None = None
    errors: HardwareErrorsFault = NO_ERRORS  # per minute

    @property
    def lost(self) -> bool:
        return LOST in self.xids

    def load_of(self, part: Part, at: float) -> Levels:
        return IDLE if self.lost else levels(part.load, at)

    def load(self, at: float) -> Levels:
        """Return the load of the whole device. `memory` is only valid without partitions."""
        parts = [(part.compute, self.load_of(part, at)) for part in self.parts]
        return Levels(
            gpu=sum(compute * each.gpu for compute, each in parts),
            memory=parts[0][1].memory,
            encoder=sum(compute * each.encoder for compute, each in parts),
            decoder=sum(compute * each.decoder for compute, each in parts),
        )

    def power(self, percent: float) -> float:
        """Return the power under this load of the whole device, in W."""
        physics = self.physics
        return 0.0 if self.lost else physics.idle_power + (physics.peak_power - physics.idle_power) * percent / _HUNDRED

    def steady_temperature(self, percent: float) -> float:
        """Return the temperature that the device approaches under this load, in °C."""
        physics = self.physics
        spread = _SPREAD * (2 * draw(self.parts[0].load.seed, "temperature") - 1)
        return physics.idle_temperature + (physics.peak_temperature - physics.idle_temperature) * percent / 100 + spread


@dataclass(slots=True)
class SimulatedDevice:
    """One device: its conditions now, and the counters that have accumulated until `at`."""

    conditions: DeviceConditions
    at: float
    energy: float = 0.0  # J
    work: float = 0.0  # seconds under full load
    corrected: float = 0.0
    uncorrected: float = 0.0
    replays: float = 0.0
    remapped: float = 0.0
    temperature: float = field(init=False)

    def __post_init__(self) -> None:
        self.temperature = self.conditions.steady_temperature(0.0)
        self._count_xids(self.conditions.xids)

    def change(self, conditions: DeviceConditions, at: float) -> None:
        """Use these conditions from `at` on."""
        self.advance(at)
        before, self.conditions = self.conditions, conditions
        self._count_xids(set(conditions.xids) - set(before.xids))

    def advance(self, at: float) -> None:
        """Simulate the time until `at`, with the mean of the load at both ends."""
        seconds, now = at - self.at, self.conditions
        if seconds <= 0:
            return
        percent = (now.load(self.at).gpu + now.load(at).gpu) / 2
        self.at = at
        self.energy += now.power(percent) * seconds
        self.work += percent / _HUNDRED * seconds
        minutes = seconds / _MINUTE
        self.corrected += now.errors.corrected_ecc * minutes
        self.uncorrected += now.errors.uncorrected_ecc * minutes
        self.replays += now.errors.pcie_replays * minutes
        self.remapped += now.errors.remapped_rows * minutes
        # The temperature approaches that of the load exponentially. A fault heats linearly, and wins if it is hotter.
        approached = 1 - math.exp(-seconds / now.physics.thermal_time)  # as a fraction of the difference
        temperature = self.temperature + (now.steady_temperature(percent) - self.temperature) * approached
        if now.heat is not None:
            heated = self.temperature + (now.heat.to - now.physics.idle_temperature) * seconds / now.heat.within
            temperature = max(temperature, min(heated, now.heat.to))
        self.temperature = temperature

    def read(self, at: float) -> SensorReading:
        """Read the sensors of the whole device. `at` must not be before the time of the last call."""
        self.advance(at)
        now, physics = self.conditions, self.conditions.physics
        load = now.load(at)
        busy = load.gpu
        used, reserved, total = self._memory_mib(load, at)
        lane = _LANE_BYTES.get(physics.pcie_generation, _LANE_BYTES[4]) * physics.pcie_lanes * busy / _HUNDRED
        linked = _LINKED * physics.links * physics.link_speed * 1e3  # MB per second under full load
        return SensorReading(
            **_own(load, used, reserved, total),
            temperature_c=self.temperature,
            memory_temperature_c=self.temperature + _MEMORY_ABOVE if physics.memory_sensor else None,
            power_w=now.power(busy),
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
            remap_failed=_REMAP_FAILED in now.xids,
            xid=now.xids[-1] if now.xids else 0,
            throttle=_throttle(physics, self.temperature, busy),
            lost=now.lost,
        )

    def read_part(self, part: Part, at: float, whole: SensorReading) -> SensorReading:
        """Read the sensors of a partition. `whole` are those of its device, read at the same time."""
        load = self.conditions.load_of(part, at)
        total, reserved = part.memory // _MIB, self._reserved(part)
        return replace(whole, **_own(load, _used(load, total - reserved), reserved, total))

    def _count_xids(self, new: Sequence[int] | set[int]) -> None:
        self.uncorrected += sum(number in _UNCORRECTED for number in new)
        self.remapped += sum(number in _REMAPPED for number in new)

    def _memory_mib(self, load: Levels, at: float) -> tuple[int, int, int]:
        """Used, reserved and total memory of the whole device."""
        now, total = self.conditions, self.conditions.memory // _MIB
        parts = [part for part in now.parts if part.is_partition]
        if not parts:
            reserved = min(now.physics.reserved_memory, total)
            return _used(load, total - reserved), reserved, total
        used = sum(_used(now.load_of(part, at), part.memory // _MIB - self._reserved(part)) for part in parts)
        # The reserved memory must fit beside the partitions: what is free of partitions, and the reserves of these.
        free = total - sum(part.memory // _MIB for part in parts)
        return used, min(now.physics.reserved_memory, free + sum(map(self._reserved, parts))), total

    def _reserved(self, part: Part) -> int:
        """The memory of a partition that the driver reserves, in MiB."""
        total = self.conditions.memory // _MIB
        return self.conditions.physics.reserved_memory * (part.memory // _MIB) // total if total else 0


def _own(load: Levels, used: int, reserved: int, total: int) -> dict[str, Any]:
    """The sensors that each partition has: load and memory (in MiB)."""
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


def _used(load: Levels, usable: int) -> int:
    return int(usable * load.memory / _HUNDRED)


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
