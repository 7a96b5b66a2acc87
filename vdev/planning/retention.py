"""A device id that a pod may hold is never dropped: what vanished stays in the list, Unhealthy, until that is safe.

Dropping an id while an Allocate for it is in flight crashes a 1.36 kubelet, and a dropped id shows as Healthy in the
pod's status forever. So what the fresh inventory no longer has is *retired*: listed as Unhealthy until no Allocate
names it, it has been listed so for a while, and the kubelet's PodResources answer, read after that while, says that no
pod has it (or, without that answer, for ten minutes).

And what overlaps a retired device that a pod may still hold (a new partition over an old one, or the same node under
another name) is Unhealthy until then.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..intervals import PRODUCTION, Intervals
from ..model.device import UNKNOWN_ENTRY, Device, Health, Key, RawDevice, Slot, base_id, grouped
from ..model.names import domain_and_name
from .in_use import Holdings
from .inventory import same
from .naming import partition, whole_device
from .partitions import placements
from .resources import Inventory, Resource


@dataclass(frozen=True, slots=True)
class Retired:
    """A slot that is listed only because a pod may hold it.

    `since` is when it was first listed as Unhealthy; `cause` says what became of it.
    """

    resource: Resource
    slot: Slot
    since: float
    cause: str = "removed"


class Dropped(NamedTuple):
    """That an id left the list of a resource, at a (monotonic) time."""

    resource: str
    at: float


NOTHING_DROPPED: Mapping[str, Dropped] = {}


def dropped(before: Inventory, after: Inventory, now: float) -> Mapping[str, Dropped]:
    """The ids that are in a list before, and not after."""
    found: dict[str, Dropped] = {}
    for name, resource in before.resources.items():
        kept = after.resources[name].ids if name in after.resources else ()
        found |= dict.fromkeys(resource.ids - kept, Dropped(name, now))
    return found


@dataclass(frozen=True, slots=True)
class Retained:
    """The inventory to serve, what of it is retired, and the time at which to look again (None: nothing is waiting)."""

    inventory: Inventory
    retired: Mapping[Key, Retired]
    again_at: float | None


def retain(
    served: Inventory,
    fresh: Inventory,
    retired: Mapping[Key, Retired],
    holdings: Holdings,
    now: float,
    *,
    lately: Mapping[str, Dropped] = NOTHING_DROPPED,
    intervals: Intervals = PRODUCTION,
) -> Retained:
    """What to serve instead of `fresh`, given what is served now and which of that pods may hold.

    `lately` are ids that left a list not long ago: another resource lists them when the kubelet had time to see that.
    """
    # The kubelet looks health up by the bare id: under which resource it may know each one.
    known = {each: it.resource for each, it in lately.items() if now - it.at < intervals.retire_handover}
    for name, resource in served.resources.items():
        known |= dict.fromkeys(resource.ids, name)
    orphaned = _orphans(served, fresh, holdings, now)
    # An old checkpoint names a holder under the resource that had the id before: that is waited for, and not listed.
    # Where several are named and none lists the id, one does: the one whose pod is known.
    named = holdings.holders or {}
    for name, each in sorted(orphaned, key=lambda key: (key not in named, key)):
        known.setdefault(each, name)
    unlistable = {key: each for key, each in orphaned.items() if known[key[1]] != key[0]}
    waiting = {**_waiting(served, fresh, retired, now), **orphaned}
    kept = {
        key: _explained(key, each, holdings)
        for key, each in waiting.items()
        if key not in unlistable and not _may_go(key, each, holdings, now, intervals)
    }
    # A device that moves to another resource is first dropped there, when that is safe, and later listed here.
    known |= {each: name for name, each in kept}
    listable = {
        name: tuple(slot for slot in resource.slots if known.get(slot.id, name) == name)
        for name, resource in fresh.resources.items()
    }
    inventory = _block(_with_slots(fresh, listable), kept | unlistable, holdings)
    wait = intervals.retire_settle if holdings.holders is not None else intervals.retire_blind
    again = [_look_again(each.since, now, wait, intervals) for each in kept.values()]
    held = {each for _, each in kept}
    withheld = (resource.ids - {slot.id for slot in listable[name]} for name, resource in fresh.resources.items())
    if unlistable or any(not ids <= held for ids in withheld):
        again.append(now + intervals.retire_recheck)
    return Retained(_list_retired(inventory, kept), kept, min(again, default=None))


def _with_slots(inventory: Inventory, slots: Mapping[str, tuple[Slot, ...]]) -> Inventory:
    resources = {
        name: resource if len(slots[name]) == len(resource.slots) else replace(resource, slots=slots[name])
        for name, resource in inventory.resources.items()
    }
    return replace(inventory, resources=resources)


def _waiting(served: Inventory, fresh: Inventory, retired: Mapping[Key, Retired], now: float) -> dict[Key, Retired]:
    waiting: dict[Key, Retired] = {}
    for name, resource in served.resources.items():
        new = fresh.resources.get(name)
        for slot in resource.slots:
            if new is None or slot.id not in new.ids:
                key = (name, slot.id)
                waiting[key] = retired.get(key) or Retired(resource, slot, now)
    return waiting


def _may_go(key: Key, each: Retired, holdings: Holdings, now: float, intervals: Intervals) -> bool:
    if key in holdings.in_flight:
        return False
    blind = now - max(each.since, holdings.blind_since) >= intervals.retire_blind
    if holdings.holders is None:
        return blind
    settled = holdings.read_at - each.since >= intervals.retire_settle
    # Where the kubelet serves and tells nothing any more, its last answer may be from before the device was retired.
    return (settled or (holdings.silent and blind)) and not holdings.may_hold(key)


def _look_again(since: float, now: float, wait: float, intervals: Intervals) -> float:
    due = since + wait
    if due > now:
        return due
    # The longer it is held, the less often it is looked at: a training job may hold it for days.
    return now + min(intervals.retire_recheck_most, max(intervals.retire_recheck, (now - since) / 10))


def _block(fresh: Inventory, kept: Mapping[Key, Retired], holdings: Holdings) -> Inventory:
    """`fresh` with what overlaps a possibly held retired slot turned Unhealthy."""
    return _blocked(
        fresh,
        (
            (each.slot, f"overlaps {each.slot.id}, which {holdings.by_whom(key)} still holds")
            for key, each in kept.items()
            if holdings.may_hold(key)
        ),
    )


def _blocked(inventory: Inventory, taken: Iterable[tuple[Slot, str]]) -> Inventory:
    """`inventory` with what overlaps one of these slots turned Unhealthy, for the reason that is given with it."""
    by_thing = grouped((thing, each) for each in taken for thing in things(each[0]))
    if not by_thing:
        return inventory

    def judged(slot: Slot) -> Slot:
        reason = _overlapping(slot, by_thing)
        return slot if reason is None else replace(slot, health=Health(healthy=False, reason=reason))

    resources = {
        name: replace(resource, slots=tuple(map(judged, resource.slots)))
        for name, resource in inventory.resources.items()
    }
    return replace(inventory, resources=resources)


def _overlapping(slot: Slot, by_thing: Mapping[str, Iterable[tuple[Slot, str]]]) -> str | None:
    """What is said of the first of these that the slot overlaps; None where it overlaps none."""
    others = (each for thing in things(slot) for each in by_thing.get(thing, ()))
    return next((reason for other, reason in others if overlaps(slot, other)), None)


def things(slot: Slot) -> tuple[str, ...]:
    """What a slot may share with another one: the raw device, and the host's nodes."""
    raw = slot.device.raw
    return (raw.id, *raw.owns, *raw.uses)


