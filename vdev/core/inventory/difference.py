"""What must be done to get from one inventory to the next."""

from dataclasses import dataclass

from ..model.device import Health
from .resources import Inventory, Resource


@dataclass(frozen=True, slots=True)
class Added:
    """A resource that must be served and registered."""

    resource: Resource


@dataclass(frozen=True, slots=True)
class RemovedResource:
    """A resource that nothing needs any more."""

    resource: Resource


@dataclass(frozen=True, slots=True)
class ChangedResource:
    """A resource whose devices, or what they give to containers, changed; its open stream carries the news."""

    old: Resource
    new: Resource

    @property
    def added(self) -> tuple[str, ...]:
        """Ids that are new."""
        return tuple(each for each in self.new.ids if each not in self.old.ids)

    @property
    def removed(self) -> tuple[str, ...]:
        """Ids that are gone."""
        return tuple(each for each in self.old.ids if each not in self.new.ids)

    @property
    def health(self) -> tuple[tuple[str, Health], ...]:
        """Ids whose health or its reason changed, with the new one."""
        old = self.old.by_id
        return tuple(
            (slot.id, slot.health)
            for slot in self.new.slots
            if (before := old.get(slot.id)) and before.health != slot.health
        )


Change = Added | RemovedResource | ChangedResource


def diff(old: Inventory, new: Inventory) -> tuple[Change, ...]:
    """What must be done to get from `old` to `new`; empty for equal inventories."""
    changes: list[Change] = [
        RemovedResource(resource) for name, resource in old.resources.items() if name not in new.resources
    ]
    for name, resource in new.resources.items():
        before = old.resources.get(name)
        if before is None:
            changes.append(Added(resource))
        elif before != resource:
            changes.append(ChangedResource(before, resource))
    return tuple(changes)
