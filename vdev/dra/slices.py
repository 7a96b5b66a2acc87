"""The pools of a node: what each driver publishes of the devices that claims can get.

offers of the configuration  ─► described   names, attributes, capacity, counters
health, faults, what is away ─► pools       taints, and what only claims keep
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from types import MappingProxyType
from typing import Any, TypeVar

from ..faults.effects import TaintFault
from ..model.device import GONE, Device, Key
from ..model.dra import Attribute, DeviceCapacity
from ..model.quantity import written
from ..planning.resources import Inventory, Resource
from . import published_devices
from .attributes import described
from .published_devices import CounterSet, DraDevice, Pools, PublishedPool, Record, Taint, recalled

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
    taints: Mapping[Key, Sequence[TaintFault]] = field(default_factory=dict)


def pools(base: Inventory, now: Moment) -> Pools:
    """What each driver publishes of what the configuration and discovery come to.

    A device that is claimed stays as it was before while it is away, or is no longer shared, and nothing that overlaps
    it takes its place.
    """
    before = now.before
    lasts = {driver: _last(driver, before.get(driver), held) for driver, held in now.claimed.items() if held}
    drivers = base.claimable.keys() | {driver for driver, last in lasts.items() if last is not None}
    found: dict[str, PublishedPool] = {}
    for driver in sorted(drivers):
        last = lasts.get(driver) or before.get(driver)
        offered = base.claimable.get(driver) or replace(last.offered if last else Resource(driver, ()), slots=())
        there = now.devices.claimable.get(driver) or offered
        pool = _judged(described(driver, offered), there, now)
        if (held := now.claimed.get(driver, ())) and last:
            pool = _with_held(pool, last, held)
        found[driver] = pool
    return found


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


def _judged(whole: PublishedPool, there: Resource, now: Moment) -> PublishedPool:
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
            said = published_devices.of_health(entry.dra, slot.health, numbers, nvidia=entry.is_nvidia)
            device = replace(device, taints=published_devices.with_rules(said, rules), health=slot.health)
        devices.append(device)
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
            yield replace(
                device, taints=published_devices.of_loss(entry.dra, nvidia=entry.is_nvidia), health=health, lost=True
            )
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


Document = dict[str, Any]
_Item = TypeVar("_Item")

MOST_DEVICES = 128
MOST_TIGHT = 64
"""Devices of a slice, where one of them has taints or consumes counters."""
MOST_SETS = 8
_LONGEST_NAME = 253
API_VERSION = "resource.k8s.io/v1"
"""What servers have from 1.34 on."""


def specifications(pool: PublishedPool, node: str, *, split: bool = True) -> tuple[Document, ...]:
    """The `spec` of each slice of the pool; one without devices where there are none, which says that the driver is up.

    With `split`, counters are in slices of their own, as servers want them from 1.35 on; 1.34 wants them beside the
    devices that consume them.
    """
    sets = _batches(pool.counters if split else (), MOST_SETS)
    found = [{"sharedCounters": [_set(each) for each in some]} for some in sets]
    found += _devices(pool, split=split)
    return tuple(
        {"driver": pool.driver, "pool": {"name": node}, "nodeName": node, **content}
        for content in found or [{"devices": []}]
    )


def objects(pool: PublishedPool, node: str, *, split: bool = True, generation: int = 1) -> tuple[Document, ...]:
    """The slices as they are created the first time, without what only the server knows: the Node's uid."""
    specs = specifications(pool, node, split=split)
    return tuple(
        {
            "apiVersion": API_VERSION,
            "kind": "ResourceSlice",
            "metadata": {"generateName": generate_name(pool.driver, node, number)},
            "spec": {**spec, "pool": {"name": node, "generation": generation, "resourceSliceCount": len(specs)}},
        }
        for number, spec in enumerate(specs)
    )


def generate_name(driver: str, node: str, number: int) -> str:
    """The beginning of a slice's name, which keeps the slices of a pool in order; of long names the beginning only."""
    return f"{number:05x}-{driver}-{node}"[: _LONGEST_NAME - 1].rstrip(".-") + "-"


def _devices(pool: PublishedPool, *, split: bool) -> Iterator[Document]:
    """Devices that share counters are in one slice, as NVIDIA's driver has them; all others fill slices up.

    Counters beside their devices cannot be in a second slice: there, of devices beyond one slice the last are left out.
    """
    sets = {each.name: each for each in pool.counters}
    most = MOST_TIGHT if pool.tight else MOST_DEVICES
    for consumed, run in _runs(pool.devices):
        beside = {} if split or not consumed else {"sharedCounters": [_set(sets[name]) for name in consumed]}
        for devices in _batches(run[:most] if beside else run, most):
            yield {**beside, "devices": [device_document(each) for each in devices]}


