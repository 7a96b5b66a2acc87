"""The pools of a node: the devices that each DRA driver publishes for claims.

devices for claims       ─► attributes        names, attributes, capacity, counters
health, faults, presence ─► published_pools   taints, and lost devices that claims still use
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..faults.targets import NONE, ActiveFaults
from ..model.device import GONE, Slot, grouped
from ..model.entry import Entry
from ..model.problem import Problem, error
from ..planning.resources import Resource
from .amd_devices import Amd, is_amd
from .attributes import Describer
from .nvidia_devices import Nvidia
from .published_devices import DraDevice, Pools, PublishedPool, Record, Taint, lost, of_health, recalled

Held = Mapping[str, Mapping[str, Record | None]]
"""By driver: the published names of devices that prepared claims use, each with its record if there is one."""
Claimed = Mapping[tuple[str, str], DraDevice]
"""By driver and published name: the devices of prepared claims, in the form in which they are published while lost."""
NOTHING_CLAIMED: Claimed = {}


def claimed_devices(before: Pools, held: Held) -> Claimed:
    """The devices of claims, as they are published while lost: from the pools `before`, or from their records."""
    found: dict[tuple[str, str], DraDevice] = {}
    for driver, records in held.items():
        pool = before.get(driver)
        for name, written in records.items():
            known = pool.by_name.get(name) if pool else None
            if device := lost(pool, known) if pool and known else recalled(written):
                found[driver, name] = device
    return found


def published_pools(
    offers: Mapping[str, Resource],
    present: Mapping[str, Resource],
    *,
    claimed: Claimed = NOTHING_CLAIMED,
    faults: ActiveFaults = NONE,
) -> Pools:
    """The published pool of each driver, by the driver's name.

    `offers` has all devices for claims, by driver, and `present` those that exist now, with their health. A claimed
    device that is lost or no longer shared stays unchanged, and devices that overlap it are not published.
    """
    found: dict[str, PublishedPool] = {}
    for driver in sorted({*offers, *(driver for driver, _ in claimed)}):
        offered = offers.get(driver) or Resource(driver, ())
        pool = _present(offered, present.get(driver) or offered, faults)
        found[driver] = _with_held(pool, {name: device for (of, name), device in claimed.items() if of == driver})
    return found


def _with_held(pool: PublishedPool, held: Mapping[str, DraDevice]) -> PublishedPool:
    """The pool with devices that stay only because claims use them, and without devices that overlap these.

    Such devices are lost, are no longer shared, or have a name that now belongs to another device.
    """
    kept: list[DraDevice] = []
    for name, was in sorted(held.items()):
        now = pool.by_name.get(name)
        present = now if now and now.device.id == was.device.id else None
        if not present or (was.shared and not present.shared):
            kept.append(replace(was, health=present.health if present else GONE))
    sets = {name: amounts for each in kept for name, amounts in each.sets.items()}
    beside = []
    for each in pool.devices:
        if any(_excludes(one, each) for one in kept):
            continue
        if all(sets.get(name, amounts) == amounts for name, amounts in each.sets.items()):
            beside.append(each)
        elif was_held := held.get(each.name):
            # A kept device still needs the old counters of this set, so this one also consumes them as before. Its
            # entry may have another name now.
            beside.append(replace(was_held, device=each.device, taints=each.taints, health=each.health, lost=False))
    return replace(pool, devices=(*beside, *kept))


def _excludes(kept: DraDevice, other: DraDevice) -> bool:
    """Whether a device cannot be published together with a kept one, because it has its name or overlaps it.

    If both consume counters of one set, the counters keep overlapping devices from being allocated together.
    """
    if kept.name == other.name:
        return True
    if kept.group != other.group or (kept.consumes and other.consumes):
        return False
    return not (kept.device.is_partition and other.device.is_partition) or bool(
        set(kept.device.slices) & set(other.device.slices)
    )


def _present(offered: Resource, present: Resource, faults: ActiveFaults) -> PublishedPool:
    """The pool of a driver that offers these devices, with those that are present."""
    driver = offered.name
    problems: list[Problem] = []
    devices: dict[str, DraDevice] = {}
    places = _places(offered.entries.values())
    members_of = grouped((slot.device.raw.entry, slot.device) for slot in offered.slots)
    for name, entry in offered.entries.items():
        describe, members = _style(entry)(entry, offered, *places[name]), members_of.get(name, [])
        if entry.dra and entry.dra.mig_enabled:
            members = [each for each in members if each.is_partition]  # the GPU itself is not published
        for made in describe.ordered(members):
            if first := devices.get(made.name):
                both = f"{first.device.id!r} and {made.device.id!r}"
                message = f"{both} would both be the device {made.name!r} of {driver}; the first one is published"
                problems.append(error(entry.where, message, "give one of the entries another name, or another driver"))
            else:
                devices[made.name] = made
        problems.extend(describe.flaws.values())
    slots = ((each, present.by_id.get(each.device.id)) for each in devices.values())
    return PublishedPool(
        driver=driver,
        devices=tuple(_judged(each, slot, present, faults) for each, slot in slots if slot),
        offered=offered,
        problems=tuple(dict.fromkeys(problems)),
    )


def _judged(device: DraDevice, slot: Slot, present: Resource, faults: ActiveFaults) -> DraDevice:
    key = (present.name, slot.id)
    xids, rules = [each.number for each in faults.xids.get(key, ())], faults.taints.get(key, ())
    if not (xids or rules) and slot.health.healthy:
        return device
    own = of_health(present.entries[device.entry], slot.health, xids)
    taints = (*own, *(Taint(each.key, each.effect, each.value) for each in rules))
    last = {(each.key, each.effect): each for each in taints}  # the last one of several wins
    return replace(device, taints=tuple(last.values()), health=slot.health)


def _places(entries: Iterable[Entry]) -> dict[str, tuple[int, int]]:
    """The number of each entry's first GPU, and the number of GPUs of its vendor.

    GPUs are numbered over all entries of a vendor, in the order of the file.
    """
    first: dict[str, int] = {}
    total: dict[type[Describer], int] = {}
    for entry in entries:
        first[entry.name] = total.get(_style(entry), 0)
        count = entry.virtual.count if entry.virtual else 0
        total[_style(entry)] = first[entry.name] + count
    return {entry.name: (first[entry.name], total[_style(entry)]) for entry in entries}


def _style(entry: Entry) -> type[Describer]:
    if entry.is_nvidia:
        return Nvidia
    return Amd if is_amd(entry) else Describer
