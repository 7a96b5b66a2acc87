"""Which devices a rule selects, and the effect of all rules on an inventory.

A rule selects *units*. A unit is a whole raw device, so that a hardware fault reaches all its replicas and partitions.
If the rule names a resource, a profile or a partition, a unit is what the resource offers: a partition, or the whole
device. If it names the id of a replica, a unit is that replica.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from operator import itemgetter
from typing import TypeVar

from ..model.device import DeviceKey, Health, Key, Slot, base_id, grouped
from ..planning.resources import Inventory, Resource
from .effects import ConditionFault, SensorFault, TaintFault, XidError
from .rules import FaultRule, Select
from .schedule import Dice

_Fault = TypeVar("_Fault")

Unit = tuple[str, str]  # "raw", "device" or "slot", and its id


@dataclass(frozen=True)
class ActiveFaults:
    """The effects of the active rules of a node at one moment: each rule, with the slots that it affects.

    If two rules contradict each other, the later one wins.
    """

    hits: tuple[tuple[FaultRule, frozenset[Key]], ...] = ()
    pre_start: frozenset[str] = frozenset()  # resources whose PreStartContainer must be called, so that it can fail

    @cached_property
    def verdicts(self) -> Mapping[Key, Health]:
        return {key: verdict for rule, keys in self.hits if (verdict := rule.verdict) for key in keys}

    @cached_property
    def removed(self) -> Mapping[Key, str]:
        """The rule that unplugs each slot. A slot that a pod holds stays listed."""
        return {key: rule.name for rule, keys in self.hits if rule.remove for key in keys}

    @cached_property
    def dropped(self) -> Mapping[Key, str]:
        """The rule that removes each slot from its list, even while a pod holds it."""
        return {key: rule.name for rule, keys in self.hits if rule.drop for key in keys}

    @cached_property
    def xids(self) -> Mapping[Key, Sequence[XidError]]:
        return grouped((key, XidError(rule.xid, rule.name)) for rule, keys in self.hits if rule.xid for key in keys)

    @cached_property
    def taints(self) -> Mapping[Key, Sequence[TaintFault]]:
        return grouped((key, rule.taint) for rule, keys in self.hits if rule.taint for key in keys)

    @cached_property
    def sensors(self) -> Mapping[Key, Sequence[SensorFault]]:
        faults = ((rule.overheat or rule.hardware_errors, keys) for rule, keys in self.hits)
        return grouped((key, fault) for fault, keys in faults if fault for key in keys)

    @cached_property
    def conditions(self) -> Mapping[str, ConditionFault]:
        found: dict[str, ConditionFault] = {}
        for rule, _ in self.hits:
            if rule.condition:
                message = rule.condition.message or f"the fault rule {rule.name!r} says so"
                found[rule.condition.type] = rule.condition.model_copy(update={"message": message})
        return found

    def unplugged_by(self, key: Key) -> str | None:
        """Return the rule that removes this slot, or None."""
        return self.removed.get(key) or self.dropped.get(key)


NONE = ActiveFaults()


def select(rule: FaultRule, inventory: Inventory, dice: Dice) -> frozenset[Key]:
    """Return the slots that the rule selects, and all slots of the same units."""
    offered = inventory.claimable if rule.taint is not None else inventory.everything
    units = dict.fromkeys(unit for unit, _, resource in _units(rule, inventory, offered) if rule.concerns(resource))
    return _slots_of(_chosen(list(units), rule.devices, dice, rule.name), offered)


def widened(keys: frozenset[Key], rule: FaultRule, inventory: Inventory) -> frozenset[Key]:
    """Return these slots, and all slots of the same units."""
    units = {unit for unit, key, _ in _units(rule, inventory, inventory.everything) if key in keys}
    return _slots_of(units, inventory.everything)


def _units(rule: FaultRule, inventory: Inventory, offered: Mapping[str, Resource]) -> Iterator[tuple[Unit, Key, str]]:
    """Yield the unit of each slot that meets the rule's conditions, with the slot and its resource."""
    entries = {slot.device.raw.entry for each in inventory.everything.values() for slot in each.slots}
    alternatives = rule.devices.alternatives(entries)
    for name, offer in offered.items():
        # Rules refer to a DRA driver's devices by the resource of their entry, and to other devices by their own.
        resources = (
            {each: entry.resource for each, entry in offer.entries.items()} if name in inventory.claimable else {}
        )
        for slot in offer.slots:
            resource = resources.get(slot.device.raw.entry, name)
            unit = _unit(alternatives, resource, slot, narrowed=rule.resource != "*")
            if unit is not None:
                yield unit, (name, slot.id), resource