def _batches(items: Sequence[_Item], most: int) -> Iterator[Sequence[_Item]]:
    return (items[at : at + most] for at in range(0, len(items), most))


def _runs(devices: Iterable[DraDevice]) -> list[tuple[tuple[str, ...], list[DraDevice]]]:
    """The devices in order, by the counters that they take from; those of one set are together."""
    runs: list[tuple[tuple[str, ...], list[DraDevice]]] = []
    of_sets: dict[tuple[str, ...], list[DraDevice]] = {}
    for consumed, run in groupby(devices, lambda device: tuple(each.counter_set for each in device.consumes)):
        if consumed in of_sets:
            of_sets[consumed] += run
            continue
        runs.append((consumed, list(run)))
        if consumed:
            of_sets[consumed] = runs[-1][1]
    return runs


def _set(counters: CounterSet) -> Document:
    return {"name": counters.name, "counters": _counters(counters.counters.items())}


def _counters(items: Iterable[tuple[str, int]]) -> Document:
    return {name: {"value": written(amount)} for name, amount in items}


def device_document(device: DraDevice) -> Document:
    found: Document = {
        "name": device.name,
        "attributes": {key: _value(each) for key, each in device.attributes.items()},
    }
    if device.capacity:
        found["capacity"] = {key: _capacity(each) for key, each in device.capacity.items()}
    if device.consumes:
        found["consumesCounters"] = [
            {"counterSet": each.counter_set, "counters": _counters(each.counters.items())} for each in device.consumes
        ]
    if device.taints:
        found["taints"] = _taints(device.taints)
    if device.shared:
        found["allowMultipleAllocations"] = True
    return found


def _value(attribute: Attribute) -> Document:
    return {attribute.kind.value: attribute.value}


def _capacity(capacity: DeviceCapacity) -> Document:
    found: Document = {"value": written(capacity.value)}
    if policy := capacity.policy:
        found["requestPolicy"] = {"default": written(policy.default)}
        limits = {"min": policy.least, "max": policy.most, "step": policy.step}
        if valid := {key: written(amount) for key, amount in limits.items() if amount is not None}:
            found["requestPolicy"]["validRange"] = valid
        if policy.values:
            found["requestPolicy"]["validValues"] = [written(amount) for amount in policy.values]
    return found


def _taints(taints: Sequence[Taint]) -> list[Document]:
    return [
        {"key": each.key, **({"value": each.value} if each.value else {}), "effect": each.effect} for each in taints
    ]


Written = Mapping[str, Any]
Made = Callable[[Written, int], Written]
Same = Callable[[Written, Written], bool]

_POOL = "pool"


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Slices to delete (as they are there), to update (as they shall be), and to create."""

    delete: tuple[Written, ...] = ()
    update: tuple[Written, ...] = ()
    create: tuple[Written, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.delete or self.update or self.create)


def content(spec: Written) -> dict[str, Any]:
    """What of a slice is wanted: all but its pool's bookkeeping, and but the times that taints were added."""
    plain = {key: value for key, value in spec.items() if key != _POOL}
    if "devices" in plain:
        plain["devices"] = [_timeless(device) for device in plain["devices"] or ()]
    return plain


def changes(
    wanted: Sequence[Written],
    there: Sequence[Written],
    made: Made,
    *,
    same: Same = lambda wanted, there: content(wanted) == content(there),
    missing: int = 0,
    least: int = 0,
) -> Changes:
    """What leads from the slices of the pool that are `there` to the `wanted` specifications.

    `made` makes a new object of a specification with its number. `same` compares a wanted specification with one that
    is there, where the server stores it otherwise than it was sent. The pool says that it has so many slices more as
    are `missing`, and its generation is at `least` this one.
    """
    count = len(wanted) + missing
    latest = max(map(generation_of, there), default=0)
    current = [each for each in there if generation_of(each) == latest]
    pairs = _paired(wanted, current, same)
    kept = {id(each) for each in pairs if each is not None}
    obsolete = tuple(each for each in there if id(each) not in kept)
    differs = [each is not None and not same(spec, each["spec"]) for spec, each in zip(wanted, pairs, strict=True)]
    counts = {each["spec"][_POOL].get("resourceSliceCount") for each in pairs if each is not None}
    is_small = None not in pairs and sum(differs) <= 1 and counts <= {count} and latest >= least
    generation = latest if is_small else max(latest + 1, least)
    update, create = [], []
    for number, (spec, each, is_other) in enumerate(zip(wanted, pairs, differs, strict=True)):
        pool = {**spec[_POOL], "generation": generation, "resourceSliceCount": count}
        if each is None:
            create.append(made({**spec, _POOL: pool}, number))
        elif is_other or not is_small:
            update.append({**each, "spec": {**_with_times(spec, each["spec"]), _POOL: pool}})
    return Changes(delete=obsolete, update=tuple(update), create=tuple(create))


