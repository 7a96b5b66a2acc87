"""The pools of a node: what each driver publishes of the devices that claims can get.

offers of the configuration  ─► described   names, attributes, capacity, counters
health, faults, what is away ─► pools       taints, and what only claims keep
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..faults.targets import Afflictions
from ..model.device import GONE, Device, Key
from ..model.dra import Attribute, DeviceCapacity
from ..model.quantity import written
from ..planning.resources import Inventory, Resource
from . import published_devices
from .attributes import described
from .published_devices import CounterSets, DraDevice, Pools, PublishedPool, Record, Taint, recalled

if TYPE_CHECKING:
    from ..planning.plan import ObservedState

NO_POOLS: Pools = MappingProxyType({})

Claimed = Mapping[str, Collection[str]]
"""The names of the devices that prepared claims have, by driver; maybe with what was written down of them."""


def pools(world: "ObservedState", devices: Inventory) -> Pools:
    """What each driver publishes of what the configuration and discovery come to.

    `devices` are those that are there, with their health. A device that is claimed stays as it was before while it is
    away, or is no longer shared, and nothing that overlaps it takes its place.
    """
    before, offers = world.pools, world.base.claimable
    lasts = {driver: _last(driver, before.get(driver), held) for driver, held in world.claimed.items() if held}
    found: dict[str, PublishedPool] = {}
    for driver in sorted(offers.keys() | {driver for driver, last in lasts.items() if last is not None}):
        last = lasts.get(driver) or before.get(driver)
        offered = offers.get(driver) or replace(last.offered if last else Resource(driver, ()), slots=())
        there = devices.claimable.get(driver) or offered
        pool = _judged(described(driver, offered), there, world.afflictions)
        if (held := world.claimed.get(driver, ())) and last:
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
    found = [each for name in sorted(written.keys() - known.keys()) if (each := recalled(written[name]))]
    if not found:
        return before
    pool = before or PublishedPool(driver, Resource(driver, ()))
    counters = {name: each for lost in found for name, each in lost.counters.items()}
    devices = (*pool.devices, *(lost.device for lost in found))
    return replace(pool, devices=devices, counters={**counters, **pool.counters})


def _judged(whole: PublishedPool, there: Resource, afflictions: Afflictions) -> PublishedPool:
    """The pool with taints, and without what is away."""
    devices: list[DraDevice] = []
    for device in whole.devices:
        slot = there.by_id.get(device.device.id)
        if slot is None:
            continue
        key = (whole.driver, slot.id)
        xids, rules = [each.number for each in afflictions.xids.get(key, ())], afflictions.taints.get(key, ())
        if xids or rules or not slot.health.healthy:
            said = published_devices.of_health(there.entries[device.entry], slot.health, xids)
            device = replace(device, taints=published_devices.with_rules(said, rules), health=slot.health)
        devices.append(device)
    return _with_devices(whole, devices, whole.counters)


def _with_devices(pool: PublishedPool, devices: Sequence[DraDevice], known: CounterSets) -> PublishedPool:
    """The pool with other devices, and those of the known sets of counters from which they take."""
    used = {name for device in devices for name in device.consumes}
    return replace(pool, devices=tuple(devices), counters={name: each for name, each in known.items() if name in used})


def _with_held(pool: PublishedPool, last: PublishedPool, held: Collection[str]) -> PublishedPool:
    """The pool with devices that only claims keep in it, in place of what would overlap them."""
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
            # It takes what it took, from counters that stay as they were.
            beside.append(replace(was, taints=each.taints, health=each.health))
    return _with_devices(replace(pool, offered=offered), [*beside, *kept], {**pool.counters, **sets})


def _kept(last: PublishedPool, now: Mapping[str, DraDevice], held: Collection[str]) -> Iterator[DraDevice]:
    """Devices of claims that are away, are no longer shared, or whose name is another device's now."""
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


Document = dict[str, Any]
Written = Mapping[str, Any]

MOST_DEVICES = 64
"""Devices of a slice: so many if one of them has taints or consumes counters, which may come at any time."""
MOST_SETS = 8
_LONGEST_NAME = 253
API_VERSION = "resource.k8s.io/v1"
"""What servers have from 1.34 on."""


