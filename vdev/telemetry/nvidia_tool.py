"""The data for nvidia-smi about one GPU or MIG device: the file `nvidia` in the device's directory."""

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from string import Template
from xml.sax.saxutils import escape

from ..model.device import bus_id
from ..model.geometry import PIN, instance_id
from .exporters import DRIVER
from .simulation import MeasuredDevice, Throttle
from .tool_data import assignments, shell_format, texts

_ARGUMENTS = ("index", "part", "program", "short")  # of the script's function `show`
CUDA = "13.0"  # without the attribute cudaVersion

_LIMITS_RELATIVE = ("ada-lovelace", "hopper", "blackwell")  # architectures that report temperature limits as distances
_NEEDS_RESET = frozenset({46, 48, 62, 64, 74, 79, 95, 110, 119, 120, 136, 140, 143, 154, 155, 158})
"""Xids whose resolution in NVIDIA's catalog is to reset the GPU."""
_REMAP_PENDING = 63  # the Xid of a row that is remapped at the next reset
_VIDEO = 0.78  # clock of the video engines, as a fraction of the graphics clock
_NONE = "N/A"
_UNKNOWN = re.compile(f"{_NONE} [%C](?=<)")  # in the XML log, a value that is not known has no unit
_TEXTS = texts("nvidia-texts.txt")
_LONGEST_NAME = 27  # characters, in the table
_XML_LOG = texts("nvidia-log.xml")


def nvidia_data(shown: MeasuredDevice, wall: float) -> str:
    """The contents of the file: values of the device, and texts that the script prints.

    `wall` is the time in seconds since the epoch.
    """
    values = _values(shown, wall)
    printed = {**_table(shown, values), **_log(shown, values), "nvlink_rows": _nvlinks(shown, values)}
    return assignments({**values, **{name: shell_format(text, _ARGUMENTS) for name, text in printed.items()}})


def _values(shown: MeasuredDevice, wall: float) -> Mapping[str, object]:
    info, physics, now, part = shown.info, shown.info.physics, shown.whole, shown.own
    known, device, raw = info.attributes, info.device, info.device.raw
    written = datetime.fromtimestamp(wall, UTC)
    address = bus_id(raw, info.number)
    domain, bus, place = address.split(":")
    digest = hashlib.sha256(raw.id.encode()).hexdigest()
    cluster = known.get("fabricClusterUuid", "")
    mig = _NONE if not info.slices else "Enabled" if device.is_partition else "Disabled"
    idle = bool(now.throttle & Throttle.IDLE)
    rests = idle and now.memory_clock_mhz < physics.peak_memory_clock / 2
    hottest, temperature = round(physics.throttle_temperature), round(now.temperature_c)
    relative = known.get("architecture") in _LIMITS_RELATIVE

    def percent(value: float) -> object:
        return _NONE if mig == "Enabled" else round(value)  # the real tool has no utilization of MIG instances

    values = {
        "written": written.strftime("%a %b %e %H:%M:%S %Y"),
        "written_csv": written.strftime("%Y/%m/%d %H:%M:%S.%f")[:-3],
        "driver": known.get("driverVersion", DRIVER),
        "cuda": known.get("cudaVersion", CUDA),
        "lost": "GPU is lost" if now.lost else "",
        "name": info.title,
        "brand": known.get("brand", "Tesla" if known.get("model", "").startswith("Tesla") else "NVIDIA"),
        "architecture": known.get("architecture", _NONE).replace("-", " ").title() or _NONE,
        "compute_cap": known.get("computeCapability", _NONE),
        "uuid": raw.id,
        "serial": str(int(digest[:16], 16))[:13].ljust(13, "0"),
        "pdi": f"0x{digest[16:32]}",
        "minor": info.number,
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
        "numa": raw.numa[0] if raw.numa else "",
        "mig": mig,
        "link_gen": physics.pcie_generation,
        "link_width": physics.pcie_lanes,
        "nvlinks": " ".join(f"{peer}={count}" for peer, count in info.peers.items()),
        "fabric_state": "Completed" if cluster else _NONE,
        "fabric_status": "Success" if cluster else _NONE,
        "fabric_clique": known.get("fabricCliqueId", "0") if cluster else _NONE,
        "fabric_cluster": cluster or _NONE,
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
        "mem_temp": _NONE if now.memory_temperature_c is None else round(now.memory_temperature_c),
        "power": f"{now.power_w:.2f}",
        "power_limit": f"{physics.peak_power:.2f}",
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
        "corrected": now.ecc_corrected,
        "uncorrected": now.ecc_uncorrected,
        "remapped_uncorrected": now.remapped_rows,
        "remapped_pending": "Yes" if now.xid == _REMAP_PENDING else "No",
        "remapped_failed": "Yes" if now.remap_failed else "No",
        "recovery": "Reset" if now.xid in _NEEDS_RESET else "None",
        "mig_uuid": "",
        "mig_profile": "",
        "mig_gi": _NONE,
        "mig_ci": _NONE,
    }
    if device.is_partition:
        attributes = device.attributes
        values |= {
            "mig_uuid": device.id,
            "mig_profile": device.profile.partition(PIN)[0],
            "mig_gi": instance_id(info.slices, device.slices),
            "mig_ci": 0,
            "mig_sms": attributes.get("multiprocessors", _NONE),
            "mig_ce": attributes.get("engines.copy", 0),
            "mig_enc": attributes.get("engines.encoder", 0),
            "mig_dec": attributes.get("engines.decoder", 0),
            "mig_ofa": attributes.get("engines.ofa", 0),
            "mig_jpg": attributes.get("engines.jpeg", 0),
            "mig_total": part.memory_total_mib,
            "mig_reserved": part.memory_reserved_mib,
            "mig_used": part.memory_used_mib,
            "mig_free": part.memory_free_mib,
            "mig_bar1": (_bar1(shown) - now.memory_total_mib) * max(1, len(device.slices)) // (info.slices or 1),
        }
    return values


