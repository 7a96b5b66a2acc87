"""The file that nvidia-smi shows: a device's facts and sensors under the names that the script knows.

Sources: `nvidia-smi` of drivers 580 and 590 on H100, H200 and L40S for which values there are and how they look.
"""

import hashlib
from collections.abc import Mapping

from ..exposition.dcgm import DRIVER
from ..model.pci import bus_id
from ..partitions.geometry import PIN, instance_id
from ..telemetry.sensor_readings import Throttle
from .shown import Shown, assignments

CUDA = "13.0"
"""Of devices whose attribute cudaVersion says nothing."""

_LIMITS_RELATIVE = ("ada-lovelace", "hopper", "blackwell")  # tell how far they are from their highest temperature
_NEEDS_RESET = frozenset({46, 48, 62, 64, 74, 79, 95, 110, 119, 120, 136, 140, 143, 154, 155, 158})
"""Xids whose resolution in NVIDIA's catalog is to reset the GPU."""
_REMAP_PENDING = 63  # the Xid of a row that is remapped at the next reset
_VIDEO = 0.78  # of the graphics clock is that of the video engines
_NONE = "N/A"


def data(shown: Shown) -> str:
    """The contents of the file `nvidia`."""
    return assignments({**_identity(shown), **_sensors(shown), **_errors(shown), **_partition(shown)})


def _identity(shown: Shown) -> Mapping[str, object]:
    known, raw, physics = shown.attributes, shown.device.raw, shown.physics
    address = bus_id(raw, shown.minor)
    domain, bus, place = address.split(":")
    digest = hashlib.sha256(raw.id.encode()).hexdigest()
    cluster = known.get("fabricClusterUuid", "")
    return {
        "written": shown.written.strftime("%a %b %e %H:%M:%S %Y"),
        "written_csv": shown.written.strftime("%Y/%m/%d %H:%M:%S.%f")[:-3],
        "driver": known.get("driverVersion", DRIVER),
        "cuda": known.get("cudaVersion", CUDA),
        "lost": "GPU is lost" if shown.lost else "",
        "name": known.get("model") or known.get("product") or raw.entry,
        "brand": known.get("brand", "Tesla" if known.get("model", "").startswith("Tesla") else "NVIDIA"),
        "architecture": known.get("architecture", _NONE).replace("-", " ").title() or _NONE,
        "compute_cap": known.get("computeCapability", _NONE),
        "uuid": raw.id,
        "serial": str(int(digest[:16], 16))[:13].ljust(13, "0"),
        "pdi": f"0x{digest[16:32]}",
        "minor": shown.minor,
        "bus_id": f"0000{address}".upper(),
        "pci_domain": domain.upper(),
        "pci_bus": bus.upper(),
        "pci_device": place.partition(".")[0].upper(),
        "pci_id": known.get("pciDeviceId", _NONE),
        "pci_sub_id": known.get("pciSubsystemId", _NONE),
        "vbios": known.get("vbiosVersion", _NONE),
        "board_id": f"0x{int(bus, 16) * 256:x}",
        "board_part": known.get("boardPartNumber", _NONE),
        "gpu_part": known.get("gpuPartNumber", _NONE),
        "inforom": known.get("inforomVersion", _NONE),
        "inforom_ecc": _NONE,
        "numa": raw.numa[0] if raw.numa else "",
        "persistence": "Enabled",
        "mig": _mig(shown),
        "ecc": "Enabled",
        "link_gen": physics.pcie_generation,
        "link_gen_max": physics.pcie_generation,
        "link_width": physics.pcie_lanes,
        "link_width_max": physics.pcie_lanes,
        "links": physics.links,
        "link_speed": f"{physics.link_bytes / 2e9:.3f}",
        "nvlinks": " ".join(f"{peer}={count}" for peer, count in shown.peers.items()),
        "fabric_state": "Completed" if cluster else _NONE,
        "fabric_status": "Success" if cluster else _NONE,
        "fabric_clique": known.get("fabricCliqueId", "0") if cluster else _NONE,
        "fabric_cluster": cluster or _NONE,
    }


def _mig(shown: Shown) -> str:
    if not shown.slices:
        return _NONE
    return "Enabled" if shown.device.is_partition else "Disabled"


