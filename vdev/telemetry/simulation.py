"""How a load runs over time, and the load that a pod asks for.

The load at an instant is a function of the pattern, the seed and the instant, so the same configuration shows the same
on every run.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntFlag
from typing import Any, NamedTuple

from ..faults.effects import HardwareErrorsFault, OverheatFault
from ..model.telemetry import NOTHING, LoadPattern, PhysicsModel, Range, percents

ANNOTATIONS = ("vdev.dev/load", "run.ai/simulated-gpu-utilization")
"""By which a pod says how it loads its devices; the first that is there counts."""

_HUNDRED = 100.0


def wish(text: str) -> Range:
    """Return the load of an annotation: a number, or a range such as 60-90, in percent. Raises ValueError."""
    ends = [each.strip().removesuffix("%").strip() for each in text.split("-")]
    return percents(ends if len(ends) > 1 else ends[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One load, in percent of what is there.

    `period` is in seconds. A ramp begins at the instant `since`. The `seed` makes loads of the same pattern differ
    from device to device.
    """

    pattern: LoadPattern = LoadPattern.IDLE
    period: float = 10.0
    gpu: Range = NOTHING
    memory: Range = NOTHING
    encoder: Range = NOTHING
    decoder: Range = NOTHING
    since: float = 0.0
    seed: str = ""


class Levels(NamedTuple):
    """What of a device is loaded at an instant, in percent."""

    gpu: float = 0.0
    memory: float = 0.0
    encoder: float = 0.0
    decoder: float = 0.0


IDLE = Levels()


def levels(load: Load, at: float) -> Levels:
    """Return the load at an instant, each level between the ends of its range."""
    if load.pattern is LoadPattern.IDLE:
        return IDLE
    place = _place(load, at)
    return Levels(*(of.low + (of.high - of.low) * place for of in (load.gpu, load.memory, load.encoder, load.decoder)))


