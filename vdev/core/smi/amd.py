"""The file that amd-smi shows: a device's facts and sensors under the names that the script knows.

A partition is a device of its own here, as it is to the ROCm driver. Sources: amd-smi 25 and 26 on MI300X
for which values there are and how they look.
"""

import hashlib
import uuid
from collections.abc import Mapping

from ..exposition.amd import GTT, NAMESPACE, SPEEDS, serial_number
from ..model.pci import bus_id
from ..partitions.geometry import PIN
from ..slices.devices.amd import DRIVER_VERSION, FIRST_RENDER, card
from ..telemetry.sensor_readings import Throttle
from .shown import MIB, Shown, assignments

DRIVER, ROCM, TOOL = DRIVER_VERSION, "7.0.2", "26.0.2+39589fda"
"""Of devices whose attributes driverVersion and rocmVersion say nothing."""
_GFX = {"0x74a1": "gfx942", "0x74a5": "gfx942"}


def data(shown: Shown) -> str:
    """The contents of the file `amd`."""
    known, device, physics, whole, own = shown.attributes, shown.device, shown.physics, shown.whole, shown.own
    raw = device.raw
    digest = hashlib.sha256(device.id.encode()).hexdigest()
    compute, memory = _modes(shown)
    model = known.get("pciDeviceId", "0x0000").lower()
    address = bus_id(raw, shown.minor)
    speed = SPEEDS.get(physics.pcie_generation, 32)
    total = own.memory_total_mib
    number = card(device, shown.minor, shown.count, max(1, shown.slices))
    values: Mapping[str, object] = {
        "written": shown.written.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "tool": TOOL,
        "rocm": known.get("rocmVersion", ROCM),
        "driver": known.get("driverVersion", DRIVER),
        "lost": "GPU is lost" if shown.lost else "",
        "name": known.get("model") or known.get("product") or raw.entry,
        "bdf": f"{address[:-1]}{_partition_id(shown) if device.is_partition else 0}",
        "uuid": str(uuid.uuid5(NAMESPACE, device.id)),
        "hip_uuid": f"GPU-{digest[:16]}",
        "kfd_id": int(digest[16:20], 16),
        "node_id": number + 2,
        "card": number,
        "oam": shown.minor,
        "render": FIRST_RENDER + number,
        "partition_id": _partition_id(shown),
        "compute_partition": compute,
        "memory_partition": memory,
        "serial": known.get("serialNumber", serial_number(raw.id)),
        "model_number": known.get("modelNumber", "N/A"),
        "device_id": model,
        "vbios": known.get("vbiosVersion", "N/A"),
        "gfx_version": known.get("gfxVersion", _GFX.get(model, "N/A")),
        "compute_units": device.attributes.get("computeUnits", "N/A"),
        "numa": raw.numa[0] if raw.numa else "",
        "pcie_width": physics.pcie_lanes,
        "pcie_speed": speed,
        "pcie_gen": physics.pcie_generation,
        "pcie_bandwidth": round((whole.pcie_rx_bytes_s + whole.pcie_tx_bytes_s) * 8 / 1e6),
        "replays": whole.pcie_replays,
        "gfx": round(own.gpu_percent),
        "umc": round(own.copy_percent),
        "power": round(whole.power_w),
        "power_cap": round(physics.peak_power),
        "energy": whole.energy_mj // 1000,
        "throttle": "THROTTLED" if whole.throttle & ~Throttle.IDLE else "UNTHROTTLED",
        "temp": round(whole.temperature_c),
        "temp_edge": round(whole.temperature_c),
        "mem_temp": "N/A" if whole.memory_temperature_c is None else round(whole.memory_temperature_c),
        "temp_slowdown": round(physics.throttle_temperature),
        "temp_shutdown": round(physics.shutdown_temperature),
        "clock": whole.sm_clock_mhz,
        "min_clock": round(physics.idle_clock),
        "max_clock": round(physics.peak_clock),
        "mem_clock": whole.memory_clock_mhz,
        "min_mem_clock": round(physics.idle_memory_clock),
        "max_mem_clock": round(physics.peak_memory_clock),
        "vram_total": total,
        "vram_used": own.memory_used_mib + own.memory_reserved_mib,
        "vram_free": own.memory_free_mib,
        "gtt": GTT,
        "corrected": whole.ecc_corrected,
        "uncorrected": whole.ecc_uncorrected,
        "process_memory": shown.process_mib,
        "process_memory_bytes": shown.process_mib * MIB,
        "cu_occupancy": round(own.gpu_percent),
    }
    return assignments(values)


def _modes(shown: Shown) -> tuple[str, str]:
    """The compute and memory modes, such as CPX and NPS4: the profile's name says both."""
    profile = shown.device.profile.partition(PIN)[0]
    if not profile:
        return ("SPX", "NPS1") if shown.slices else ("N/A", "N/A")
    compute, _, memory = profile.upper().partition("_")
    return compute, memory or "NPS1"


def _partition_id(shown: Shown) -> int:
    device = shown.device
    return device.slices.start // max(1, len(device.slices)) if device.is_partition else 0