def _sensors(shown: Shown) -> Mapping[str, object]:
    now, physics = shown.whole, shown.physics
    whole = _mig(shown) != "Enabled"  # instances share the engines, and what each does is told nowhere

    def percent(value: float) -> object:
        return round(value) if whole else _NONE

    relative = shown.attributes.get("architecture") in _LIMITS_RELATIVE
    idle = bool(now.throttle & Throttle.IDLE)
    rests = idle and now.memory_clock_mhz < physics.peak_memory_clock / 2
    hottest, temperature = round(physics.throttle_temperature), round(now.temperature_c)
    memory_temperature = now.memory_temperature_c
    return {
        "total": now.memory_total_mib,
        "reserved": now.memory_reserved_mib,
        "used": now.memory_used_mib,
        "free": now.memory_free_mib,
        "bar1": _bar1(shown),
        "util": percent(now.gpu_percent),
        "mem_util": percent(now.copy_percent),
        "enc_util": percent(now.encoder_percent),
        "dec_util": percent(now.decoder_percent),
        "idle_util": percent(0),
        "process_memory": shown.process_mib,
        "temp": temperature,
        "temp_margin": hottest - temperature if relative else _NONE,
        "temp_shutdown": round(physics.shutdown_temperature),
        "temp_slowdown": round(physics.slowdown_temperature),
        "temp_max": hottest,
        "mem_temp": _NONE if memory_temperature is None else round(memory_temperature),
        "power": f"{now.power_w:.2f}",
        "power_limit": f"{physics.peak_power:.2f}",
        "power_least": _NONE,
        "fan": _NONE,
        "pstate": "P8" if rests else "P0",
        "clock": now.sm_clock_mhz,
        "mem_clock": now.memory_clock_mhz,
        "video_clock": round(now.sm_clock_mhz * _VIDEO),
        "max_clock": round(physics.peak_clock),
        "max_mem_clock": round(physics.peak_memory_clock),
        "max_video_clock": round(physics.peak_clock * _VIDEO),
        "why_mask": f"0x{int(now.throttle):016X}",
        "why_idle": _active(idle),
        "why_power": _active(False),
        "why_hw": _active(bool(now.throttle & Throttle.HARDWARE)),
        "why_hot": _active(bool(now.throttle & Throttle.SOFTWARE_THERMAL)),
        "pcie_tx": round(now.pcie_tx_bytes_s / 1000),
        "pcie_rx": round(now.pcie_rx_bytes_s / 1000),
        "replays": now.pcie_replays,
    }


def _active(is_so: bool) -> str:
    return "Active" if is_so else "Not Active"


def _bar1(shown: Shown) -> int:
    """The smallest power of two that maps all memory, in MiB."""
    return 1 << max(8, (shown.whole.memory_total_mib - 1).bit_length())


def _errors(shown: Shown) -> Mapping[str, object]:
    now = shown.whole
    return {
        "dram_corrected": now.ecc_corrected,
        "dram_uncorrected": now.ecc_uncorrected,
        "sram_corrected": 0,
        "sram_uncorrected": 0,
        "sram_parity": 0,
        "sram_exceeded": "No",
        "corrected": now.ecc_corrected,
        "uncorrected": now.ecc_uncorrected,
        "remapped_corrected": 0,
        "remapped_uncorrected": now.remapped_rows,
        "remapped_pending": "Yes" if now.xid == _REMAP_PENDING else "No",
        "remapped_failed": "Yes" if now.remap_failed else "No",
        "recovery": "Reset" if now.xid in _NEEDS_RESET else "None",
    }


def _partition(shown: Shown) -> Mapping[str, object]:
    device, part = shown.device, shown.part
    if part is None:
        return {"mig_uuid": ""}
    told, size = device.attributes, max(1, len(device.slices))
    return {
        "mig_uuid": device.id,
        "mig_profile": device.profile.partition(PIN)[0],
        "mig_gi": instance_id(shown.slices, device.slices),
        "mig_ci": 0,
        "mig_sms": told.get("multiprocessors", _NONE),
        "mig_ce": told.get("engines.copy", 0),
        "mig_enc": told.get("engines.encoder", 0),
        "mig_dec": told.get("engines.decoder", 0),
        "mig_ofa": told.get("engines.ofa", 0),
        "mig_jpg": told.get("engines.jpeg", 0),
        "mig_total": part.memory_total_mib,
        "mig_reserved": part.memory_reserved_mib,
        "mig_used": part.memory_used_mib,
        "mig_free": part.memory_free_mib,
        "mig_bar1": (_bar1(shown) - shown.whole.memory_total_mib) * size // (shown.slices or 1),
        "mig_uncorrected": 0,
    }
