"""The data for amd-smi about one device or partition: the file `amd` in the device's directory."""

import hashlib
import json
import re
import textwrap
import uuid
from collections.abc import Mapping, Sequence
from string import Template
from typing import Any

from ..dra.amd_devices import DRIVER_VERSION, FIRST_RENDER, card
from ..model.device import bus_id
from ..model.geometry import PIN
from .exporters import GTT, NAMESPACE, SPEEDS, serial_number
from .simulation import DeviceInfo, MeasuredDevice, Throttle
from .tool_data import assignments, packaged, shell_format, texts

ROCM, TOOL = "7.0.2", "26.0.2+39589fda"  # without the attribute rocmVersion
_GFX = {"0x74a1": "gfx942", "0x74a5": "gfx942"}
_NONE = "N/A"
_INDEX, _PROGRAM = "@index@", "@program@"  # filled in by the script, because they differ between containers
_ARGUMENTS = ("index", "index", "program")  # of its function `show`
_MEASURE = re.compile(r"(\$[a-z_]+|0) (\S+)")
_SECTIONS = json.loads(packaged("amd-sections.json"))
"""The sections of amd-smi by command, as trees of texts in which `$name` is a value."""
_ROWS = texts("amd-texts.txt")
_IDENTITY = ("bdf", "uuid", "kfd_id", "node_id", "partition_id")


def amd_data(shown: MeasuredDevice) -> str:
    """The contents of the file: values of the device, and each section as text and as JSON."""
    values = _values(shown)
    sections: Mapping[str, Mapping[str, Any]] = _filled(_SECTIONS, values)
    # The values of `list` are directly in the device; the other commands have a branch for each section.
    trees = {f"list_{name}": section for name, section in sections["list"].items()}
    for command in ("static", "metric"):
        trees |= {f"{command}_{name}": {name: section} for name, section in sections[command].items()}
    running = sections["process"]["running"] if shown.process_mib else "No running processes detected"
    info = {"process_info": running}
    texts = {
        **{f"{name}_text": _text(tree) for name, tree in trees.items()},
        **{f"{name}_json": _members(tree) for name, tree in trees.items()},
        "process_processes_text": _text(info),
        "process_processes_json": _members({"process_list": [info]}),
        "version_text": sections["version"]["text"],
        "version_json": json.dumps([sections["version"]["json"]], indent=4, ensure_ascii=False) + "\n",
        **_rows(shown, values),
    }
    return assignments(
        {
            "lost": "GPU is lost" if shown.whole.lost else "",
            **{key: values[key] for key in _IDENTITY},
            "list_csv": ",".join(str(values[key]) for key in _IDENTITY),
            **{name: shell_format(text, _ARGUMENTS) for name, text in texts.items()},
        }
    )


def _values(shown: MeasuredDevice) -> dict[str, Any]:
    info, whole, own = shown.info, shown.whole, shown.own
    known, device, physics, raw = info.attributes, info.device, info.physics, info.device.raw
    address = bus_id(raw, info.number)
    digest = hashlib.sha256(device.id.encode()).hexdigest()
    number = card(device, info.number, info.count, max(1, info.slices))
    model = known.get("pciDeviceId", "0x0000").lower()
    units = device.attributes.get("computeUnits", _NONE)
    partition = device.slices.start // max(1, len(device.slices)) if device.is_partition else 0
    compute_mode, memory_mode = _modes(info)
    memory_c = whole.memory_temperature_c
    return {
        "INDEX": _INDEX,
        "PROGRAM": _PROGRAM,
        "tool": TOOL,
        "library": TOOL.partition("+")[0],
        "rocm": known.get("rocmVersion", ROCM),
        "driver": known.get("driverVersion", DRIVER_VERSION),
        "name": info.title,
        "bdf": f"{address[:-1]}{partition}",
        "uuid": str(uuid.uuid5(NAMESPACE, device.id)),
        "hip_uuid": f"GPU-{digest[:16]}",
        "kfd_id": int(digest[16:20], 16),
        "node_id": number + 2,
        "card": number,
        "render": FIRST_RENDER + number,
        "oam": info.number,
        "partition_id": partition,
        "compute_mode": compute_mode,
        "memory_mode": memory_mode,
        "serial": known.get("serialNumber", serial_number(raw.id)),
        "model": model,
        "model_number": known.get("modelNumber", _NONE),
        "vbios": known.get("vbiosVersion", _NONE),
        "gfx_version": known.get("gfxVersion", _GFX.get(model, _NONE)),
        "compute_units": int(units) if units.isdecimal() else units,
        "numa": raw.numa[0] if raw.numa else _NONE,
        "pcie_width": physics.pcie_lanes,
        "pcie_speed": SPEEDS.get(physics.pcie_generation, 32),
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
        "mem_temp": _NONE if memory_c is None else round(memory_c),
        "temp_slowdown": round(physics.throttle_temperature),
        "temp_shutdown": round(physics.shutdown_temperature),
        "clock": whole.sm_clock_mhz,
        "min_clock": round(physics.idle_clock),
        "max_clock": round(physics.peak_clock),
        "mem_clock": whole.memory_clock_mhz,
        "min_mem_clock": round(physics.idle_memory_clock),
        "max_mem_clock": round(physics.peak_memory_clock),
        "vram_total": own.memory_total_mib,
        "vram_used": own.memory_used_mib + own.memory_reserved_mib,
        "vram_free": own.memory_free_mib,
        "gtt": GTT,
        "corrected": whole.ecc_corrected,
        "uncorrected": whole.ecc_uncorrected,
        "process_bytes": shown.process_mib * 2**20,
    }


def _filled(tree: Any, values: Mapping[str, Any]) -> Any:
    """The tree with the values for `$name`. `$name UNIT` becomes a number with its unit, or N/A."""
    if isinstance(tree, dict):
        return {key: _filled(each, values) for key, each in tree.items()}
    if isinstance(tree, list):
        return [_filled(each, values) for each in tree]
    if not isinstance(tree, str):
        return tree
    if hit := _MEASURE.fullmatch(tree):
        value = values[hit[1][1:]] if hit[1] != "0" else 0
        return value if value == _NONE else {"value": value, "unit": hit[2]}
    if tree.startswith("$"):
        return values[tree[1:]]
    return Template(tree).substitute(values)


def _text(tree: Mapping[str, Any], depth: int = 1) -> str:
    """The tree in the form without --json."""
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


def _rows(shown: MeasuredDevice, values: Mapping[str, Any]) -> Mapping[str, str]:
    """The device's lines in the table and in `monitor`."""
    columns = {
        **values,
        "title": f"AMD-SMI {values['library']}  amdgpu version: {values['driver']}  ROCm version: {values['rocm']}",
        "short_name": shown.info.title[:22],
        "busy": f"{values['gfx']} %",
        "traffic": f"{values['umc']} %",
        "watts": f"{values['power']}/{values['power_cap']} W",
        "vram": f"{values['vram_used']}/{values['vram_total']} MB",
        "modes": f"{values['compute_mode']}/{values['memory_mode']}",
        "process": f"{shown.process_mib} MB",
        "none": _NONE,
    }
    rows = {name: row.format(**columns) for name, row in _ROWS.items()}
    return rows if shown.process_mib else {**rows, "table_program": ""}


def _modes(info: DeviceInfo) -> tuple[str, str]:
    """The compute and memory modes, such as CPX and NPS4, from the name of the profile."""
    profile = info.device.profile.partition(PIN)[0]
    if not profile:
        return ("SPX", "NPS1") if info.slices else (_NONE, _NONE)
    compute, _, memory = profile.upper().partition("_")
    return compute, memory or "NPS1"
