"""Finds devices that are the same hardware, and the hardware that an id stands for."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from ..model.device import UNKNOWN_ENTRY, Device, DeviceKey, Health, Key, RawDevice, Slot, base_id, grouped
from ..model.names import domain_and_name
from .naming import partition, whole_device
from .partitions import placements
from .resources import Inventory

# --- overlaps ---------------------------------------------------------------------------------------------------------


def same(one: RawDevice, other: RawDevice) -> bool:
    """Whether one of two raw devices hands out a host node that the other device owns."""
    owned, others = set(one.owns), set(other.owns)
    return not (owned.isdisjoint((*other.owns, *other.uses)) and others.isdisjoint(one.uses))


def overlaps(one: Slot, other: Slot) -> bool:
    """Whether two slots stand for the same hardware and exclude each other. Replicas of one device do not."""
    if one.device.raw.id != other.device.raw.id:
        return same(one.device.raw, other.device.raw)
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


# --- ids --------------------------------------------------------------------------------------------------------------


def recognized(held: Collection[Key], devices: Inventory) -> Mapping[Key, Slot]:
    """A slot for each held id that is not among these devices but may belong to this node's configuration.

    For a resource that exists, these are all ids. For another resource in the same domain, these are the ids that the
    hardware could have with other partitions or other sharing.
    """
    resources = devices.resources
    domains = {domain_and_name(name)[0] for name in resources}
    unknown = [
        (name, each)
        for name, each in held
        if domain_and_name(name)[0] in domains and not (name in resources and each in resources[name].ids)
    ]
    possible = _possible_devices(devices, {base_id(each) for _, each in unknown})
    found: dict[Key, Slot] = {}
    for name, each in unknown:
        device = possible.get(base_id(each))
        if device is None and name in resources:
            device = whole_device(RawDevice(id=base_id(each), entry=UNKNOWN_ENTRY, index=-1), -1)
        if device is not None:
            number = each.removeprefix(base_id(each)).lstrip(":")
            found[name, each] = Slot(each, device, int(number) if number.isascii() and number.isdigit() else None)
    return found


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
