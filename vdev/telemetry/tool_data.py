"""The devices that containers get with a tool, and what its file says of each."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

from ..model.device import Device
from ..model.entry import EntrySpec
from ..model.sources import VirtualSource
from ..model.telemetry import PhysicsModel, SmiTool
from ..planning.plan import DesiredState
from ..planning.resources import numbers
from .amd_tool import amd_data
from .nvidia_tool import nvidia_data
from .simulation import DeviceConditions, Part, SimulatedDevice
from .tool_text import Shown

MIB = 2**20
_LINK = 100  # the score of one NVLink between two devices


def text_of(shown: Shown) -> str:
    """What the tool's file says."""
    return nvidia_data(shown) if shown.tool is SmiTool.NVIDIA else amd_data(shown)


def equipped(plan: DesiredState) -> dict[str, Shown]:
    """The devices with a tool, by id, as they are without a load."""
    found: dict[str, tuple[EntrySpec, Device]] = {}
    for resource in plan.base.everything.values():
        for device in resource.by_device.values():
            if device.raw.tools:
                found.setdefault(device.id, (resource.entries[device.raw.entry], device))
    if not found:
        return {}
    tools = {device.raw.id: entry.smi or SmiTool.NVIDIA for entry, device in found.values()}
    links = _links(found.values())
    minors, counts = numbers(plan.base), Counter(tools.values())
    shown = {}
    for name, (entry, device) in found.items():
        raw, tool = device.raw, tools[device.raw.id]
        physics = plan.loads[entry.name].physics if entry.name in plan.loads else PhysicsModel()
        conditions = DeviceConditions(physics=physics, memory=raw.memory, parts=(Part(id=raw.id),))
        whole, part = SimulatedDevice(conditions, at=0.0).read(0.0), None
        if device.is_partition:
            total = device.memory // MIB
            part = replace(whole, memory_total_mib=total, memory_free_mib=total, memory_reserved_mib=0)
        shown[name] = Shown(
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
    return shown


def held(plan: DesiredState) -> frozenset[str]:
    """The devices that pods have, by id: of device plugins, and by claims."""
    uses = [each for each in plan.holdings.claimed if each.driver in plan.pools]
    claimed = (plan.pools[use.driver].by_name.get(use.device) for use in uses)
    return plan.held | {each.device.id for each in claimed if each is not None}


def published(plan: DesiredState) -> frozenset[str]:
    """The devices that claims can have, or have though the configuration lost them, by id."""
    return frozenset(each.device.id for pool in plan.pools.values() for each in pool.by_name.values())


def _links(found: Collection[tuple[EntrySpec, Device]]) -> Mapping[str, Mapping[str, int]]:
    """How many links lead from each raw device to which others, by their ids."""
    entries = {entry.name: entry for entry, _ in found}
    ids = {(device.raw.entry, device.raw.index): device.raw.id for _, device in found}
    links: dict[str, dict[str, int]] = {}
    for name, entry in entries.items():
        pairs = entry.source.links if isinstance(entry.source, VirtualSource) else {}
        for (one, other), score in pairs.items():
            ends = ids.get((name, one)), ids.get((name, other))
            if one != other and score >= _LINK and ends[0] is not None and ends[1] is not None:
                links.setdefault(ends[0], {})[ends[1]] = score // _LINK
                links.setdefault(ends[1], {})[ends[0]] = score // _LINK
    return links