def specifications(pool: PublishedPool, node: str) -> tuple[Document, ...]:
    """The `spec` of each slice of the pool; one without devices where there are none, which says that the driver is up.

    Counters are in slices of their own, as servers want them from 1.35 on.
    """
    sets = [{"name": name, "counters": _counters(each)} for name, each in pool.counters.items()]
    devices = [device_document(each) for each in pool.devices]
    found = [{"sharedCounters": some} for some in _batches(sets, MOST_SETS)]
    found += [{"devices": some} for some in _batches(devices, MOST_DEVICES)]
    return tuple(
        {"driver": pool.driver, "pool": {"name": node}, "nodeName": node, **content}
        for content in found or [{"devices": []}]
    )


def objects(pool: PublishedPool, node: str) -> tuple[Document, ...]:
    """The slices as they are created the first time, without what only the server knows: the Node's uid."""

    def made(spec: Written, number: int) -> Document:
        metadata = {"generateName": generate_name(pool.driver, node, number)}
        return {"apiVersion": API_VERSION, "kind": "ResourceSlice", "metadata": metadata, "spec": spec}

    return tuple(map(dict, changes(specifications(pool, node), (), made).create))


def generate_name(driver: str, node: str, number: int) -> str:
    """The beginning of a slice's name, which keeps the slices of a pool in order; of long names the beginning only."""
    return f"{number:05x}-{driver}-{node}"[: _LONGEST_NAME - 1].rstrip(".-") + "-"


def _batches(items: list[Document], most: int) -> Iterator[list[Document]]:
    return (items[at : at + most] for at in range(0, len(items), most))


def _counters(amounts: Mapping[str, int]) -> Document:
    return {name: {"value": written(amount)} for name, amount in amounts.items()}


