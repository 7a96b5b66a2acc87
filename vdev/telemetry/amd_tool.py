"""What amd-smi shows of a device: the texts that it picks from, in the file `amd` of the device's directory."""

import hashlib
import json
import textwrap
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from ..dra.attributes import DRIVER_VERSION, FIRST_RENDER, card
from ..model.device import bus_id
from ..model.geometry import PIN
from .amd import GTT, NAMESPACE, SPEEDS, serial_number
from .simulation import Throttle
from .tool_text import Shown, assignments, escaped

MIB = 2**20
ROCM, TOOL = "7.0.2", "26.0.2+39589fda"
"""Of devices whose attributes say nothing."""
_GFX = {"0x74a1": "gfx942", "0x74a5": "gfx942"}
_NONE = "N/A"
_INDEX, _PROGRAM = "@INDEX@", "@PROGRAM@"  # where the script puts what only the container knows


def amd_data(shown: Shown) -> str:
    """The contents of the file `amd`: values of the device, and what each section says as text and as JSON."""
    sections = {
        "list": {"device": _identity(shown), "enumeration": _enumeration(shown)},
        "static": _static(shown),
        "metric": _metric(shown),
    }
    values: dict[str, object] = {
        "written": shown.written.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lost": "GPU is lost" if shown.lost else "",
        **_identity(shown),
        "list_csv": ",".join(str(value) for value in _identity(shown).values()),
    }
    for command, members in sections.items():
        for name, section in members.items():
            # What `list` says stands directly in the device, the others have a branch for each section.
            tree = section if command == "list" else {name: section}
            values[f"{command}_{name}_text"] = escaped(_text(tree))
            values[f"{command}_{name}_json"] = escaped(_members(tree))
    return assignments({**values, **_processes(shown), **_version(shown), **_rows(shown)})


def _measure(value: object, unit: str) -> object:
    return _NONE if value is None else {"value": value, "unit": unit}


def _text(tree: Mapping[str, Any], depth: int = 1) -> str:
    """The tree as the tool prints it without --json."""
    lines = []
    for key, value in tree.items():
        title = f"{'    ' * depth}{key.upper()}:"
        if isinstance(value, Mapping) and value.keys() != {"value", "unit"}:
            lines.append(f"{title}\n{_text(value, depth + 1)}")
        else:
            lines.append(f"{title} {_leaf(value)}\n")
    return "".join(lines)


def _leaf(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{value['value']} {value['unit']}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_leaf, value))}]"
    return str(value)


def _members(tree: Mapping[str, Any]) -> str:
    """The tree as members of a JSON object, without its braces."""
    inside = json.dumps(tree, indent=4, ensure_ascii=False)[2:-2]
    return textwrap.indent(inside, "    ").replace(f'"{_INDEX}"', _INDEX)


def _identity(shown: Shown) -> dict[str, object]:
    device = shown.device
    address = bus_id(device.raw, shown.minor)
    return {
        "bdf": f"{address[:-1]}{_partition_id(shown)}",
        "uuid": str(uuid.uuid5(NAMESPACE, device.id)),
        "kfd_id": int(_digest(shown)[16:20], 16),
        "node_id": _card(shown) + 2,
        "partition_id": _partition_id(shown),
    }


def _enumeration(shown: Shown) -> dict[str, object]:
    number = _card(shown)
    return {
        "render": f"renderD{FIRST_RENDER + number}",
        "card": f"card{number}",
        "hsa_id": number + 2,
        "hip_id": _INDEX,
        "hip_uuid": f"GPU-{_digest(shown)[:16]}",
    }