def _active(is_so: bool) -> str:
    return "Active" if is_so else "Not Active"


def _bar1(shown: MeasuredDevice) -> int:
    """The smallest power of two that maps all memory, in MiB."""
    return 1 << max(8, (shown.whole.memory_total_mib - 1).bit_length())


def _table(shown: MeasuredDevice, values: Mapping[str, object]) -> Mapping[str, str]:
    """The heads of the table, and the device's lines in it and in lists of devices."""
    name = str(values["name"])
    columns = {
        **values,
        "short_name": name if len(name) <= _LONGEST_NAME else f"{name[:24]}...",
        "errors": "On" if values["mig"] == "Enabled" else values["uncorrected"],
        "celsius": f"{values['temp']}C",
        "watts": f"{int(shown.whole.power_w)}W / {int(shown.info.physics.peak_power):>4}W",
        "memory": f"{values['used']}MiB / {values['total']:>6}MiB",
        "busy": values["util"] if values["util"] == _NONE else f"{values['util']}%",
    }
    without = set() if shown.info.device.is_partition else {"mig_rows"}
    rows = {name: text.format(**columns) for name, text in _TEXTS.items() if name not in without}
    return rows if shown.process_mib else {**rows, "table_program": ""}


def _log(shown: MeasuredDevice, values: Mapping[str, object]) -> Mapping[str, str]:
    """The pieces of the XML log. The script adds the time, the number of GPUs and the programs."""
    physics = shown.info.physics
    relative = values["temp_margin"] != _NONE
    base = round(physics.throttle_temperature)
    limits = {"shutdown": physics.shutdown_temperature, "slowdown": physics.slowdown_temperature, "max": base}
    shown_values = {
        **values,
        # Later architectures report limits as distances from the highest temperature.
        "limit": "tlimit_" if relative else "",
        **{f"limit_{key}": base - round(limit) if relative else round(limit) for key, limit in limits.items()},
        "bar1_free": _bar1(shown) - 1,
        "pci_number": str(values["pci_id"]).removeprefix("0x"),
        "pci_sub_number": str(values["pci_sub_id"]).removeprefix("0x"),
    }
    plain = {key: escape(str(value)) for key, value in shown_values.items()}
    without = set() if shown.info.device.is_partition else {"xml_mig"}
    found = {
        name: _UNKNOWN.sub(_NONE, Template(text).substitute(plain))
        for name, text in _XML_LOG.items()
        if name not in without
    }
    if not shown.info.device.is_partition:
        found["xml_gpu"] += "\t\t\tNone\n"
    return found


def _nvlinks(shown: MeasuredDevice, values: Mapping[str, object]) -> str:
    if values["mig"] == "Enabled":
        return "Nvlink queries are not supported for Devices in MIG mode\n"
    speed = f"{shown.info.physics.link_speed / 2:.3f}"
    return "".join(f"\t Link {link}: {speed} GB/s\n" for link in range(shown.info.physics.links))
