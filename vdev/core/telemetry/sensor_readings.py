"""All sensors of a device, or of a partition of it, at one instant."""

from dataclasses import dataclass
from enum import IntFlag


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