def _static(shown: Shown) -> Mapping[str, Mapping[str, object]]:
    known, device, physics = shown.attributes, shown.device, shown.physics
    model = known.get("pciDeviceId", "0x0000").lower()
    serial = known.get("serialNumber", serial_number(device.raw.id))
    numa = device.raw.numa[0] if device.raw.numa else _NONE
    compute, memory = _modes(shown)
    units = device.attributes.get("computeUnits", _NONE)
    return {
        "asic": {
            "market_name": shown.title,
            "vendor_id": "0x1002",
            "vendor_name": "Advanced Micro Devices Inc. [AMD/ATI]",
            "subvendor_id": "0x1002",
            "device_id": model,
            "subsystem_id": model,
            "rev_id": "0x00",
            "asic_serial": serial,
            "oam_id": shown.minor,
            "num_compute_units": int(units) if units.isdecimal() else units,
            "target_graphics_version": known.get("gfxVersion", _GFX.get(model, _NONE)),
        },
        "bus": {
            "bdf": _identity(shown)["bdf"],
            "max_pcie_width": physics.pcie_lanes,
            "max_pcie_speed": _measure(_speed(shown), "GT/s"),
            "pcie_interface_version": f"Gen {physics.pcie_generation}",
            "slot_type": "OAM",
        },
        "vbios": {
            "name": known.get("vbiosVersion", _NONE),
            "build_date": _NONE,
            "part_number": _NONE,
            "version": _NONE,
        },
        "limit": {
            "max_power": _measure(round(physics.peak_power), "W"),
            "min_power": _measure(0, "W"),
            "socket_power": _measure(round(physics.peak_power), "W"),
            "slowdown_edge_temperature": _NONE,
            "slowdown_hotspot_temperature": _measure(round(physics.throttle_temperature), "C"),
            "slowdown_vram_temperature": _NONE,
            "shutdown_edge_temperature": _NONE,
            "shutdown_hotspot_temperature": _measure(round(physics.shutdown_temperature), "C"),
            "shutdown_vram_temperature": _NONE,
        },
        "driver": {"name": "amdgpu", "version": _driver(shown)},
        "board": {
            "model_number": known.get("modelNumber", _NONE),
            "product_serial": serial,
            "fru_id": _NONE,
            "product_name": shown.title,
            "manufacturer_name": "AMD",
        },
        "vram": {
            "type": "HBM",
            "vendor": _NONE,
            "size": _measure(shown.own.memory_total_mib, "MB"),
            "bit_width": _NONE,
        },
        "numa": {"node": numa, "affinity": numa},
        "partition": {
            "accelerator_partition": compute,
            "memory_partition": memory,
            "partition_id": _partition_id(shown),
        },
    }


