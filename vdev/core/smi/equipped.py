"""Which devices of a plan have a tool for their containers, and all that it is told of each."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..decide import Plan
from ..inventory.numbers import numbers
from ..inventory.resources import Resource
from ..model.device import Device
from ..model.telemetry import Physics, SmiTool
from ..spec import VirtualSource
from ..telemetry import history, reading
from ..telemetry.history import Drive
from ..telemetry.reading import Reading
from . import amd, nvidia
from .shown import MIB, Shown

_LINK = 100  # the score of one NVLink between two devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipped:
    """A device that containers get with a tool; `shown` says the rest, as `Shown` has it."""

    tool: SmiTool
    device: Device
    physics: Physics
    minor: int
    cut: bool
    peers: Mapping[str, int] = field(default_factory=dict)
    slices: int = 0

    def unloaded(self, now: float) -> tuple[Reading, Reading]:
        """The sensors of the whole device and its own, before anything is known of them."""
        whole = reading.read(history.begin(Drive(physics=self.physics)), now, self.device.raw.memory)
        if not self.device.is_partition:
            return whole, whole
        total = self.device.memory // MIB
        return whole, replace(whole, memory_total_mib=total, memory_free_mib=total, memory_reserved_mib=0)

    def data(self, whole: Reading, own: Reading, *, holders: int, lost: bool, wall: float) -> str:
        """What the tool's file says at one moment."""
        shown = Shown(
            device=self.device,
            physics=self.physics,
            whole=whole,
            part=own if self.device.is_partition else None,
            minor=self.minor,
            lost=lost or whole.lost,
            cut=self.cut,
            holders=holders,
            peers=self.peers,
            slices=self.slices,
            wall=wall,
        )
        return nvidia.data(shown) if self.tool is SmiTool.NVIDIA else amd.data(shown)


def equipped(plan: Plan) -> dict[str, Equipped]:
    """The devices with a tool, by id, in the order of the file."""
    found: dict[str, tuple[Resource, Device]] = {}
    for resource in plan.base.everything.values():
        for device in resource.by_device.values():
            if device.raw.tools:
                found.setdefault(device.id, (resource, device))
    minors = numbers(plan.base)
    by_index = {(device.raw.entry, device.raw.index): device.raw.id for _, device in found.values()}
    cut = {device.raw.id for _, device in found.values() if device.is_partition}
    return {
        each: Equipped(
            tool=resource.entries[device.raw.entry].smi or SmiTool.NVIDIA,
            device=device,
            physics=plan.loads[device.raw.entry].physics if device.raw.entry in plan.loads else Physics(),
            minor=minors[device.raw.id],
            cut=device.raw.id in cut,
            peers=_peers(resource, device, by_index),
            slices=_slices(resource, device),
        )
        for each, (resource, device) in found.items()
    }


def _slices(resource: Resource, device: Device) -> int:
    geometry = resource.entries[device.raw.entry].geometry
    return geometry.slices if geometry is not None else 0


def _peers(resource: Resource, device: Device, by_index: Mapping[tuple[str, int], str]) -> Mapping[str, int]:
    """How many links lead to which other devices."""
    source, raw = resource.entries[device.raw.entry].source, device.raw
    if not isinstance(source, VirtualSource):
        return {}
    peers = {}
    for (one, other), score in source.links.items():
        if raw.index in (one, other) and one != other and score >= _LINK:
            peer = by_index.get((raw.entry, other if raw.index == one else one))
            if peer is not None:
                peers[peer] = score // _LINK
    return peers
