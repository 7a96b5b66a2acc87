"""The makers' command-line tools for containers: which devices have one, its script, and the form of its data files.

A tool is one POSIX shell script, mounted at the path of the maker's own tool. It prints from the data files of the
container's devices, which `nvidia_tool` and `amd_tool` render.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, lru_cache
from importlib import resources

from ..model.device import Device
from ..model.entry import Entry
from ..model.telemetry import Measured, PhysicsModel, SmiTool
from ..planning.plan import DesiredState
from ..planning.resources import numbers
from .simulation import DeviceConditions, Part, SensorReading, SimulatedDevice

MIB = 2**20
_LINK = 100  # the score of one NVLink between two devices


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDevice:
    """A device or a partition at one moment, with all data that its maker's tool shows."""

    device: Device
    tool: SmiTool = SmiTool.NVIDIA
    physics: PhysicsModel
    whole: SensorReading  # of the whole device
    part: SensorReading | None = None  # of the partition, if it is one
    minor: int = 0  # number of the whole device, among those of its maker on the node
    count: int = 1  # of these devices
    lost: bool = False  # the device cannot be reached any more
    holders: int = 0  # containers that use it
    peers: Mapping[str, int] = field(default_factory=dict)  # links to other devices, by their ids
    slices: int = 0  # memory slices of the whole device, 0 if it cannot be partitioned
    wall: float = 0.0  # seconds since the epoch

    @property
    def attributes(self) -> Mapping[str, str]:
        """The attributes of the whole device, from the file and the preset."""
        return self.device.raw.attributes

    @property
    def title(self) -> str:
        """The name of the model."""
        return self.attributes.get("model") or self.attributes.get("product") or self.device.raw.entry

    @property
    def own(self) -> SensorReading:
        """The sensors of the partition, or of the whole device if it is none."""
        return self.part or self.whole

    @property
    def process_mib(self) -> int:
        """The memory of one container's program, in MiB."""
        return self.own.memory_used_mib // self.holders if self.holders else 0

    @property
    def written(self) -> datetime:
        return datetime.fromtimestamp(self.wall, UTC)


# --- the devices of a plan --------------------------------------------------------------------------------------------


def devices_with_tool(plan: DesiredState) -> dict[str, ToolDevice]:
    """The devices whose containers get a tool, by id, with the sensors of an idle device."""
    found: dict[str, tuple[Entry, Device]] = {}
    for resource in plan.observed.inventory.everything.values():
        for device in resource.by_device.values():
            if device.raw.tools:
                found.setdefault(device.id, (resource.entries[device.raw.entry], device))
    if not found:
        return {}
    tools = {device.raw.id: entry.smi_tool or SmiTool.NVIDIA for entry, device in found.values()}
    links, loads = _links(found.values()), loads_of(plan)
    minors, counts = numbers(plan.observed.inventory), Counter(tools.values())
    result = {}
    for name, (entry, device) in found.items():
        raw, tool = device.raw, tools[device.raw.id]
        physics = loads[entry.name].physics if entry.name in loads else PhysicsModel()
        whole, part = _idle(physics, raw.memory), None
        if device.is_partition:
            total = device.memory // MIB
            part = replace(whole, memory_total_mib=total, memory_free_mib=total, memory_reserved_mib=0)
        result[name] = ToolDevice(
            device=device,
            tool=tool,
            physics=physics,
            whole=whole,
            part=part,
            minor=minors[raw.id],
            count=counts[tool],
            peers=links.get(raw.id, {}),
            slices=entry.geometry.slices if entry.geometry is not None else 0,
        )
    return result


@lru_cache(maxsize=64)
def _idle(physics: PhysicsModel, memory: int) -> SensorReading:
    """The sensors of an idle device, which are the same for all devices of a model."""
    conditions = DeviceConditions(physics=physics, memory=memory, parts=(Part(id=""),))
    return SimulatedDevice(conditions, at=0.0).read(0.0)


def loads_of(plan: DesiredState) -> dict[str, Measured]:
    """The load model of each entry, by its name."""
    return {entry.name: entry.measured for entry in plan.observed.entries if entry.measured}


def held(plan: DesiredState) -> frozenset[str]:
    """The ids of devices that pods use, through device plugins or claims."""
    uses = [each for each in plan.observed.in_use.claims if each.driver in plan.pools]
    claimed = (plan.pools[use.driver].by_name.get(use.device) for use in uses)
    return plan.held | {each.device.id for each in claimed if each is not None}


