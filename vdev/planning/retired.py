"""Keeps devices in the lists that pods may still hold.

A 1.36 kubelet crashes if an id vanishes during its Allocate. If an id vanishes while a pod holds it, the pod's status
shows it as Healthy forever. So a device that vanished from the configuration or the host is *retired*: it is listed as
Unhealthy until no pod can hold it. Devices that overlap it (a new partition over an old one, or the same node under
another name) are Unhealthy until then.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..intervals import PRODUCTION, Intervals
from ..model.device import UNKNOWN_ENTRY, Device, DeviceKey, Health, Key, RawDevice, Slot, base_id, grouped
from ..model.names import domain_and_name
from .in_use import InUse
from .naming import partition, whole_device
from .partitions import placements
from .resources import Inventory, Resource

if TYPE_CHECKING:
    from .plan import Previous


@dataclass(frozen=True, slots=True)
class Retired:
    """A slot that is only listed, as Unhealthy, because a pod may hold it."""

    resource: Resource
    """The resource at the time when it had the slot."""
    slot: Slot
    since: float
    """When it was first listed as Unhealthy."""


@dataclass(frozen=True, slots=True)
class Lists:
    """The device lists, including all devices that pods may hold."""

    inventory: Inventory
    retired: Mapping[Key, Retired] = field(default_factory=dict)
    """The slots that are listed only because a pod may hold them."""
    again_at: float | None = None
    """When to plan again; None: no device waits."""


def keep_in_use(
    devices: Inventory, in_use: InUse, now: float, before: "Previous", intervals: Intervals = PRODUCTION
) -> Lists:
    """Return the lists of these devices, and of listed devices that vanished, until no pod can hold them."""
    # 1. The kubelet looks up health by the bare id, so only one resource may list an id at a time. Another resource
    # lists it only after the kubelet has had time to process its removal from the first.
    owner = {each: name for (name, each), at in before.dropped.items() if now - at < intervals.retire_handover}
    for name, resource in before.advertised.resources.items():
        owner |= dict.fromkeys(resource.by_id, name)

    # 2. Devices that vanished wait in their list. So do devices that an earlier process listed, if its state file is
    # lost. If the sources name several resources for one id, the resource whose pod is known lists it, because the
    # other name is from an old checkpoint.
    waiting = {
        (name, slot.id): before.retired.get((name, slot.id)) or Retired(resource, slot, now)
        for name, resource in before.advertised.resources.items()
        for slot in resource.slots
        if not _has(devices, (name, slot.id))
    }
    for key, slot in _unlisted(devices, before.advertised, in_use, now).items():
        waiting[key] = slot
        owner.setdefault(key[1], key[0])

    # 3. Withhold ids that wait from the lists of other resources.
    withheld = set[str]()

    def own(name: str, slot: Slot) -> Slot | None:
        if owner.get(slot.id, name) == name:
            return slot
        withheld.add(slot.id)
        return None

    resources = {name: resource.with_slots(own) for name, resource in devices.resources.items()}
    if not (waiting or withheld):
        return Lists(devices)

    # 4. A device waits until no pod can hold it. Until then, devices that overlap it are Unhealthy.
    kept = {
        key: _explained(each, in_use, key)
        for key, each in waiting.items()
        if in_use.may_hold(key) or not in_use.has_heard_since(each.since, intervals)
    }
    held = [
        (each.slot, f"overlaps {each.slot.id}, which {_holder(in_use, key)} still holds")
        for key, each in kept.items()
        if in_use.may_be_used(key)
    ]
    inventory = replace(devices, resources=resources)
    if held:
        inventory = blocked(inventory, held)
    if not (kept or withheld):
        return Lists(inventory)

    # 5. A training job may hold a device for days, so the check interval grows with the age.
    age = 0.0 if withheld - {each for _, each in kept} else now - max(each.since for each in kept.values())
    again_at = now + min(intervals.retire_recheck_most, max(intervals.retire_recheck, age / 20))
    kept = {key: each for key, each in kept.items() if owner[key[1]] == key[0]}
    return Lists(_with_retired(inventory, kept) if kept else inventory, kept, again_at)


def _unlisted(devices: Inventory, listed: Inventory, in_use: InUse, now: float) -> dict[Key, Retired]:
    """The slots that pods may hold, are not listed, and may belong to this node's configuration.

    For a resource that exists, these are all ids. For another resource in the same domain, these are the ids that the
    hardware could have with other partitions or other sharing. Slots with a known pod come first.
    """
    domains = {domain_and_name(name)[0] for name in devices.resources}
    keys = [
        key
        for key in in_use.all()
        if not (_has(listed, key) or _has(devices, key)) and domain_and_name(key[0])[0] in domains
    ]
    if not keys:
        return {}
    possible, pods, found = _possible_devices(devices, {base_id(slot) for _, slot in keys}), in_use.pods, {}
    for name, each in sorted(keys, key=lambda key: (key not in pods, key)):
        resource, device = devices.resources.get(name), possible.get(base_id(each))
        if device is None and resource is not None:
            device = whole_device(RawDevice(id=base_id(each), entry=UNKNOWN_ENTRY, index=-1), -1)
        if device is not None:
            number = each.removeprefix(base_id(each)).lstrip(":")
            slot = Slot(each, device, int(number) if number.isascii() and number.isdigit() else None)
            found[name, each] = Retired(resource or Resource(name, ()), slot, now)
    return found


def _has(inventory: Inventory, key: Key) -> bool:
    return key[0] in inventory.resources and key[1] in inventory.resources[key[0]].by_id


def _possible_devices(devices: Inventory, ids: Collection[str]) -> Mapping[str, Device]:
    """The devices with these ids, among all partitions that the node's hardware could have."""
    raws = {
        slot.device.raw.id: (slot.device.raw, resource.entries[slot.device.raw.entry])
        for resource in devices.resources.values()
        for slot in resource.slots
        if slot.device.raw.entry in resource.entries
    }
    found: dict[str, Device] = {}
    for raw, entry in raws.values():
        stranger = replace(raw, entry=UNKNOWN_ENTRY)
        cuts = placements(entry.geometry) if entry.geometry else ()
        possible = (whole_device(stranger, -1), *(partition(entry, stranger, "-1", each) for each in cuts))
        found |= {device.id: device for device in possible if device.id in ids}
    return found


