"""Devices whose containers must do without the tools of their maker."""

from collections.abc import Mapping
from dataclasses import replace

from .resources import Inventory, Resource


def without_tools(inventory: Inventory, raws: frozenset[str]) -> Inventory:
    """The inventory with no tools for the devices of these raw ids."""

    def bare(resources: Mapping[str, Resource]) -> dict[str, Resource]:
        return {name: _bare(resource, raws) for name, resource in resources.items()}

    return replace(inventory, resources=bare(inventory.resources), claimable=bare(inventory.claimable))


def _bare(resource: Resource, raws: frozenset[str]) -> Resource:
    if not raws & resource.raws:
        return resource
    slots = (
        replace(slot, device=replace(slot.device, raw=replace(slot.device.raw, tools="")))
        if slot.device.raw.id in raws
        else slot
        for slot in resource.slots
    )
    return replace(resource, slots=tuple(slots))
