"""What drives each device now: its entry's pattern, the pods that hold it, what they say of their load, and faults."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from ..inventory.resources import Inventory, Resource
from ..model.device import Device, Health
from ..model.faults.fault_effects import CountErrors, Overheat, SensorFault
from ..model.telemetry import EntryTelemetry, LoadPattern, LoadSpec, Range
from ..partitions.geometry import PIN, Geometry
from .history import NO_RATES, WHOLE, Drive, Rates, Share
from .shapes import Load, lot

ANNOTATIONS = ("vdev.dev/load", "run.ai/simulated-gpu-utilization")
"""By which a pod says how it loads its devices; the first that is there counts."""

LOST = 79
"""The Xid of a device that has fallen off the bus."""

_WISH = re.compile(r"\s*(\d{1,3}(?:\.\d{1,6})?)\s*%?\s*(?:-\s*(\d{1,3}(?:\.\d{1,6})?)\s*%?\s*)?")
_HUNDRED = 100.0
_MINUTE = 60.0
_CHANGES = 10.0  # seconds from one level of a range to the next


class WishError(ValueError):
    """An annotation that says no load."""


def wish(text: str) -> Range:
    """The load of an annotation: a number, or a range such as 60-90, in percent. Raises WishError."""
    found = _WISH.fullmatch(text)
    if found is None:
        raise WishError("expected percent such as 75, or a range such as 60-90")
    low = float(found[1])
    high = float(found[2]) if found[2] else low
    if max(low, high) > _HUNDRED:
        raise WishError(f"{max(low, high):g} is more than 100 percent")
    if low > high:
        raise WishError(f"the range begins at {low:g} and ends at {high:g}")
    return Range(low, high)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSituation:
    """All that drives depend on. `loads` are by entry, everything else by the id of a device or partition.

    `claimed` are partitions that claims cut from devices which are offered whole, by raw device. `pods` are those that
    hold a device, `xids` and `sensors` what faults do to it. `wishes` are what pods say of their load. The same `seed`
    and `node` give the same run.
    """

    devices: Inventory
    loads: Mapping[str, EntryTelemetry]
    claimed: Mapping[str, Sequence[Device]] = field(default_factory=dict)
    pods: Mapping[str, Collection[str]] = field(default_factory=dict)
    xids: Mapping[str, Sequence[int]] = field(default_factory=dict)
    sensors: Mapping[str, Sequence[SensorFault]] = field(default_factory=dict)
    wishes: Mapping[str, Range] = field(default_factory=dict)
    seed: int = 0
    node: str = ""


@dataclass(frozen=True, slots=True)
class OfferedPart:
    """A device, or a partition of one, under the name of a resource or of a driver."""

    device: Device
    resource: Resource
    health: Health


def pieces(situation: LoadSituation) -> dict[str, tuple[OfferedPart, ...]]:
    """What each raw device consists of now, by its id: its partitions, or itself."""
    found: dict[str, dict[str, OfferedPart]] = {}
    for resource in situation.devices.each_once.values():
        for slot in resource.slots:
            device = slot.device
            if device.raw.entry in situation.loads:
                found.setdefault(device.raw.id, {}).setdefault(device.id, OfferedPart(device, resource, slot.health))
    for raw, devices in situation.claimed.items():
        if raw in found:
            whole = next(iter(found[raw].values()))
            found[raw] |= {device.id: OfferedPart(device, whole.resource, whole.health) for device in devices}
    return {raw: _cut(tuple(parts.values())) for raw, parts in found.items()}


def _cut(parts: tuple[OfferedPart, ...]) -> tuple[OfferedPart, ...]:
    if len(parts) == 1:
        return parts
    return tuple(each for each in parts if each.device.is_partition) or parts[:1]


def drives(
    situation: LoadSituation, parts: Mapping[str, Sequence[OfferedPart]], before: Mapping[str, Drive], now: float
) -> dict[str, Drive]:
    """What drives each device at the instant `now`, by raw device id; `parts` are its `pieces`, `before` what did."""
    return {raw: _drive(situation, of, before.get(raw), now) for raw, of in parts.items()}


def _drive(situation: LoadSituation, parts: Sequence[OfferedPart], before: Drive | None, now: float) -> Drive:
    raw = parts[0].device.raw
    told = situation.loads[raw.entry]
    shares = {}
    for piece in parts:
        device = piece.device
        mine = frozenset(situation.pods.get(device.id, ()))
        key = device.id if device.is_partition else WHOLE
        last = before.shares.get(key) if before else None
        load = _load(situation, told.load, mine, lot(situation.seed, situation.node, device.id))
        share = Share(_compute(piece.resource, device), load, device.memory, mine)
        shares[key] = _since(share, told.load, last, now)
    ids = dict.fromkeys((raw.id, *(piece.device.id for piece in parts)))
    xids = tuple(dict.fromkeys(number for each in ids for number in situation.xids.get(each, ())))
    faults = list(dict.fromkeys(fault for each in ids for fault in situation.sensors.get(each, ())))
    return Drive(
        physics=told.physics,
        shares=MappingProxyType(shares),
        xids=xids,
        lost=LOST in xids,
        heat=next((fault for fault in reversed(faults) if isinstance(fault, Overheat)), None),
        rates=_rates([fault for fault in faults if isinstance(fault, CountErrors)]),
    )


def _compute(resource: Resource, device: Device) -> float:
    """The part of its device's compute that a device is."""
    entry = resource.entries.get(device.raw.entry)
    geometry: Geometry | None = entry.geometry if entry else None
    if not device.is_partition or geometry is None:
        return 1.0
    profile = geometry.profile(device.profile.partition(PIN)[0])
    if profile.compute is not None and geometry.compute is not None:
        return profile.compute / geometry.compute
    return profile.slices / geometry.slices


def _load(situation: LoadSituation, spec: LoadSpec, pods: frozenset[str], number: int) -> Load:
    """The load of these pods together, or none."""
    asked = [situation.wishes[pod] for pod in pods if pod in situation.wishes]
    if not (pods or spec.always):
        return Load(lot=number)
    pattern, period, gpu = spec.pattern, spec.period, spec.gpu
    if asked:
        if len(asked) < len(pods):
            asked.append(spec.gpu)
        gpu = Range(min(_HUNDRED, sum(each.low for each in asked)), min(_HUNDRED, sum(each.high for each in asked)))
        pattern = LoadPattern.STEADY if gpu.low == gpu.high else LoadPattern.BUSY
        period = _CHANGES
    return Load(
        pattern=pattern,
        period=period,
        gpu=gpu,
        memory=spec.memory,
        encoder=spec.encoder,
        decoder=spec.decoder,
        lot=number,
    )


def _since(share: Share, spec: LoadSpec, last: Share | None, now: float) -> Share:
    """With the instant from which the load counts: when these pods came; the boot for what is always loaded."""
    since = 0.0 if spec.always or not share.pods else now
    if last is not None and last == replace(share, load=replace(share.load, since=last.load.since)):
        return last
    return replace(share, load=replace(share.load, since=since))


def _rates(faults: Sequence[CountErrors]) -> Rates:
    if not faults:
        return NO_RATES
    return Rates(
        corrected=sum(each.corrected for each in faults) / _MINUTE,
        uncorrected=sum(each.uncorrected for each in faults) / _MINUTE,
        replays=sum(each.replays for each in faults) / _MINUTE,
        remapped=sum(each.remapped for each in faults) / _MINUTE,
    )