def _holder(in_use: InUse, key: Key) -> str:
    known = in_use.devices.get(key)
    return f"pod {known.pod}" if known and known.pod else "a pod"


def _explained(each: Retired, in_use: InUse, key: Key) -> Retired:
    """The retired slot with its current reason."""
    is_held = in_use.may_hold(key)
    why = f"{_holder(in_use, key)} may still hold it" if is_held else "waiting until no pod can hold it"
    return replace(each, slot=replace(each.slot, health=Health(healthy=False, reason=f"removed; {why}")))


def _with_retired(inventory: Inventory, retired: Mapping[Key, Retired]) -> Inventory:
    """Add retired slots to the lists; a resource that was removed from the configuration is added as draining."""
    resources = dict(inventory.resources)
    for name, members in grouped((name, each) for (name, _), each in retired.items()).items():
        base = resources.get(name) or replace(members[0].resource, slots=(), draining=True)
        entries = {key: entry for each in members for key, entry in each.resource.entries.items()}
        slots = (*base.slots, *(each.slot for each in members))
        resources[name] = replace(base, slots=slots, entries={**entries, **base.entries})
    return replace(inventory, resources=resources)


# --- overlaps ---------------------------------------------------------------------------------------------------------


def overlaps(one: Slot, other: Slot) -> bool:
    """Whether two slots stand for the same hardware and exclude each other. Replicas of one device do not."""
    raw, another = one.device.raw, other.device.raw
    if raw.id != another.id:  # one may hand out a host node that the other owns
        owns, others = set(raw.owns), set(another.owns)
        return not (owns.isdisjoint((*another.owns, *another.uses)) and others.isdisjoint(raw.uses))
    if one.device.id == other.device.id:
        return one.replica is None or other.replica is None
    a, b = one.device.slices, other.device.slices
    return not a or not b or max(a.start, b.start) < min(a.stop, b.stop)


def blocked(inventory: Inventory, taken: Iterable[tuple[Slot, str]]) -> Inventory:
    """The inventory with each slot that overlaps a taken slot marked Unhealthy, with the reason given for that slot."""
    by_part = grouped((part, each) for each in taken for part in _parts(each[0]))

    def judged(_name: str, slot: Slot) -> Slot:
        reason = _reason(slot, by_part)
        return slot if reason is None else replace(slot, health=Health(healthy=False, reason=reason))

    resources = {name: resource.with_slots(judged) for name, resource in inventory.resources.items()}
    return replace(inventory, resources=resources)


def without_overlaps(devices: Inventory, taken: Iterable[Slot], claimed: Collection[DeviceKey]) -> Inventory:
    """The inventory without devices for claims that overlap these slots, except `claimed` ones (driver and id)."""
    by_part = grouped((part, (slot, "")) for slot in taken for part in _parts(slot))
    if not by_part:
        return devices

    def kept(driver: str, slot: Slot) -> Slot | None:
        return slot if (driver, slot.id) in claimed or _reason(slot, by_part) is None else None

    return replace(devices, claimable={name: offer.with_slots(kept) for name, offer in devices.claimable.items()})


def _parts(slot: Slot) -> tuple[str, ...]:
    """The keys that overlapping slots have in common: the raw device, or a node of the host."""
    raw = slot.device.raw
    return (raw.id, *raw.owns, *raw.uses)


def _reason(slot: Slot, by_part: Mapping[str, Iterable[tuple[Slot, str]]]) -> str | None:
    """The reason of the first taken slot that this one overlaps, or None."""
    others = (each for part in _parts(slot) for each in by_part.get(part, ()))
    return next((reason for other, reason in others if overlaps(slot, other)), None)