def overlaps(one: Slot, other: Slot) -> bool:
    """Whether two slots stand for the same hardware and cannot both be handed out; replicas of one device can."""
    if one.device.raw.id != other.device.raw.id:
        return same(one.device.raw, other.device.raw)
    if one.device.id == other.device.id:
        return one.replica is None or other.replica is None
    a, b = one.device.slices, other.device.slices
    return not a or not b or max(a.start, b.start) < min(a.stop, b.stop)


def _list_retired(inventory: Inventory, kept: Mapping[Key, Retired]) -> Inventory:
    if not kept:
        return inventory
    by_resource = grouped((name, each) for (name, _), each in kept.items())
    resources = dict(inventory.resources)
    for name, members in by_resource.items():
        base = resources.get(name) or replace(members[0].resource, slots=(), draining=True)
        sources = {id(each.resource): each.resource for each in members}
        entries = {key: entry for source in sources.values() for key, entry in source.entries.items()}
        slots = (*base.slots, *(each.slot for each in members))
        resources[name] = replace(base, slots=slots, entries={**entries, **base.entries})
    return replace(inventory, resources=resources)


def _explained(key: Key, each: Retired, holdings: Holdings) -> Retired:
    """The retired slot with the reason of the moment."""
    held = holdings.may_hold(key)
    why = f"{holdings.by_whom(key)} may still hold it" if held else "waiting until no pod can hold it"
    reason = f"{each.cause}; {why}"
    return replace(each, slot=replace(each.slot, health=Health(healthy=False, reason=reason)))


