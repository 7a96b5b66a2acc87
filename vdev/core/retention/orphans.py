"""What pods hold and no list names: which hardware that is, as far as ids alone can tell.

It happens where the record of what was listed is missing or spoilt: an earlier process listed it under another
configuration. Ids are made from a device, a profile and a slice, so every partition that a device of today could have
has an id that can be computed, and a replica carries the id of its device.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from ..inventory.listed.naming import partition_id
from ..inventory.resources import Inventory
from ..model.device import UNKNOWN_ENTRY, Device, Key, RawDevice, Slot, base_id
from ..model.syntax.names import domain_and_name
from ..partitions.counters import placements
from ..spec import EntrySpec


def orphans(held: Collection[Key], fresh: Inventory) -> Mapping[Key, Slot]:
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
            raw = RawDevice(id=base_id(each), entry=UNKNOWN_ENTRY, index=-1)
            device = Device(id=raw.id, raw=raw, ordinal="-1")
        if device is not None:
            found[name, each] = Slot(each, device, _replica(each))
    return found


def _hardware(fresh: Inventory, wanted: Collection[str]) -> Mapping[str, Device]:
    """The devices of these ids, among all that the node's hardware could be cut into."""
    found: dict[str, Device] = {}
    for raw, candidates in _candidates(fresh):
        for device_id, profile, slices in candidates:
            if device_id in wanted:
                stranger = replace(raw, entry=UNKNOWN_ENTRY)
                found[device_id] = Device(id=device_id, raw=stranger, ordinal="-1", profile=profile, slices=slices)
        if len(found) == len(wanted):
            break
    return found


def _candidates(fresh: Inventory) -> Iterator[tuple[RawDevice, Iterator[tuple[str, str, range]]]]:
    seen: set[str] = set()
    for resource in fresh.resources.values():
        for slot in resource.slots:
            raw = slot.device.raw
            if raw.id not in seen and raw.entry in resource.entries:
                seen.add(raw.id)
                entry = resource.entries[raw.entry]
                yield raw, _parts(entry, raw)


def _parts(entry: EntrySpec, raw: RawDevice) -> Iterator[tuple[str, str, range]]:
    """Id, profile and slices of the whole device and of each partition that it could be cut into."""
    yield raw.id, "", range(0)
    for placement in placements(entry.geometry) if entry.geometry else ():
        yield partition_id(entry, raw, placement), placement.profile.name, placement.slices


def _replica(slot_id: str) -> int | None:
    number = slot_id.removeprefix(base_id(slot_id)).lstrip(":")
    return int(number) if number.isascii() and number.isdigit() else None