def device_document(device: DraDevice) -> Document:
    found: Document = {
        "name": device.name,
        "attributes": {key: _value(each) for key, each in device.attributes.items()},
    }
    if device.capacity:
        found["capacity"] = {key: _capacity(each) for key, each in device.capacity.items()}
    if device.consumes:
        found["consumesCounters"] = [
            {"counterSet": name, "counters": _counters(each)} for name, each in device.consumes.items()
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


Made = Callable[[Written, int], Written]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Slices to delete (as they are there), to update (as they shall be), and to create."""

    delete: tuple[Written, ...] = ()
    update: tuple[Written, ...] = ()
    create: tuple[Written, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.delete or self.update or self.create)


def content(spec: Written, dropped: Collection[str] = ()) -> Document:
    """The part of a slice's specification that is compared.

    It leaves out the pool's bookkeeping, the times at which taints were added, what is empty (a server does not store
    it) and the `dropped` fields, which the server does not store either.
    """
    plain = _stored(spec, {"pool", *dropped})
    if "devices" in plain:
        plain["devices"] = [_device_content(each, dropped) for each in plain["devices"]]
    return plain


def _device_content(device: Written, dropped: Collection[str]) -> Document:
    plain = _stored(device, dropped)
    if "taints" in plain:
        plain["taints"] = [_stored(each, {"timeAdded"}) for each in plain["taints"]]
    if "capacity" in plain:
        plain["capacity"] = {name: _stored(each, dropped) for name, each in plain["capacity"].items()}
    return plain


def _stored(fields: Written, dropped: Collection[str]) -> Document:
    return {key: value for key, value in fields.items() if key not in dropped and value not in (None, [], {})}


def changes(
    wanted: Sequence[Written],
    there: Sequence[Written],
    made: Made,
    *,
    dropped: Collection[str] = (),
    missing: int = 0,
    least: int = 0,
) -> Changes:
    """What changes the slices of the pool that are `there` to the `wanted` specifications.

    `made` makes a new object from a specification and its number. The server does not store the `dropped` fields. For
    faults, the pool claims to have more slices, by the number `missing`, and has `least` as its lowest generation.
    """
    count = len(wanted) + missing
    latest = max(map(generation_of, there), default=0)
    pairs = _paired(wanted, [each for each in there if generation_of(each) == latest], dropped)
    kept = {id(each) for each, _ in pairs if each is not None}
    obsolete = tuple(each for each in there if id(each) not in kept)
    counts = {each["spec"]["pool"].get("resourceSliceCount") for each, _ in pairs if each is not None}
    # One slice alone may change in place. Of several, the scheduler must not see some before the others.
    is_small = sum(not is_same for _, is_same in pairs) <= 1 and counts <= {count} and latest >= least
    is_small = is_small and all(each is not None for each, _ in pairs)
    generation = latest if is_small else max(latest + 1, least)
    update, create = [], []
    for number, (spec, (each, is_same)) in enumerate(zip(wanted, pairs, strict=True)):
        pool = {**spec["pool"], "generation": generation, "resourceSliceCount": count}
        if each is None:
            create.append(made({**spec, "pool": pool}, number))
        elif not (is_same and is_small):
            update.append({**each, "spec": {**_with_times(spec, each["spec"]), "pool": pool}})
    return Changes(delete=obsolete, update=tuple(update), create=tuple(create))


def generation_of(slice_: Written) -> int:
    return int(slice_["spec"]["pool"].get("generation") or 0)


def _paired(
    wanted: Sequence[Written], there: Sequence[Written], dropped: Collection[str]
) -> list[tuple[Written | None, bool]]:
    """For each wanted specification a slice, each once, and whether it has that content already."""
    free = [(each, content(each["spec"], dropped)) for each in sorted(there, key=lambda each: each["metadata"]["name"])]
    pairs: list[tuple[Written | None, bool]] = []
    for spec in wanted:
        asked = content(spec, dropped)
        same = next((number for number, (_, has) in enumerate(free) if has == asked), None)
        pairs.append((None, False) if same is None else (free.pop(same)[0], True))
    return [(free.pop(0)[0], False) if each is None and free else (each, is_same) for each, is_same in pairs]


def _with_times(wanted: Written, there: Written) -> Written:
    """The wanted specification, in which a taint that was there already keeps the time at which it was added."""
    times = {
        (device["name"], *_taint(each)): each.get("timeAdded")
        for device in there.get("devices") or ()
        for each in device.get("taints") or ()
    }

    def with_time(device: Written) -> Written:
        taints = [
            {**each, "timeAdded": at} if (at := times.get((device["name"], *_taint(each)))) else each
            for each in device["taints"]
        ]
        return {**device, "taints": taints}

    devices = [with_time(each) if each.get("taints") else each for each in wanted.get("devices", ())]
    return {**wanted, "devices": devices} if devices else wanted


def _taint(taint: Written) -> tuple[str, str, str]:
    return taint["key"], taint.get("value", ""), taint["effect"]


STALE = "vdev-stale"
"""The device of a slice that should be gone."""
_OLD, _NEW = 1, 2  # generations


def spoilt(
    fault: str,
    wanted: Sequence[Written],
    there: Sequence[Written],
    made: Made,
    *,
    dropped: Collection[str] = (),
) -> Changes:
    """What leads to slices with this fault; without a change once they have it."""
    match fault:
        case "incomplete":
            return changes(wanted, there, made, dropped=dropped, missing=1)
        case "duplicateName":
            return changes([*wanted, *_again(wanted)], there, made, dropped=dropped)
        case "oldGeneration":
            return _beside_old(wanted, there, made, dropped)
        case _:  # nothing is written
            return Changes()


def _again(wanted: Sequence[Written]) -> Sequence[Written]:
    """A slice with the pool's first device, which another slice has already: within one the server refuses that."""
    first = next((each for each in wanted if each.get("devices")), None)
    return [] if first is None else [{**first, "devices": first["devices"][:1]}]


def _beside_old(wanted: Sequence[Written], there: Sequence[Written], made: Made, dropped: Collection[str]) -> Changes:
    """The pool as it should be, and a slice that an earlier generation has left."""
    latest = max((_NEW, *map(generation_of, there)))
    old = [each for each in there if generation_of(each) < latest]
    current = [each for each in there if generation_of(each) == latest]
    if there and not current:
        old, current = [], list(there)
    found = changes(wanted, current, made, dropped=dropped, least=_NEW)
    if old or not wanted:
        return found
    pool = {**wanted[-1]["pool"], "generation": _OLD, "resourceSliceCount": 1}
    left = {key: value for key, value in wanted[-1].items() if key != "sharedCounters"}
    return replace(
        found, create=(*found.create, made({**left, "pool": pool, "devices": [{"name": STALE}]}, len(wanted)))
    )
