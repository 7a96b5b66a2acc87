"""A device that an edit moves between the device plugin and claims is for the one that has it, until it lets it go.

The kubelet's device manager and the scheduler do not know of each other. What a file advertises both ways is counted
twice, as the file says; here it is about what was one way before the edit, and is the other way after it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from ..grouping import grouped
from ..inventory.resources import Inventory, Resource
from ..model.device import Device, Health, Key, Slot
from .retain import Retired, overlaps, things


def without_retired(devices: Inventory, retired: Mapping[Key, Retired], claimed: Collection[Key]) -> Inventory:
    """`devices` whose offers to claims are without what pods may still have of the device plugin, which retired it.

    What is `claimed` (driver and id) stays: it was given out both ways.
    """
    if not (retired and devices.claimable):
        return devices
    by_thing = _by_thing(each.slot for each in retired.values())
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
    if not alone:
        return devices
    by_thing = _by_thing(Slot(device.id, device, None, device.health) for device in alone.values())
    resources = {name: _blocked(resource, by_thing) for name, resource in devices.resources.items()}
    return replace(devices, resources=resources)


def _blocked(resource: Resource, by_thing: Mapping[str, list[Slot]]) -> Resource:
    slots = []
    for slot in resource.slots:
        other = _overlapping(slot, by_thing)
        if other is None:
            slots.append(slot)
        else:
            what = "a claim still has it" if other.id == slot.id else f"a claim still has {other.id}, which overlaps it"
            slots.append(replace(slot, health=Health(healthy=False, reason=what)))
    return replace(resource, slots=tuple(slots))


def _by_thing(slots: Iterable[Slot]) -> Mapping[str, list[Slot]]:
    return grouped((thing, slot) for slot in slots for thing in things(slot))


def _overlapping(slot: Slot, by_thing: Mapping[str, list[Slot]]) -> Slot | None:
    others = (each for thing in things(slot) for each in by_thing.get(thing, ()))
    return next((each for each in others if overlaps(slot, each)), None)
