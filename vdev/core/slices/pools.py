"""The pools of a node: what each driver publishes of the devices that claims can get.

offers of the configuration  ─► described   names, attributes, capacity, counters   remembered by offer
health, faults, what is away ─► pools       taints, and what only claims keep        remembered by health
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from ..inventory.resources import Inventory, Resource
from ..memory import Memory
from ..model.device import Health
from . import taints
from .described import described
from .published import DraDevice, Pool, Pools

NO_POOLS: Pools = MappingProxyType({})
_AWAY = Health(healthy=False, reason="gone")
Claimed = Mapping[str, Collection[str]]
"""The names of the devices that prepared claims have, by driver."""


def pools(base: Inventory, now: Inventory, before: Pools, claimed: Claimed, memory: Memory) -> Pools:
    """What each driver publishes.

    `base` is what the configuration and discovery come to, `now` the same with health, without what is away. A device
    that is `claimed` stays as it was `before` while it is away, and nothing that overlaps it takes its place.
    """
    drivers = base.claimable.keys() | {driver for driver in before if claimed.get(driver)}
    if not drivers:
        return NO_POOLS
    memory.begin()
    found: dict[str, Pool] = {}
    for driver in sorted(drivers):
        offered = base.claimable.get(driver) or replace(before[driver].offered, slots=())
        whole = memory.recall("described", driver, (offered,), partial(described, driver, offered))
        there = now.claimable.get(driver) or offered
        last, held = before.get(driver), claimed.get(driver, ())
        make = partial(_current, whole, there, last, held)
        pool = memory.recall("pool", driver, (whole, there), make) if not held else make(None)
        found[driver] = last if last is not None and last == pool and last.offered is pool.offered else pool
    same = before.keys() == found.keys() and all(before[driver] is pool for driver, pool in found.items())
    return before if same else MappingProxyType(found)


def _current(whole: Pool, there: Resource, last: Pool | None, held: Collection[str], _last: object) -> Pool:
    """The pool with taints, without what is away, and with what claims keep."""
    devices = [made for each in whole.devices if (made := _judged(each, there)) is not None]
    kept = list(_kept(last, {each.name: each for each in devices}, held)) if last else []
    if kept:
        devices = [each for each in devices if not any(_excludes(one, each) for one in kept)]
    if not kept and devices == list(whole.devices):
        return whole
    if last is None or not kept:
        return replace(whole, devices=tuple(devices))
    used = {consumed.counter_set for each in kept for consumed in each.consumes}
    sets = {each.name: each for each in (*last.counters, *whole.counters) if each.name in used}
    entries = {each.entry: last.offered.entries[each.entry] for each in kept}
    offered = whole.offered
    if not entries.keys() <= offered.entries.keys():
        offered = replace(offered, entries={**entries, **offered.entries})
    return replace(
        whole,
        devices=(*devices, *kept),
        counters=tuple({**sets, **{each.name: each for each in whole.counters}}.values()),
        offered=offered,
    )


def _judged(device: DraDevice, there: Resource) -> DraDevice | None:
    slot = there.by_id.get(device.device.id)
    if slot is None:
        return None
    if slot.health.healthy:
        return device
    entry = there.entries[device.entry]
    assert entry.dra is not None
    said = taints.of_health(entry.dra, slot.health, nvidia=entry.is_nvidia)
    return replace(device, taints=said, health=slot.health)


def _kept(last: Pool, now: Mapping[str, DraDevice], held: Collection[str]) -> Iterator[DraDevice]:
    """Devices of claims that are away, or whose name is another device's now."""
    for name in sorted(held):
        device, current = last.by_name.get(name), now.get(name)
        entry = last.offered.entries.get(device.entry) if device else None
        if device is None or entry is None or entry.dra is None or (current and _is_same(current, device)):
            continue
        yield replace(device, taints=taints.of_loss(entry.dra, nvidia=entry.is_nvidia), health=_AWAY, lost=True)


def _is_same(one: DraDevice, other: DraDevice) -> bool:
    return one.device.id == other.device.id


def _excludes(kept: DraDevice, other: DraDevice) -> bool:
    """Whether a device cannot be offered beside one that a claim keeps: it has its name, or a part of it.

    Where both take from one set of counters, the scheduler sees to that.
    """
    if kept.name == other.name:
        return True
    if kept.group != other.group or (kept.consumes and other.consumes):
        return False
    return not (kept.device.is_partition and other.device.is_partition) or bool(
        set(kept.device.slices) & set(other.device.slices)
    )