def generation_of(slice_: Written) -> int:
    return int(slice_["spec"][_POOL].get("generation") or 0)


def _paired(wanted: Sequence[Written], there: Sequence[Written], same: Same) -> list[Written | None]:
    """For each wanted specification the slice that it is, or the one with most of its devices; each slice once."""
    free = sorted(there, key=lambda each: str(each["metadata"].get("name", "")))
    pairs: list[Written | None] = [None] * len(wanted)
    for number, spec in enumerate(wanted):
        pairs[number] = next((each for each in free if same(spec, each["spec"])), None)
        free = [each for each in free if each is not pairs[number]]
    for number, spec in enumerate(wanted):
        if pairs[number] is None and free:
            names = _names(spec)
            best = max(free, key=lambda each: len(names & _names(each["spec"])))
            pairs[number] = best
            free = [each for each in free if each is not best]
    return pairs


def _names(spec: Written) -> frozenset[str]:
    return frozenset(each["name"] for key in ("devices", "sharedCounters") for each in spec.get(key) or ())


def _timeless(device: Written) -> dict[str, Any]:
    if not device.get("taints"):
        return {key: value for key, value in device.items() if key != "taints"}
    taints = [{key: value for key, value in each.items() if key != "timeAdded"} for each in device["taints"]]
    return {**device, "taints": taints}


def _with_times(wanted: Written, there: Written) -> Written:
    """The wanted specification, in which a taint that was there already keeps the time at which it was added."""
    if "devices" not in wanted:
        return wanted
    times = {
        (device["name"], each["key"], each.get("value", ""), each["effect"]): each["timeAdded"]
        for device in there.get("devices") or ()
        for each in device.get("taints") or ()
        if "timeAdded" in each
    }
    return {**wanted, "devices": [_with_time(device, times) for device in wanted["devices"]]}


def _with_time(device: Written, times: Mapping[tuple[str, str, str, str], str]) -> Written:
    if not device.get("taints"):
        return device
    taints = []
    for each in device["taints"]:
        key = (device["name"], each["key"], each.get("value", ""), each["effect"])
        taints.append({**each, "timeAdded": times[key]} if key in times else each)
    return {**device, "taints": taints}


STALE = "vdev-stale"
"""The device of a slice that should be gone."""
_OLD, _NEW = 1, 2  # generations


def spoilt(fault: str, wanted: Sequence[Written], there: Sequence[Written], made: Made, *, same: Same) -> Changes:
    """What leads to slices with this fault; without a change once they have it."""
    match fault:
        case "incomplete":
            return changes(wanted, there, made, same=same, missing=1)
        case "duplicateName":
            return changes([*wanted, *_again(wanted)], there, made, same=same)
        case "oldGeneration":
            return _beside_old(wanted, there, made, same)
        case _:  # nothing is written
            return Changes()


def _again(wanted: Sequence[Written]) -> Sequence[Written]:
    """A slice with the pool's first device, which another slice has already: within one the server refuses that."""
    first = next((each for each in wanted if each.get("devices")), None)
    return [] if first is None else [_alone(first, _plain(first["devices"][0]))]


def _beside_old(wanted: Sequence[Written], there: Sequence[Written], made: Made, same: Same) -> Changes:
    """The pool as it should be, and a slice that an earlier generation has left."""
    latest = max((_NEW, *map(generation_of, there)))
    old = [each for each in there if generation_of(each) < latest]
    current = [each for each in there if generation_of(each) == latest]
    if there and not current:
        old, current = [], list(there)
    found = changes(wanted, current, made, same=same, least=_NEW)
    if old or not wanted:
        return found
    left = _alone(wanted[-1], {"name": STALE})
    left["pool"] = {**left["pool"], "generation": _OLD, "resourceSliceCount": 1}
    return replace(found, create=(*found.create, made(left, len(wanted))))


def _alone(spec: Written, device: Written) -> dict[str, Any]:
    """A slice of the same pool with nothing but this device."""
    return {**{key: value for key, value in spec.items() if key != "sharedCounters"}, "devices": [device]}


def _plain(device: Written) -> dict[str, Any]:
    """The device without what only its own slice can have."""
    return {key: value for key, value in device.items() if key != "consumesCounters"}
