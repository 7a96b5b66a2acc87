"""Which slots a rule means, and an inventory with what rules do to it.

A rule selects *units*: whole raw devices, so that a fault of the hardware reaches all replicas and partitions; or, when
it names a resource, a profile or a partition, what the resource offers: the partition, else the whole device; or
single replicas when it names their ids.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from operator import itemgetter
from typing import TypeVar

from ..model.device import Health, Key, Slot, base_id
from ..planning.resources import Inventory, Resource
from .effects import ConditionFault, SensorFault, TaintFault, XidError
from .rules import DeviceFilter, FaultRule, Select
from .schedule import Dice

_Fault = TypeVar("_Fault")

Unit = tuple[str, str]  # "raw", "device" or "slot", and its id


@dataclass(frozen=True, slots=True)
class Afflictions:
    """What rules do to slots at one moment: `removed` are unplugged, `dropped` leave the list even while held.

    `pre_start` are resources whose PreStartContainer must be called, so that it can fail. `xids` are the errors that
    slots have, whatever their health; `conditions` are those of the Node, by type; `taints` those of slots that claims
    can get; `sensors` is what only the sensors and counters of slots show.
    """

    verdicts: Mapping[Key, Health] = field(default_factory=dict)
    removed: frozenset[Key] = frozenset()
    dropped: frozenset[Key] = frozenset()
    pre_start: frozenset[str] = frozenset()
    xids: Mapping[Key, tuple[XidError, ...]] = field(default_factory=dict)
    conditions: Mapping[str, ConditionFault] = field(default_factory=dict)
    taints: Mapping[Key, tuple[TaintFault, ...]] = field(default_factory=dict)
    sensors: Mapping[Key, tuple[SensorFault, ...]] = field(default_factory=dict)


NONE = Afflictions()


def select(rule: FaultRule, inventory: Inventory, dice: Dice) -> frozenset[Key]:
    offered = inventory.claimable if rule.taint is not None else inventory.everything
    units: dict[Unit, None] = {}
    filters = _filters(rule, inventory)
    narrowed = rule.resource != "*"
    for name, resource in offered.items():
        called = _called(inventory, name)
        concerned = {each: rule.concerns(each) for each in (name, *called.values())}
        if any(concerned[each] for each in called.values()) if called else concerned[name]:
            for slot in resource.slots:
                known = called.get(slot.device.raw.entry, name)
                unit = _unit(filters, known, slot, narrowed=narrowed) if concerned[known] else None
                if unit is not None:
                    units[unit] = None
    return _slots_of(_chosen(list(units), rule.selection, dice, rule.name), offered)


def widened(keys: frozenset[Key], rule: FaultRule, inventory: Inventory) -> frozenset[Key]:
    """These slots, and the other slots of the same units that the rule selects."""
    filters = _filters(rule, inventory)
    units = {
        _unit(filters, called.get(slot.device.raw.entry, name), slot, narrowed=rule.resource != "*")
        for name, resource in inventory.everything.items()
        for called in (_called(inventory, name),)
        for slot in resource.slots
        if (name, slot.id) in keys
    }
    return _slots_of(units, inventory.everything)


def _filters(rule: FaultRule, inventory: Inventory) -> tuple[DeviceFilter, ...]:
    entries = {slot.device.raw.entry for each in inventory.everything.values() for slot in each.slots}
    return rule.selection.filters(entries)


def _slots_of(units: AbstractSet[Unit | None], offered: Mapping[str, Resource]) -> frozenset[Key]:
    return frozenset(
        (name, slot.id)
        for name, resource in offered.items()
        for slot in resource.slots
        if not units.isdisjoint(units_of(slot))
    )


def _called(inventory: Inventory, name: str) -> Mapping[str, str]:
    """By entry, the resources that rules know the offers of a driver by; empty for a resource of that name."""
    offered = inventory.claimable.get(name)
    return {each: entry.resource for each, entry in offered.entries.items()} if offered else {}


def units_of(slot: Slot) -> tuple[Unit, Unit, Unit]:
    """What a slot is part of."""
    return ("raw", slot.device.raw.id), ("device", slot.device.id), ("slot", slot.id)


def afflict(inventory: Inventory, afflictions: Afflictions) -> Inventory:
    """The inventory with verdicts and removals."""
    if afflictions == NONE:
        return inventory
    touched = {name for name, _ in (*afflictions.verdicts, *afflictions.removed)} | afflictions.pre_start
    return inventory.changed(lambda each: _afflicted(each, afflictions) if each.name in touched else each)


def drop(inventory: Inventory, keys: frozenset[Key]) -> Inventory:
    """The inventory without these slots, held or not."""
    touched = {name for name, _ in keys}

    def kept(resource: Resource) -> Resource:
        if resource.name not in touched:
            return resource
        return replace(resource, slots=tuple(slot for slot in resource.slots if (resource.name, slot.id) not in keys))

    return inventory.changed(kept) if keys else inventory


def of_devices(devices: Inventory, faults: Mapping[Key, tuple[_Fault, ...]]) -> Mapping[Key, tuple[_Fault, ...]]:
    """What faults make of slots, of these devices, by resource and device (without a replica's number)."""
    found: dict[Key, tuple[_Fault, ...]] = {}
    for (name, slot), each in sorted(faults.items(), key=itemgetter(0)):
        resource = devices.each_once.get(name)
        if resource is not None and slot in resource.ids:
            key = (name, base_id(slot))
            found[key] = tuple(dict.fromkeys((*found.get(key, ()), *each)))
    return found


def _unit(filters: Iterable[DeviceFilter], resource: str, slot: Slot, *, narrowed: bool) -> Unit | None:
    """The unit of the slot that one of the filters means, or None."""
    for want in filters:
        if not _meets(want, resource, slot):
            continue
        raw, device, single = units_of(slot)
        if want.id:
            return next((each for each in (raw, device, single) if fnmatchcase(each[1], want.id)), None)
        fine = narrowed or bool(want.profile or want.resource) or want.partition is not None
        return device if fine else raw
    return None


def _meets(want: DeviceFilter, resource: str, slot: Slot) -> bool:
    raw, device = slot.device.raw, slot.device
    return (
        (not want.entry or fnmatchcase(raw.entry, want.entry))
        and (not want.indices or any(raw.index in each for each in want.indices))
        and (want.partition is None or (device.is_partition and device.part == want.partition))
        and (not want.resource or fnmatchcase(resource, want.resource))
        and (not want.profile or (device.is_partition and fnmatchcase(device.profile, want.profile)))
        and (not want.numa or any(node in want.numa for node in raw.numa))
        and (not want.id or any(fnmatchcase(each, want.id) for each in (raw.id, device.id, slot.id)))
    )


def _chosen(units: list[Unit], selection: Select, dice: Dice, rule: str) -> frozenset[Unit]:
    if selection.count is not None:
        units = units[: selection.count]
    number = len(units) if selection.pick is None else selection.pick
    if selection.share is not None:
        number = max(1, int(len(units) * selection.share + 0.5))
    if number >= len(units):
        return frozenset(units)
    return frozenset(sorted(units, key=lambda unit: dice.roll(rule, "pick", *unit))[:number])


def _afflicted(resource: Resource, afflictions: Afflictions) -> Resource:
    slots = tuple(
        _judged(slot, afflictions.verdicts.get((resource.name, slot.id)))
        for slot in resource.slots
        if (resource.name, slot.id) not in afflictions.removed
    )
    asked = resource.pre_start_asked or resource.name in afflictions.pre_start
    return replace(resource, slots=slots, pre_start_asked=asked)


def _judged(slot: Slot, verdict: Health | None) -> Slot:
    """The slot with the verdict of a fault rule.

    A real failure keeps its own reason, and a device that discovery found broken cannot be made Healthy.
    """
    if verdict is None or slot.health.healthy == verdict.healthy or not slot.device.raw.health.healthy:
        return slot
    return replace(slot, health=verdict)


def names(keys: Iterable[Key]) -> tuple[str, ...]:
    """The ids in a steady order."""
    return tuple(sorted({each for _, each in keys}))