def published(plan: DesiredState) -> frozenset[str]:
    """The ids of devices that claims can get, or still use after an edit removed them."""
    return frozenset(each.device.id for pool in plan.pools.values() for each in pool.by_name.values())


def _links(found: Collection[tuple[Entry, Device]]) -> Mapping[str, Mapping[str, int]]:
    """The number of links from each whole device to each other one, by their ids."""
    entries = {entry.name: entry for entry, _ in found}
    ids = {(device.raw.entry, device.raw.index): device.raw.id for _, device in found}
    links: dict[str, dict[str, int]] = {}
    for name, entry in entries.items():
        pairs = entry.virtual.links if entry.virtual else {}
        for (one, other), score in pairs.items():
            ends = ids.get((name, one)), ids.get((name, other))
            if one != other and score >= _LINK and ends[0] is not None and ends[1] is not None:
                links.setdefault(ends[0], {})[ends[1]] = score // _LINK
                links.setdefault(ends[1], {})[ends[0]] = score // _LINK
    return links


# --- scripts ----------------------------------------------------------------------------------------------------------


def packaged(name: str) -> str:
    """The text of a file in this directory."""
    return resources.files(__package__).joinpath(name).read_text("utf-8")


@cache
def script(tool: str) -> str:
    text = packaged(f"{tool}.sh")
    if tool != "nvidia-smi":
        return text
    comment, blank, program = text.partition("\n\n")
    return f"{comment}\n{_fields()}{blank}{program}"


def _fields() -> str:
    """nvidia-fields.txt as two shell functions: one finds a field, the other lists the fields of a switch."""
    cases: list[str] = []
    listed: dict[str, list[str]] = {}
    switch = ""
    for line in packaged("nvidia-fields.txt").splitlines():
        if line.startswith("["):
            switch = line.strip("[]")
            listed[switch] = [f'List of valid properties to query for the switch "--query-{switch}=":', ""]
        elif line and not line.startswith("#"):
            joined, rest = line.split(" |", 1)
            names = joined.split()
            unit, value, meaning = (part.strip() for part in rest.split("|", 2))
            plain = " Plain=yes" if value.startswith("=") else ""
            known = " | ".join(f"{switch}:{name}" for name in names)
            sets = f'Head={names[0]} Unit={unit} Value="{value.removeprefix("=").strip()}"{plain}'
            cases.append(f"        {known}) {sets} ;;\n")
            listed[switch] += [" or ".join(f'"{name}"' for name in names), meaning, ""]
    helps = []
    for switch, lines in listed.items():
        text = "\n".join(lines).replace("'", "'\\''")
        helps.append(f"        {switch}) say '{text}' ;;\n")
    return (
        "\nfield() {\n    case $1 in\n" + "".join(cases) + "        *) return 1 ;;\n    esac\n}\n"
        "\nhelp_fields() {\n    case $1 in\n" + "".join(helps) + '        *) unknown "$Option" ;;\n    esac\n}\n'
    )


# --- data files -------------------------------------------------------------------------------------------------------


def assignments(values: Mapping[str, object]) -> str:
    """The values as shell assignments, one per line."""
    return "".join(f"{key}={quoted(str(value))}\n" for key, value in values.items())


def quoted(text: str) -> str:
    """The text as one word of a shell. Control characters, which would break the line, become blanks."""
    plain = text if text.isprintable() else "".join(each if each.isprintable() else " " for each in text)
    return "'" + plain.replace("'", "'\\''") + "'"


_MARK = re.compile(r"@(index|part|program|short)(?::([-.0-9]+))?@")


def shell_format(text: str, arguments: Sequence[str]) -> str:
    """The text as a format of the shell's `printf`, which gets these arguments in this order.

    `@index@` in the text stands for an argument, and `@index:3@` for one with a width. `%.0s` skips an argument: if one
    was left, `printf` would print the format again.
    """
    if not text:
        return ""
    skip, result = "%.0s", ""
    used = end = 0  # the arguments and the characters of the text so far
    for mark in _MARK.finditer(text):
        argument = arguments.index(mark[1], used)
        result += _literal(text[end : mark.start()])
        result += skip * (argument - used)
        result += f"%{mark[2] or ''}s"
        used, end = argument + 1, mark.end()
    return result + _literal(text[end:]) + skip * (len(arguments) - used)


def _literal(text: str) -> str:
    """The text as a part of a format of `printf`, on one line."""
    return text.replace("\\", "\\\\").replace("%", "%%").replace("\n", "\\n").replace("\t", "\\t")