def _metric(shown: Shown) -> Mapping[str, Mapping[str, object]]:
    physics, whole, own = shown.physics, shown.whole, shown.own
    memory_c = whole.memory_temperature_c
    bandwidth = round((whole.pcie_rx_bytes_s + whole.pcie_tx_bytes_s) * 8 / 1e6)
    used = own.memory_used_mib + own.memory_reserved_mib
    idle = _measure(0, "%")
    vram = {"total": own.memory_total_mib, "used": used, "free": own.memory_free_mib}
    return {
        "usage": {
            "gfx_activity": _measure(round(own.gpu_percent), "%"),
            "umc_activity": _measure(round(own.copy_percent), "%"),
            "mm_activity": _NONE,
            "vcn_activity": [idle] * 4,
            "jpeg_activity": [idle] * 32 + [_NONE] * 8,
        },
        "power": {
            "socket_power": _measure(round(whole.power_w), "W"),
            "gfx_voltage": _NONE,
            "soc_voltage": _NONE,
            "mem_voltage": _NONE,
            "throttle_status": "THROTTLED" if whole.throttle & ~Throttle.IDLE else "UNTHROTTLED",
            "power_management": "ENABLED",
        },
        "clock": {
            "gfx_0": {
                "clk": _measure(whole.sm_clock_mhz, "MHz"),
                "min_clk": _measure(round(physics.idle_clock), "MHz"),
                "max_clk": _measure(round(physics.peak_clock), "MHz"),
                "clk_locked": "DISABLED",
                "deep_sleep": "DISABLED",
            },
            "mem_0": {
                "clk": _measure(whole.memory_clock_mhz, "MHz"),
                "min_clk": _measure(round(physics.idle_memory_clock), "MHz"),
                "max_clk": _measure(round(physics.peak_memory_clock), "MHz"),
                "clk_locked": _NONE,
                "deep_sleep": "DISABLED",
            },
        },
        "temperature": {
            "edge": _measure(round(whole.temperature_c), "C"),
            "hotspot": _measure(round(whole.temperature_c), "C"),
            "mem": _measure(None if memory_c is None else round(memory_c), "C"),
        },
        "pcie": {
            "width": physics.pcie_lanes,
            "speed": _measure(_speed(shown), "GT/s"),
            "bandwidth": _measure(bandwidth, "Mb/s"),
            "replay_count": whole.pcie_replays,
            "l0_to_recovery_count": _NONE,
            "replay_roll_over_count": _NONE,
            "nak_sent_count": _NONE,
            "nak_received_count": _NONE,
        },
        "ecc": {
            "total_correctable_count": whole.ecc_corrected,
            "total_uncorrectable_count": whole.ecc_uncorrected,
            "total_deferred_count": 0,
            "cache_correctable_count": _NONE,
            "cache_uncorrectable_count": _NONE,
        },
        "ecc_blocks": {
            "UMC": {
                "correctable_count": whole.ecc_corrected,
                "uncorrectable_count": whole.ecc_uncorrected,
                "deferred_count": 0,
            },
        },
        "fan": {"speed": _NONE, "max": _NONE, "rpm": _NONE, "usage": _NONE},
        "energy": {"total_energy_consumption": _measure(whole.energy_mj // 1000, "J")},
        "mem_usage": {
            **{f"{key}_vram": _measure(mib, "MB") for key, mib in vram.items()},
            **{f"{key}_visible_vram": _measure(mib, "MB") for key, mib in vram.items()},
            "total_gtt": _measure(GTT, "MB"),
            "used_gtt": _measure(0, "MB"),
            "free_gtt": _measure(GTT, "MB"),
        },
    }


def _processes(shown: Shown) -> Mapping[str, object]:
    """The container's first program, where a container has the device."""
    process: object = "No running processes detected"
    if shown.process_mib:
        used = _measure(shown.process_mib * MIB, "B")
        nothing = _measure(0, "B")
        process = {
            "name": _PROGRAM,
            "pid": 1,
            "memory_usage": {"gtt_mem": nothing, "cpu_mem": nothing, "vram_mem": used},
            "mem_usage": used,
            "usage": {"gfx": _measure(0, "ns"), "enc": _measure(0, "ns")},
            "cu_occupancy": round(shown.own.gpu_percent),
        }
    info = {"process_info": process}
    return {
        "process_processes_text": escaped(_text(info)),
        "process_processes_json": escaped(_members({"process_list": [info]})),
    }


def _version(shown: Shown) -> Mapping[str, object]:
    rocm, driver = shown.attributes.get("rocmVersion", ROCM), _driver(shown)
    library = TOOL.partition("+")[0]
    told = {
        "tool": "AMDSMI Tool",
        "version": TOOL,
        "amdsmi_library_version": library,
        "rocm_version": rocm,
        "amdgpu_version": driver,
        "amd_hsmp_driver_version": _NONE,
    }
    text = (
        f"AMDSMI Tool: {TOOL} | AMDSMI Library version: {library} | ROCm version: {rocm} | "
        f"amdgpu version: {driver} | amd_hsmp version: N/A\n"
    )
    title = f"AMD-SMI {library}  amdgpu version: {driver}  ROCm version: {rocm}"
    return {
        "version_text": escaped(text),
        "version_json": escaped(json.dumps([told], indent=4, ensure_ascii=False) + "\n"),
        "table_head": escaped(f"| {title:<77}|\n"),
    }


def _rows(shown: Shown) -> Mapping[str, object]:
    """The device's lines in the table and in `monitor`, without its number, which the container knows."""
    whole, own, physics = shown.whole, shown.own, shown.physics
    memory_c = _NONE if whole.memory_temperature_c is None else round(whole.memory_temperature_c)
    used, power = own.memory_used_mib + own.memory_reserved_mib, round(whole.power_w)
    vram = f"{used}/{own.memory_total_mib} MB"
    busy, traffic = round(own.gpu_percent), f"{round(own.copy_percent)} %"
    process = f"{shown.process_mib} MB"
    first = (
        f"| {_identity(shown)['bdf']:<13}{shown.title[:22]:>22} | {traffic:<9}{round(whole.temperature_c):>3} °C"
        f"{whole.ecc_uncorrected:>6}{f'{power}/{round(physics.peak_power)} W':>17} |\n"
    )
    modes = "/".join(_modes(shown))
    second = f"{shown.minor:>8}{modes:>16} | {f'{busy} %':<9}{_NONE:>5}{vram:>24} |\n"
    program = f"{'0.0 B':>11}{process:>10}{process:>11}{busy:>7}%  |\n" if shown.process_mib else ""
    monitor = (
        f"{_partition_id(shown):>5}{power:>5} W{round(whole.temperature_c):>5} °C{memory_c:>5} °C"
        f"{whole.sm_clock_mhz:>6} MHz{busy:>5} %{round(own.copy_percent):>5} %{_NONE:>7}{_NONE:>7}"
        f"{used:>8}/{own.memory_total_mib} MB\n"
    )
    rows = {"table_first": first, "table_second": second, "table_program": program, "monitor_row": monitor}
    return {key: escaped(row) for key, row in rows.items()}


def _driver(shown: Shown) -> str:
    return shown.attributes.get("driverVersion", DRIVER_VERSION)


def _speed(shown: Shown) -> int:
    return SPEEDS.get(shown.physics.pcie_generation, 32)


def _digest(shown: Shown) -> str:
    return hashlib.sha256(shown.device.id.encode()).hexdigest()


def _card(shown: Shown) -> int:
    return card(shown.device, shown.minor, shown.count, max(1, shown.slices))


def _modes(shown: Shown) -> tuple[str, str]:
    """The compute and memory modes, such as CPX and NPS4: the profile's name says both."""
    profile = shown.device.profile.partition(PIN)[0]
    if not profile:
        return ("SPX", "NPS1") if shown.slices else (_NONE, _NONE)
    compute, _, memory = profile.upper().partition("_")
    return compute, memory or "NPS1"


def _partition_id(shown: Shown) -> int:
    device = shown.device
    return device.slices.start // max(1, len(device.slices)) if device.is_partition else 0