def drawn(seed: str, name: object) -> float:
    """Return a number from 0 up to 1 that is always the same for the same seed and name."""
    digest = hashlib.blake2b(f"{seed}\0{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _place(load: Load, at: float) -> float:
    """Where between its ends a load is, 0 to 1."""
    match load.pattern:
        case LoadPattern.STEADY:
            return drawn(load.seed, "steady")
        case LoadPattern.BUSY:
            return drawn(load.seed, math.floor(at / load.period))
        case LoadPattern.BURST:
            return math.floor(2 * _turn(load, at))  # 0 in the first half of a turn, then 1
        case LoadPattern.WAVE:
            return 0.5 - 0.5 * math.cos(math.tau * _turn(load, at))
        case LoadPattern.RAMP:
            return min(1.0, max(0.0, (at - load.since) / load.period))
    return 0.0


def _turn(load: Load, at: float) -> float:
    """How much of its period a pattern that repeats has done, 0 to 1. Devices are not in step."""
    return (at / load.period + drawn(load.seed, "phase")) % 1


class Throttle(IntFlag):
    """Why the clocks are not at their highest; the bits of NVML."""

    NONE = 0
    IDLE = 0x1
    HARDWARE = 0x8
    SOFTWARE_THERMAL = 0x20
    HARDWARE_THERMAL = 0x40


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorReading:
    """The sensors of a device or a partition at one instant, with the units in their names.

    What a device does not have is None. Sensors that a partition does not have of its own are its device's. `lost`: it
    has fallen off the bus, and nothing but `xid` and the counters can be trusted. Counters begin when vdev first sees
    the device. `nvlink_mb` counts both directions of all links. `xid` is the last error of the driver that is in force,
    0 for none.
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
    nvlink_mb: int | None
    ecc_corrected: int
    ecc_uncorrected: int
    remapped_rows: int
    remap_failed: bool
    xid: int
    throttle: Throttle
    lost: bool


NO_ERRORS = HardwareErrorsFault()
NO_LOAD = Load()
LOST = 79
"""The Xid of a device that has fallen off the bus."""

_UNCORRECTED = frozenset({48, 94, 95, 140})  # Xids that tell of an uncorrectable error of the memory
_REMAP_FAILED = 64
_REMAPPED = frozenset({63, _REMAP_FAILED})  # and of a row that is taken out of use, or cannot be

_MINUTE = 60.0
_MIB = 2**20
_SPREAD = 2.0  # °C by which devices of a model differ, both ways
_LANE_BYTES = {3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}  # a second, one way, by generation of PCI Express
_RECEIVED, _SENT, _LINKED = 0.20, 0.08, 0.35  # parts of a link that a full load takes
_COPIED = 0.6  # of the load is memory traffic
_FLOOR = 0.5  # of its clock a device keeps when it slows itself down
_MEMORY_ABOVE = 4.0  # °C of the memory above the chip


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A device that is not cut, or a partition of one that is.

    `compute` is its part of the device's compute; 1 is all of it. `memory` is in bytes. `pods` hold it, by name.
    """

    id: str
    is_partition: bool = False
    compute: float = 1.0
    memory: int = 0
    load: Load = NO_LOAD
    pods: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceConditions:
    """What a device is like, what loads it, and what is wrong with it.

    `memory` is that of the whole device, in bytes. `parts` are its partitions, or itself. `xids` are the errors of
    NVIDIA's driver that it has, `errors` what it counts a minute.
    """

    physics: PhysicsModel
    memory: int
    parts: Sequence[Part]
    xids: tuple[int, ...] = ()
    heat: OverheatFault | None = None
    errors: HardwareErrorsFault = NO_ERRORS

    @property
    def lost(self) -> bool:
        """Whether it has fallen off the bus."""
        return LOST in self.xids

    def load_of(self, part: Part, at: float) -> Levels:
        return IDLE if self.lost else levels(part.load, at)

    def load(self, at: float) -> Levels:
        """Return the load of the device as a whole; `memory` is meaningless for one that is cut."""
        parts = [(part.compute, self.load_of(part, at)) for part in self.parts]
        return Levels(
            gpu=sum(compute * each.gpu for compute, each in parts),
            memory=parts[0][1].memory,
            encoder=sum(compute * each.encoder for compute, each in parts),
            decoder=sum(compute * each.decoder for compute, each in parts),
        )

    def power(self, percent: float) -> float:
        """Return what is drawn under a load of the whole device, in W."""
        physics = self.physics
        return 0.0 if self.lost else physics.idle_power + (physics.peak_power - physics.idle_power) * percent / _HUNDRED

    def settled_temperature(self, percent: float) -> float:
        """Return the temperature at which the device settles under a lasting load, in °C."""
        physics = self.physics
        spread = _SPREAD * (2 * drawn(self.parts[0].load.seed, "temperature") - 1)
        return physics.idle_temperature + (physics.peak_temperature - physics.idle_temperature) * percent / 100 + spread


@dataclass(slots=True)
class SimulatedDevice:
    """One device. Its counters begin at the instant `at`: `energy` in J, `work` in seconds under full load."""

    conditions: DeviceConditions
    at: float
    energy: float = 0.0
    work: float = 0.0
    corrected: float = 0.0
    uncorrected: float = 0.0
    replays: float = 0.0
    remapped: float = 0.0
    temperature: float = field(init=False)

    def __post_init__(self) -> None:
        self.temperature = self.conditions.settled_temperature(0.0)
        self._count_xids(self.conditions.xids)

    def change(self, conditions: DeviceConditions, at: float) -> None:
        """Let other conditions hold from an instant on."""
        self.advance(at)
        before, self.conditions = self.conditions, conditions
        self._count_xids(set(conditions.xids) - set(before.xids))

    def advance(self, at: float) -> None:
        """Let the time up to an instant pass."""
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
        followed = 1 - math.exp(-seconds / now.physics.thermal_time)
        temperature = self.temperature + (now.settled_temperature(percent) - self.temperature) * followed
        if now.heat is not None:
            heated = self.temperature + (now.heat.to - now.physics.idle_temperature) * seconds / now.heat.within
            temperature = max(temperature, min(heated, now.heat.to))
        self.temperature = temperature

    def read(self, at: float) -> SensorReading:
        """Return the sensors of the whole device at an instant, which is never before the last one."""
        self.advance(at)
        now, physics = self.conditions, self.conditions.physics
        load = now.load(at)
        busy = load.gpu
        used, reserved, total = self._memory(load, at)
        lane = _LANE_BYTES.get(physics.pcie_generation, _LANE_BYTES[4]) * physics.pcie_lanes * busy / _HUNDRED
        linked = _LINKED * physics.links * physics.link_speed * 1e3  # MB a second, under full load
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
        """Return the sensors of a partition, of whose device `whole` was read at the same instant."""
        load = self.conditions.load_of(part, at)
        total, reserved = part.memory // _MIB, self._kept(part)
        return replace(whole, **_own(load, _used(load, total - reserved), reserved, total))

    def _count_xids(self, new: Sequence[int] | set[int]) -> None:
        self.uncorrected += sum(number in _UNCORRECTED for number in new)
        self.remapped += sum(number in _REMAPPED for number in new)

    def _memory(self, load: Levels, at: float) -> tuple[int, int, int]:
        """Used, reserved and total, in MiB."""
        now, total = self.conditions, self.conditions.memory // _MIB
        parts = [part for part in now.parts if part.is_partition]
        if not parts:
            reserved = min(now.physics.reserved_memory, total)
            return _used(load, total - reserved), reserved, total
        used = sum(_used(now.load_of(part, at), part.memory // _MIB - self._kept(part)) for part in parts)
        # What is reserved of a device that is cut all through is what is reserved of its parts.
        uncut = total - sum(part.memory // _MIB for part in parts)
        return used, min(now.physics.reserved_memory, uncut + sum(map(self._kept, parts))), total

    def _kept(self, part: Part) -> int:
        """What the driver keeps of a partition, in MiB."""
        total = self.conditions.memory // _MIB
        return self.conditions.physics.reserved_memory * (part.memory // _MIB) // total if total else 0


def _own(load: Levels, used: int, reserved: int, total: int) -> dict[str, Any]:
    """What each partition has of its own: its load and its memory (MiB)."""
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
    """MHz: lower by degrees from where the driver throttles, and half from where the device does by itself."""
    above = temperature - physics.throttle_temperature
    if idle:
        return round(physics.idle_clock)
    if above < 0:
        return round(physics.peak_clock)
    room = physics.slowdown_temperature - physics.throttle_temperature
    lowered = 1.0 if above >= room else above / room
    return round(max(physics.idle_clock, physics.peak_clock * (1 - (1 - _FLOOR) * lowered)))
