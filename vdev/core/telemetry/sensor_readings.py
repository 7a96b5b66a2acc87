"""All sensors of a device, or of a partition of it, at one instant.

A `SensorReading` has the units in its names. What a device does not have is None. It agrees with itself: used, free and
reserved memory make the total; energy is the integral of power; the temperature follows the power of the last minute,
and the clock the temperature; the memory of partitions adds up to no more than that of their device.
"""

import math
from dataclasses import dataclass, replace
from enum import IntFlag
from typing import Any

from ..model.telemetry import Physics
from . import history as past
from .history import WHOLE, Counted, Drive, History, Share
from .shapes import IDLE, Levels, drawn, levels

_HUNDRED = 100.0
_MIB = 2**20
_SPREAD = 2.0  # °C by which devices of a model differ, both ways
_ROOM = 20.0  # °C, which nothing falls below
_LANE_BYTES = {3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}  # a second, one way
_RECEIVED, _SENT, _LINKED = 0.20, 0.08, 0.35  # parts of a link that a full load takes
_COPIED = 0.6  # of the load is memory traffic
_FLOOR = 0.5  # of its clock a device keeps when it slows itself down
_MEMORY_ABOVE = 4.0  # °C of the memory above the chip
_REMAP_FAILED = 64  # the Xid


class Throttle(IntFlag):
    """Why the clocks are not at their highest; the bits of NVML."""

    NONE = 0
    IDLE = 0x1
    HARDWARE = 0x8
    SOFTWARE_THERMAL = 0x20
    HARDWARE_THERMAL = 0x40


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorReading:
    """The sensors of a device or a partition at one instant. Those of a partition that it has no own of are its
    device's.

    `lost`: it has fallen off the bus, and nothing but `xid` and the counters can be trusted. Counters begin when vdev
    first sees the device. `nvlink_mb` counts both directions of all links. `xid` is the last error of the driver that
    is in force, 0 for none.
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


def read(history: History, at: float, memory: int) -> SensorReading:
    """The sensors of a whole device with so much memory (in bytes)."""
    now = history.now
    drive, counted = now.drive, now.at(at)
    physics = drive.physics
    load = past.whole_load(drive, at)
    busy = load.gpu
    temperature = _temperature(history, counted, at)
    throttle = _throttle(physics, temperature, busy)
    used, reserved, total = _memory(drive, load, at, memory)
    lane = _LANE_BYTES.get(physics.pcie_generation, _LANE_BYTES[4]) * physics.pcie_lanes * busy / _HUNDRED
    linked = _LINKED * physics.links * physics.link_bytes / 1e6  # MB a second, under full load
    return SensorReading(
        **_own(load, used, reserved, total),
        temperature_c=temperature,
        memory_temperature_c=temperature + _MEMORY_ABOVE if physics.memory_temperature else None,
        power_w=past.power_under(drive, busy),
        energy_mj=math.floor(counted.energy * 1000),
        sm_clock_mhz=_clock(physics, temperature, idle=not busy),
        memory_clock_mhz=round(physics.peak_memory_clock if busy else physics.idle_memory_clock),
        pcie_rx_bytes_s=lane * _RECEIVED,
        pcie_tx_bytes_s=lane * _SENT,
        pcie_replays=math.floor(counted.replays),
        nvlink_mb=math.floor(counted.work * linked) if physics.links else None,
        ecc_corrected=math.floor(counted.corrected),
        ecc_uncorrected=math.floor(counted.uncorrected),
        remapped_rows=math.floor(counted.remapped),
        remap_failed=_REMAP_FAILED in drive.xids,
        xid=drive.xids[-1] if drive.xids else 0,
        throttle=throttle,
        lost=drive.lost,
    )


def read_part(history: History, at: float, whole: SensorReading, name: str) -> SensorReading:
    """The sensors of a partition, of whose device `whole` was read at the same instant. Raises KeyError."""
    drive = history.now.drive
    share = drive.shares[name]
    load = levels(share.load, at) if drive.runs else IDLE
    total, reserved = share.memory // _MIB, _kept(drive, share, whole.memory_total_mib)
    used = _used(load, total - reserved)
    return replace(whole, **_own(load, used, reserved, total))


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


def _memory(drive: Drive, load: Levels, at: float, memory: int) -> tuple[int, int, int]:
    """Used, reserved and total, in MiB."""
    total = memory // _MIB
    if WHOLE in drive.shares:
        reserved = min(drive.physics.reserved_memory, total)
        return _used(load, total - reserved), reserved, total
    used = cut = kept = 0
    for share in drive.shares.values():
        part, own = share.memory // _MIB, _kept(drive, share, total)
        levels_now = levels(share.load, at) if drive.runs else IDLE
        used, cut, kept = used + _used(levels_now, part - own), cut + part, kept + own
    # What is reserved of a device that is cut all through is what is reserved of its parts.
    return used, min(drive.physics.reserved_memory, total - cut + kept), total


def _kept(drive: Drive, share: Share, total: int) -> int:
    """What the driver keeps of a part, in MiB."""
    return drive.physics.reserved_memory * (share.memory // _MIB) // total if total else 0


def _used(load: Levels, usable: int) -> int:
    return int(usable * load.memory / _HUNDRED)


def _temperature(history: History, counted: Counted, at: float) -> float:
    """What the power of the last while comes to, and a fault that heats the device."""
    drive = history.now.drive
    physics = drive.physics
    span = physics.peak_power - physics.idle_power
    seconds = past.window(physics)
    recent = (counted.energy - history.energy(at - seconds)) / seconds
    warmth = (recent - physics.idle_power) / span if span else 0.0
    own = physics.idle_temperature + (physics.peak_temperature - physics.idle_temperature) * warmth
    lot = next((share.load.lot for share in drive.shares.values()), 0)
    own = max(_ROOM, own + _SPREAD * (2 * drawn(lot, -3) - 1))
    return own + max(0.0, counted.heated_to - own) * counted.heated


def _throttle(physics: Physics, temperature: float, busy: float) -> Throttle:
    found = Throttle.NONE if busy else Throttle.IDLE
    if temperature >= physics.throttle_temperature:
        found |= Throttle.SOFTWARE_THERMAL
    if temperature >= physics.slowdown_temperature:
        found |= Throttle.HARDWARE | Throttle.HARDWARE_THERMAL
    return found


def _clock(physics: Physics, temperature: float, *, idle: bool) -> int:
    """MHz: lower by degrees from where the driver throttles, and half from where the device does by itself."""
    above = temperature - physics.throttle_temperature
    if idle:
        return round(physics.idle_clock)
    if above < 0:
        return round(physics.peak_clock)
    room = physics.slowdown_temperature - physics.throttle_temperature
    lowered = 1.0 if above >= room else above / room
    return round(max(physics.idle_clock, physics.peak_clock * (1 - (1 - _FLOOR) * lowered)))