def _orphans(served: Inventory, fresh: Inventory, holdings: Holdings, now: float) -> dict[Key, Retired]:
    """What pods hold of ours and neither list has: left by an earlier process, and no record of it was found.

    Where nobody ever said who holds what, this counts no longer than what was retired waits: the kubelet's checkpoint
    goes on naming what ended pods had, which would come back as soon as it is gone.
    """
    if holdings.holders is None and holdings.complete:
        return {}
    unknown = [
        (name, each)
        for name, each in holdings.all()
        if name not in served.resources or each not in served.resources[name].ids
    ]
    found = recognized(unknown, fresh) if unknown else {}
    return {
        key: Retired(fresh.resources.get(key[0]) or Resource(key[0], ()), slot, now, "not in the configuration")
        for key, slot in found.items()
    }


def recognized(held: Collection[Key], fresh: Inventory) -> Mapping[Key, Slot]:
    """A slot for each held device that `fresh` lacks and that this node's configuration is about.

    That is every one of a resource that there is; and of another resource in the same domain, what can only be a device
    of ours. What is not recognized overlaps nothing, but it can be listed.
    """
    domains = {domain_and_name(name)[0] for name in fresh.resources}
    ours = [(name, each) for name, each in held if domain_and_name(name)[0] in domains]
    ours = [key for key in ours if key[0] not in fresh.resources or key[1] not in fresh.resources[key[0]].ids]
    if not ours:
        return {}
    hardware = _hardware(fresh, {base_id(each) for _, each in ours})
    found: dict[Key, Slot] = {}
    for name, each in ours:
        device = hardware.get(base_id(each))
        if device is None and name in fresh.resources:
            device = whole_device(RawDevice(id=base_id(each), entry=UNKNOWN_ENTRY, index=-1), -1)
        if device is not None:
            found[name, each] = Slot(each, device, _replica(each))
    return found


def _hardware(fresh: Inventory, wanted: Collection[str]) -> Mapping[str, Device]:
    """The devices of these ids, among all that the node's hardware could be cut into."""
    raws = {
        slot.device.raw.id: (slot.device.raw, resource.entries[slot.device.raw.entry])
        for resource in fresh.resources.values()
        for slot in resource.slots
        if slot.device.raw.entry in resource.entries
    }
    found: dict[str, Device] = {}
    for raw, entry in raws.values():
        stranger = replace(raw, entry=UNKNOWN_ENTRY)
        cuts = placements(entry.geometry) if entry.geometry else ()
        devices = (whole_device(stranger, -1), *(partition(entry, stranger, "-1", each) for each in cuts))
        found |= {device.id: device for device in devices if device.id in wanted}
    return found


def _replica(slot_id: str) -> int | None:
    number = slot_id.removeprefix(base_id(slot_id)).lstrip(":")
    return int(number) if number.isascii() and number.isdigit() else None


def without_retired(devices: Inventory, retired: Mapping[Key, Retired], claimed: Collection[Key]) -> Inventory:
    """`devices` whose offers to claims are without what pods may still have of the device plugin, which retired it.

    What is `claimed` (driver and id) stays: it was given out both ways.
    """
    if not (retired and devices.claimable):
        return devices
    by_thing = grouped((thing, (each.slot, "")) for each in retired.values() for thing in things(each.slot))
    claimable = {
        driver: replace(
            offered,
            slots=tuple(
                slot for slot in offered.slots if (driver, slot.id) in claimed or _overlapping(slot, by_thing) is None
            ),
        )
        for driver, offered in devices.claimable.items()
    }
    return replace(devices, claimable=claimable)


def without_claimed(devices: Inventory, claimed: Mapping[Key, Device]) -> Inventory:
    """`devices` with everything Unhealthy that the device plugin would list of what claims have (driver and id).

    What is offered to claims as well is left as it is: the file says that it is given out both ways.
    """
    offers = devices.claimable
    alone = {
        key: device for key, device in claimed.items() if key[0] not in offers or key[1] not in offers[key[0]].by_id
    }
    taken = (Slot(device.id, device, None, device.health) for device in alone.values())
    return _blocked(devices, ((slot, f"a claim still has {slot.id}") for slot in taken))