def _slots_of(units: AbstractSet[Unit], offered: Mapping[str, Resource]) -> frozenset[Key]:
    return frozenset(
        (name, slot.id)
        for name, resource in offered.items()
        for slot in resource.slots
        if not units.isdisjoint(units_of(slot))
    )


def units_of(slot: Slot) -> tuple[Unit, Unit, Unit]:
    """Return the units that contain a slot, the largest first."""
    return ("raw", slot.device.raw.id), ("device", slot.device.id), ("slot", slot.id)


def apply_faults(inventory: Inventory, active_faults: ActiveFaults) -> Inventory:
    """Apply the health of active rules to the inventory, and remove unplugged devices."""
    verdicts, removed = active_faults.verdicts, active_faults.removed

    def judged(name: str, slot: Slot) -> Slot | None:
        key = name, slot.id
        verdict = verdicts.get(key)
        if key in removed:
            return None
        # A real failure keeps its own reason. A device that discovery found broken stays Unhealthy.
        if verdict is None or slot.health.healthy == verdict.healthy or not slot.device.raw.health.healthy:
            return slot
        return replace(slot, health=verdict)

    if verdicts or removed:
        inventory = inventory.with_slots(judged)
    # The faults were computed before the last change of partitions, so a resource may no longer exist.
    present = active_faults.pre_start & inventory.resources.keys()
    asked = {name: replace(inventory.resources[name], pre_start_asked=True) for name in present}
    return replace(inventory, resources={**inventory.resources, **asked}) if asked else inventory


def drop(inventory: Inventory, keys: Collection[Key]) -> Inventory:
    """Return the inventory without these slots, even if a pod holds them."""
    return inventory.with_slots(lambda name, slot: None if (name, slot.id) in keys else slot) if keys else inventory


def of_devices(devices: Inventory, faults: Mapping[Key, Sequence[_Fault]]) -> Mapping[DeviceKey, tuple[_Fault, ...]]:
    """Convert faults of slots to faults of these devices, by resource and device (without a replica's number)."""
    found: dict[DeviceKey, tuple[_Fault, ...]] = {}
    for (name, slot), each in sorted(faults.items(), key=itemgetter(0)):
        resource = devices.each_once.get(name)
        if resource is not None and slot in resource.by_id:
            key = (name, base_id(slot))
            found[key] = tuple(dict.fromkeys((*found.get(key, ()), *each)))
    return found


def _unit(alternatives: Iterable[Select], resource: str, slot: Slot, *, narrowed: bool) -> Unit | None:
    """The unit of the slot that meets one of the alternatives, or None."""
    for want in alternatives:
        if not _meets(want, resource, slot):
            continue
        raw, device, single = units_of(slot)
        if want.id:
            return next((each for each in (raw, device, single) if fnmatchcase(each[1], want.id)), None)
        return device if narrowed or want.of_partitions else raw
    return None


def _meets(want: Select, resource: str, slot: Slot) -> bool:
    raw, device = slot.device.raw, slot.device
    return (
        (not want.entry or fnmatchcase(raw.entry, want.entry))
        and want.has_index(device)
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
