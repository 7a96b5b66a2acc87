"""The pools of a node: what each driver publishes of the devices that claims can get.

offers of the configuration  ─► described   names, attributes, capacity, counters   remembered by offer
health, faults, what is away ─► pools       taints, and what only claims keep        remembered by health
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

from ..inventory.resources import Inventory, Resource
from ..memory import Memory
from ..model.device import GONE, Device, Key
from ..model.faults.fault_effects import SetTaint
from .devices import taints
from .devices.described import described
from .devices.published import CounterSet, DraDevice, Pools, PublishedPool
from .devices.recalled import Record, recalled

NO_POOLS: Pools = MappingProxyType({})

Claimed = Mapping[str, Collection[str]]
"""The names of the devices that prepared claims have, by driver; maybe with what was written down of them."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What the pools depend on beside the offers: `devices` with their health, without those that are away; the pools
    `before`, what is `claimed` of them, and the `xids` and the `taints` of fault rules that offered devices have, by
    driver and id.
    """

    devices: Inventory
    before: Pools = field(default_factory=lambda: NO_POOLS)
    claimed: Claimed = field(default_factory=dict)
    xids: Mapping[Key, Sequence[int]] = field(default_factory=dict)
    taints: Mapping[Key, Sequence[SetTaint]] = field(default_factory=dict)


def pools(base: Inventory, now: Moment, memory: Memory) -> Pools:
    """What each driver publishes of what the configuration and discovery come to.

    A device that is claimed stays as it was before while it is away, or is no longer shared, and nothing that overlaps
    it takes its place.
    """
    before = now.before
    lasts = {driver: _last(driver, before.get(driver), held) for driver, held in now.claimed.items() if held}
    drivers = base.claimable.keys() | {driver for driver, last in lasts.items() if last is not None}
    found: dict[str, PublishedPool] = {}
    with memory.round():
        for driver in sorted(drivers):
            last = lasts.get(driver) or before.get(driver)
            offered = base.claimable.get(driver) or replace(last.offered if last else Resource(driver, ()), slots=())
            whole = memory.recall("described", driver, (offered,), partial(described, driver, offered))
            there = now.devices.claimable.get(driver) or offered
            pool = memory.recall(
                "judged", driver, (whole, there, *_rules(driver, now)), partial(_judged, whole, there, now)
            )
            if (held := now.claimed.get(driver, ())) and last:
                pool = _with_held(pool, last, held)
            was = before.get(driver)
            found[driver] = was if was is not None and was == pool and was.offered is pool.offered else pool
    same = before.keys() == found.keys() and all(before[driver] is pool for driver, pool in found.items())
    return before if same else MappingProxyType(found)


def claimed_by_name(before: Pools, claimed: Claimed) -> dict[Key, Device]:
    """The devices that claims have, by driver and the name under which each is published."""
    pools = {driver: _last(driver, before.get(driver), held) for driver, held in claimed.items() if held}
    return {
        (driver, name): pool.by_name[name].device
        for driver, pool in pools.items()
        for name in claimed[driver]
        if pool is not None and name in pool.by_name
    }


def _last(driver: str, before: PublishedPool | None, held: Collection[str]) -> PublishedPool | None:
    """The pool before, and in it what only an earlier process published of what claims have: that was written down."""
    written: Mapping[str, Record] = held if isinstance(held, Mapping) else {}
    known = before.by_name if before else {}
    found = [each for name in sorted(written.keys() - known.keys()) if (each := recalled(name, written[name]))]
    if not found:
        return before
    pool = before or PublishedPool(driver, Resource(driver, ()))
    sets = {each.name: each for _, counters in found for each in counters} | {each.name: each for each in pool.counters}
    devices = (*pool.devices, *(device for device, _ in found))
    return replace(pool, devices=devices, counters=tuple(sets.values()))


def _rules(driver: str, now: Moment) -> tuple[object, ...]:
    """What a pool depends on in what rules say of devices: objects that are new each time, where there are any."""
    return tuple(each for each in (now.xids, now.taints) if any(name == driver for name, _ in each))


def _judged(whole: PublishedPool, there: Resource, now: Moment, _last: object) -> PublishedPool:
    """The pool with taints, and without what is away."""
    devices: list[DraDevice] = []
    for device in whole.devices:
        slot = there.by_id.get(device.device.id)
        if slot is None:
            continue
        key = (whole.driver, slot.id)
        numbers, rules = now.xids.get(key, ()), now.taints.get(key, ())
        if not (slot.health.healthy and not numbers and not rules):
            entry = there.entries[device.entry]
            assert entry.dra is not None
            said = taints.of_health(entry.dra, slot.health, numbers, nvidia=entry.is_nvidia)
            device = replace(device, taints=taints.with_rules(said, rules), health=slot.health)
        devices.append(device)
    if devices == list(whole.devices):
        return whole
    tight = whole.tight or any(device.taints for device in devices)
    return _with_devices(replace(whole, tight=tight), devices, whole.counters)


def _with_devices(pool: PublishedPool, devices: Sequence[DraDevice], known: Iterable[CounterSet]) -> PublishedPool:
    """The pool with other devices, and those of the known sets of counters from which they take."""
    used = {consumed.counter_set for device in devices for consumed in device.consumes}
    sets = {each.name: each for each in known if each.name in used}
    return replace(pool, devices=tuple(devices), counters=tuple(sets.values()))


def _with_held(pool: PublishedPool, last: PublishedPool, held: Collection[str]) -> PublishedPool:
    """The pool with devices that only claims keep in it, in place of what would overlap them."""
    kept = list(_kept(last, pool.by_name, held))
    if not kept:
        return pool
    entries = {each.entry: entry for each in kept if (entry := last.offered.entries.get(each.entry))}
    offered = pool.offered
    if not entries.keys() <= offered.entries.keys():
        offered = replace(offered, entries={**entries, **offered.entries})
    used = {consumed.counter_set for each in kept for consumed in each.consumes}
    sets = {each.name: each for each in last.counters if each.name in used}
    recut = {each.name for each in pool.counters if sets.get(each.name, each) != each}
    beside = []
    for each in pool.devices:
        if any(_excludes(one, each) for one in kept):
            continue
        if recut.isdisjoint(consumed.counter_set for consumed in each.consumes):
            beside.append(each)
        elif each.name in held and (was := last.by_name.get(each.name)):
            # It takes what it took, from counters that stay as they were.
            beside.append(replace(was, taints=each.taints, health=each.health))
    known = (*(each for each in pool.counters if each.name not in sets), *sets.values())
    return _with_devices(replace(pool, offered=offered), [*beside, *kept], known)


def _kept(last: PublishedPool, now: Mapping[str, DraDevice], held: Collection[str]) -> Iterator[DraDevice]:
    """Devices of claims that are away, are no longer shared, or whose name is another device's now."""
    for name in sorted(held):
        device, current = last.by_name.get(name), now.get(name)
        if device is None:
            continue
        there = current if current and current.device.id == device.device.id else None
        if there and (there.shared or not device.shared):
            continue
        health = there.health if there else GONE
        entry = last.offered.entries.get(device.entry)
        if entry is not None and entry.dra is not None:
            yield replace(device, taints=taints.of_loss(entry.dra, nvidia=entry.is_nvidia), health=health, lost=True)
        elif device.lost:
            yield replace(device, health=health)


def _excludes(kept: DraDevice, other: DraDevice) -> bool:
    """Whether a device cannot be offered beside one that a claim keeps: it has its name, or a part of it.

    Where both take from one set of counters, the scheduler sees to that, as long as the set is the same.
    """
    if kept.name == other.name:
        return True
    if kept.group != other.group or (kept.consumes and other.consumes):
        return False
    return not (kept.device.is_partition and other.device.is_partition) or bool(
        set(kept.device.slices) & set(other.device.slices)
    )
