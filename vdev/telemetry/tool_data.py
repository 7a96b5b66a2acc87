"""The devices that containers get with a tool, and what its file says of each."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from ..model.device import Device
from ..model.entry import EntrySpec, VirtualSource
from ..model.telemetry import PhysicsModel, SmiTool
from ..planning.plan import Plan
from ..planning.resources import numbers
from .amd_tool import amd_data
from .nvidia_tool import nvidia_data
from .simulation import DeviceConditions, Part, SensorReading, SimulatedDevice
from .tool_text import Shown

MIB = 2**20
_LINK = 100  # the score of one NVLink between two devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipped:
    """A device that containers get with a tool; `Shown` says what the fields are."""

    tool: SmiTool
    device: Device
    physics: PhysicsModel
    minor: int
    count: int
    peers: Mapping[str, int] = field(default_factory=dict)
    slices: int = 0

    def unloaded(self, now: float) -> tuple[SensorReading, SensorReading]:
        """The sensors of the whole device and its own, before anything is known of them."""
        raw = self.device.raw
        conditions = DeviceConditions(physics=self.physics, memory=raw.memory, parts=(Part(id=raw.id),))
        whole = SimulatedDevice(conditions, now).read(now)
        if not self.device.is_partition:
            return whole, whole
        total = self.device.memory // MIB
        return whole, replace(whole, memory_total_mib=total, memory_free_mib=total, memory_reserved_mib=0)

    def data(self, whole: SensorReading, own: SensorReading, *, holders: int, lost: bool, wall: float) -> str:
        """What the tool's file says at one moment."""
        shown = Shown(
            device=self.device,
            physics=self.physics,
            whole=whole,
            part=own if self.device.is_partition else None,
            minor=self.minor,
            count=self.count,
            lost=lost or whole.lost,
            holders=holders,
            peers=self.peers,
            slices=self.slices,
            wall=wall,
        )
        return nvidia_data(shown) if self.tool is SmiTool.NVIDIA else amd_data(shown)


def equipped(plan: Plan) -> dict[str, Equipped]:
    """The devices with a tool, by id."""
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
    return {
        each: Equipped(
            tool=tools[device.raw.id],
            device=device,
            physics=plan.loads[entry.name].physics if entry.name in plan.loads else PhysicsModel(),
            minor=minors[device.raw.id],
            count=counts[tools[device.raw.id]],
            peers=links.get(device.raw.id, {}),
            slices=entry.geometry.slices if entry.geometry is not None else 0,
        )
        for each, (entry, device) in found.items()
    }


def held(plan: Plan) -> frozenset[str]:
    """The devices that pods have, by id: of device plugins, and by claims."""
    uses = [each for each in plan.holdings.claimed if each.driver in plan.pools]
    claimed = (plan.pools[use.driver].by_name.get(use.device) for use in uses)
    return plan.held | {each.device.id for each in claimed if each is not None}


def published(plan: Plan) -> frozenset[str]:
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
