"""What drives each device now: its entry's pattern, the pods that hold it, what they say of their load, and faults."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from ..inventory.resources import Inventory, Resource
from ..model.device import Device, Key, base_id
from ..model.faults.fault_answers import XidError
from ..model.faults.fault_effects import CountErrors, Overheat, SensorFault
from ..model.telemetry import EntryTelemetry, LoadSpec, Pattern, Range
from ..partitions.geometry import PIN, Geometry
from .history import NO_RATES, WHOLE, Drive, Heat, Rates, Share
from .replay import Series
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
class Situation:
    """All that drives depend on. `loads` are by entry; `pods` are those that hold a slot, by name.

    `xids` and `sensors` are what faults do to devices (without a replica's number). `wishes` are what pods say of their
    load, `replays` the files that entries name. The same `seed` and `node` give the same run.
    """

    devices: Inventory
    loads: Mapping[str, EntryTelemetry]
    pods: Mapping[Key, Collection[str]] = field(default_factory=lambda: MappingProxyType({}))
    xids: Mapping[Key, Sequence[XidError]] = field(default_factory=lambda: MappingProxyType({}))
    sensors: Mapping[Key, Sequence[SensorFault]] = field(default_factory=lambda: MappingProxyType({}))
    wishes: Mapping[str, Range] = field(default_factory=lambda: MappingProxyType({}))
    replays: Mapping[str, Series] = field(default_factory=lambda: MappingProxyType({}))
    seed: int = 0
    node: str = ""


def drives(situation: Situation, before: Mapping[str, Drive], now: float) -> dict[str, Drive]:
    """What drives each device at the instant `now`, by raw device id; `before` is what did."""
    pods: dict[Key, set[str]] = {}
    for (name, slot), holders in situation.pods.items():
        pods.setdefault((name, base_id(slot)), set()).update(holders)
    parts: dict[str, list[tuple[str, Device, Resource]]] = {}
    for name, resource in situation.devices.each_once.items():
        for device in resource.by_device.values():
            if device.raw.entry in situation.loads:
                parts.setdefault(device.raw.id, []).append((name, device, resource))
    return {raw: _drive(situation, [*_whole_alone(of)], pods, before.get(raw), now) for raw, of in parts.items()}


def _whole_alone(parts: Sequence[tuple[str, Device, Resource]]) -> Iterator[tuple[str, Device, Resource]]:
    """The partitions of a device, or the device itself, once."""
    cut = [each for each in parts if each[1].is_partition]
    seen = set()
    for each in cut or parts:
        if each[1].id not in seen:
            seen.add(each[1].id)
            yield each


def _drive(
    situation: Situation,
    parts: Sequence[tuple[str, Device, Resource]],
    pods: Mapping[Key, Collection[str]],
    before: Drive | None,
    now: float,
) -> Drive:
    raw = parts[0][1].raw
    told = situation.loads[raw.entry]
    shares = {}
    for name, device, resource in parts:
        mine = frozenset(pods.get((name, device.id), ()))
        key = device.id if device.is_partition else WHOLE
        last = before.shares.get(key) if before else None
        load = _load(situation, told.load, mine, lot(situation.seed, situation.node, device.id))
        shares[key] = _since(Share(_compute(resource, device), load, device.memory, mine), told.load, last, now)
    keys = [(name, device.id) for name, device, _ in parts]
    xids = tuple(dict.fromkeys(error.number for key in keys for error in situation.xids.get(key, ())))
    faults = [fault for key in keys for fault in situation.sensors.get(key, ())]
    return Drive(
        physics=told.physics,
        shares=MappingProxyType(shares),
        xids=xids,
        lost=LOST in xids,
        heat=next((Heat(fault.to, fault.within) for fault in reversed(faults) if isinstance(fault, Overheat)), None),
        rates=_rates(list(dict.fromkeys(fault for fault in faults if isinstance(fault, CountErrors)))),
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


def _load(situation: Situation, spec: LoadSpec, pods: frozenset[str], number: int) -> Load:
    """The load of these pods together, or none."""
    asked = [situation.wishes[pod] for pod in pods if pod in situation.wishes]
    if not (pods or spec.always):
        return Load(lot=number)
    series = situation.replays.get(spec.file) if spec.pattern is Pattern.REPLAY else None
    pattern = Pattern.IDLE if spec.pattern is Pattern.REPLAY and series is None else spec.pattern
    if not asked:
        return Load(
            pattern=pattern,
            period=spec.period,
            gpu=spec.gpu,
            memory=spec.memory,
            encoder=spec.encoder,
            decoder=spec.decoder,
            series=series,
            lot=number,
        )
    if len(asked) < len(pods):
        asked.append(spec.gpu)
    gpu = Range(min(_HUNDRED, sum(each.low for each in asked)), min(_HUNDRED, sum(each.high for each in asked)))
    return Load(
        pattern=Pattern.STEADY if gpu.low == gpu.high else Pattern.BUSY,
        period=_CHANGES,
        gpu=gpu,
        memory=spec.memory,
        encoder=spec.encoder,
        decoder=spec.decoder,
        lot=number,
    )


def _since(share: Share, spec: LoadSpec, last: Share | None, now: float) -> Share:
    """With the instant from which the load counts: when these pods came; the boot for what is always loaded."""
    since = 0.0 if spec.always else now
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
