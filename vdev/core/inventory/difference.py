"""What must be done to get from one inventory to the next."""

from dataclasses import dataclass, replace
from functools import cached_property

from ..model.device import Health, Slot
from .resources import Inventory, Resource


@dataclass(frozen=True, slots=True)
class Added:
    """A resource that must be served and registered."""

    resource: Resource


@dataclass(frozen=True, slots=True)
class RemovedResource:
    """A resource that nothing needs any more."""

    resource: Resource


@dataclass(frozen=True)
class ChangedResource:
    """A resource whose devices, or what they give to containers, changed; its open stream carries the news."""

    old: Resource
    new: Resource

    @cached_property
    def added(self) -> tuple[str, ...]:
        """Ids that are new."""
        return tuple(slot.id for slot in self._touched if slot.id not in self.old.by_id)

    @cached_property
    def removed(self) -> tuple[str, ...]:
        """Ids that are gone."""
        if self.new.ids >= self.old.ids:
            return ()
        return tuple(slot.id for slot in self.old.slots if slot.id not in self.new.ids)

    @cached_property
    def health(self) -> tuple[tuple[str, Health], ...]:
        """Ids whose health or its reason changed, with the new one."""
        old = self.old.by_id
        return tuple(
            (slot.id, slot.health) for slot in self._touched if slot.id in old and old[slot.id].health != slot.health
        )

    @cached_property
    def _touched(self) -> tuple[Slot, ...]:
        """The new slots that are not the very ones of before; few, when few devices changed."""
        before = set(map(id, self.old.slots))
        return tuple(slot for slot in self.new.slots if id(slot) not in before)


Change = Added | RemovedResource | ChangedResource


def settled(old: Inventory, new: Inventory) -> Inventory:
    """`new`, of the objects of `old` where they are equal: these know more of themselves."""
    resources = {
        name: before if (before := old.resources.get(name)) == resource and before else resource
        for name, resource in new.resources.items()
    }
    return replace(new, resources=resources)


def diff(old: Inventory, new: Inventory) -> tuple[Change, ...]:
    """What must be done to get from `old` to `new`; empty for equal inventories."""
    changes: list[Change] = [
        RemovedResource(resource) for name, resource in old.resources.items() if name not in new.resources
    ]
    for name, resource in new.resources.items():
        before = old.resources.get(name)
        if before is None:
            changes.append(Added(resource))
        elif before is not resource and before != resource:
            changes.append(ChangedResource(before, resource))
    return tuple(changes)
