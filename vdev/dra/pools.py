"""The pools of a node: what each DRA driver publishes of the devices that claims can get.

devices for claims       ─► described         names, attributes, capacity, counters
health, faults, presence ─► published_pools   taints, and the devices that only claims keep
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from ..faults.targets import Afflictions
from ..model.device import GONE, Device, Key
from ..planning.resources import Resource
from . import published_devices
from .attributes import described
from .published_devices import CounterSets, DraDevice, Pools, PublishedPool, Record, recalled

Claimed = Mapping[str, Collection[str]]
"""The published names of the devices that prepared claims have, by driver; perhaps a mapping to their records."""


def published_pools(
    offers: Mapping[str, Resource],
    present: Mapping[str, Resource],
    *,
    claimed: Claimed,
    faults: Afflictions,
    before: Pools,
) -> Pools:
    """What each driver publishes, by its name.

    `offers` are all devices for claims, by driver, and `present` those of them that exist now, with their health. A
    claimed device that is gone, or no longer shared, stays as it was in the pools `before`, and nothing that overlaps
    it takes its place.
    """
    lasts = {driver: _last(driver, before.get(driver), held) for driver, held in claimed.items() if held}
    found: dict[str, PublishedPool] = {}
    for driver in sorted(offers.keys() | {driver for driver, last in lasts.items() if last is not None}):
        last = lasts.get(driver) or before.get(driver)
        offered = offers.get(driver) or replace(last.offered if last else Resource(driver, ()), slots=())
        pool = _with_taints(described(driver, offered), present.get(driver) or offered, faults)
        if (held := claimed.get(driver, ())) and last:
            pool = _with_held(pool, last, held)
        found[driver] = pool
    return found


def claimed_by_name(before: Pools, claimed: Claimed) -> dict[Key, Device]:
    """The devices that claims have, by driver and published name."""
    pools = {driver: _last(driver, before.get(driver), held) for driver, held in claimed.items() if held}
    return {
        (driver, name): pool.by_name[name].device
        for driver, pool in pools.items()
        for name in claimed[driver]
        if pool is not None and name in pool.by_name
    }


def _last(driver: str, before: PublishedPool | None, held: Collection[str]) -> PublishedPool | None:
    """The pool before, with the claimed devices that only an earlier process published: their records say how."""
    written: Mapping[str, Record] = held if isinstance(held, Mapping) else {}
    known = before.by_name if before else {}
    found = [each for name in sorted(written.keys() - known.keys()) if (each := recalled(written[name]))]
    if not found:
        return before
    pool = before or PublishedPool(driver, Resource(driver, ()))
    counters = {name: each for lost in found for name, each in lost.counters.items()}
    devices = (*pool.devices, *(lost.device for lost in found))
    return replace(pool, devices=devices, counters={**counters, **pool.counters})


def _with_taints(whole: PublishedPool, present: Resource, faults: Afflictions) -> PublishedPool:
    """The pool with health and taints, and only with the devices that are present."""
    devices: list[DraDevice] = []
    for device in whole.devices:
        slot = present.by_id.get(device.device.id)
        if slot is None:
            continue
        key = (whole.driver, slot.id)
        xids, rules = [each.number for each in faults.xids.get(key, ())], faults.taints.get(key, ())
        if xids or rules or not slot.health.healthy:
            said = published_devices.of_health(present.entries[device.entry], slot.health, xids)
            device = replace(device, taints=published_devices.with_rules(said, rules), health=slot.health)
        devices.append(device)
    return _with_devices(whole, devices, whole.counters)


def _with_devices(pool: PublishedPool, devices: Sequence[DraDevice], known: CounterSets) -> PublishedPool:
    """The pool with other devices, and with the known counter sets that they consume."""
    used = {name for device in devices for name in device.consumes}
    return replace(pool, devices=tuple(devices), counters={name: each for name, each in known.items() if name in used})


def _with_held(pool: PublishedPool, last: PublishedPool, held: Collection[str]) -> PublishedPool:
    """The pool with the devices that only claims keep in it, and without those that overlap them."""
    kept = list(_kept(last, pool.by_name, held))
    if not kept:
        return pool
    entries = {each.entry: entry for each in kept if (entry := last.offered.entries.get(each.entry))}
    offered = pool.offered
    if not entries.keys() <= offered.entries.keys():
        offered = replace(offered, entries={**entries, **offered.entries})
    sets = {name: last.counters[name] for each in kept for name in each.consumes if name in last.counters}
    recut = {name for name, each in pool.counters.items() if sets.get(name, each) != each}
    beside = []
    for each in pool.devices:
        if any(_excludes(one, each) for one in kept):
            continue
        if recut.isdisjoint(each.consumes):
            beside.append(each)
        elif each.name in held and (was := last.by_name.get(each.name)):
            # The counters stay as they were, so it consumes what it consumed.
            beside.append(replace(was, taints=each.taints, health=each.health))
    return _with_devices(replace(pool, offered=offered), [*beside, *kept], {**pool.counters, **sets})


def _kept(last: PublishedPool, now: Mapping[str, DraDevice], held: Collection[str]) -> Iterator[DraDevice]:
    """Devices of claims that are gone, are no longer shared, or whose name now belongs to another device."""
    for name in sorted(held):
        device, current = last.by_name.get(name), now.get(name)
        if device is None:
            continue
        there = current if current and current.device.id == device.device.id else None
        if there and (there.shared or not device.shared):
            continue
        entry = last.offered.entries.get(device.entry)
        taints = published_devices.of_loss(entry) if entry else device.taints
        yield replace(device, taints=taints, health=there.health if there else GONE, lost=True)


def _excludes(kept: DraDevice, other: DraDevice) -> bool:
    """Whether a device cannot be offered beside one that a claim keeps: it has its name, or a part of it.

    If both consume counters of one set, the counters keep overlapping devices from being allocated together.
    """
    if kept.name == other.name:
        return True
    if kept.group != other.group or (kept.consumes and other.consumes):
        return False
    return not (kept.device.is_partition and other.device.is_partition) or bool(
        set(kept.device.slices) & set(other.device.slices)
    )
