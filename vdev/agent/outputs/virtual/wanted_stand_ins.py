"""Which stand-ins a plan needs on the host, for what Allocate gives and for what claims get."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ....core.allocation.device_edits import any_cdi
from ....core.decide import Plan
from ....core.inventory.resources import Inventory, Resource
from ....core.model.device import Key, RawDevice
from ....core.model.facts import facts
from ....core.model.virtual_node import LikeNode, StandIn
from ....core.spec import EntrySpec, VirtualSource


@dataclass(frozen=True, slots=True)
class WantedStandIn:
    """What stands in for a device of an entry, and the slots that it is for."""

    entry: EntrySpec
    device: RawDevice
    standin: StandIn
    slots: frozenset[Key] = frozenset()

    @property
    def values(self) -> Mapping[str, str]:
        return facts(self.device, self.entry.resource)


def wanted_stand_ins(plan: Plan) -> dict[str, WantedStandIn]:
    """What is needed, by raw device id, each with all slots that it is for."""
    wanted: dict[str, WantedStandIn] = {}
    slots: dict[str, set[Key]] = {}
    for each, key in itertools.chain(_listed(plan.base), _for_claims(plan), _listed(plan.inventory)):
        wanted[each.device.id] = each
        slots.setdefault(each.device.id, set()).add(key)
    return {device: replace(each, slots=frozenset(slots[device])) for device, each in wanted.items()}


def _listed(inventory: Inventory) -> Iterator[tuple[WantedStandIn, Key]]:
    """What Allocate gives."""
    for resource in inventory.resources.values():
        yield from _of_slots(resource, by_cdi=any_cdi(resource.flags))


def _for_claims(plan: Plan) -> Iterator[tuple[WantedStandIn, Key]]:
    """What claims can get, and what they have of devices that are away. They get it through CDI."""
    for offered in plan.base.claimable.values():
        yield from _of_slots(offered, by_cdi=True)
    for driver, pool in plan.pools.items():
        nodes = {name: (entry, _made(entry, by_cdi=True)) for name, entry in pool.offered.entries.items()}
        for device in pool.devices if any(node for _, node in nodes.values()) else ():
            entry, node = nodes.get(device.entry, (None, None))
            if device.lost and entry and node:
                yield WantedStandIn(entry, device.device.raw, node), (driver, device.device.id)


def _of_slots(resource: Resource, *, by_cdi: bool) -> Iterator[tuple[WantedStandIn, Key]]:
    for entry in resource.entries.values():
        node = _made(entry, by_cdi=by_cdi)
        for slot in resource.slots if node else ():
            if node and slot.device.raw.entry == entry.name:
                yield WantedStandIn(entry, slot.device.raw, node), (resource.name, slot.id)


def _made(entry: EntrySpec, *, by_cdi: bool) -> StandIn | None:
    """What is made on the host for each device of an entry: under CDI the runtime makes device nodes itself."""
    node = entry.source.node if isinstance(entry.source, VirtualSource) else None
    return None if by_cdi and isinstance(node, LikeNode) else node
