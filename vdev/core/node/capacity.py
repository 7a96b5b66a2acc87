"""The extended resources of the Node's status, where they are written there instead of coming from a device plugin."""

from collections.abc import Mapping
from dataclasses import dataclass

from ..inventory.resources import Inventory


@dataclass(frozen=True, slots=True)
class SlotCounts:
    """How many slots a resource has, and how many of them are healthy."""

    capacity: int
    allocatable: int


def capacity(inventory: Inventory) -> Mapping[str, SlotCounts]:
    """What the kubelet would count of these lists, by resource."""
    return {name: SlotCounts(len(each.slots), each.healthy) for name, each in inventory.resources.items()}
