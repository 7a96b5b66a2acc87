"""What must be done to get from one inventory to the next."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from operator import is_

from ..model import spans
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
        if self.old.has_all_of(self.new):
            return ()
        return tuple(slot.id for slot in self._touched if slot.id not in self.old.by_id)

    @cached_property
    def removed(self) -> tuple[str, ...]:
        """Ids that are gone."""
        if self.new.has_all_of(self.old):
            return ()
        return tuple(slot.id for slot in self.old.slots if slot.id not in self.new.ids)

    @cached_property
    def health(self) -> tuple[tuple[str, Health], ...]:
        """Ids whose health or its reason changed, with the new one."""
        old = self.old.by_id
        return tuple(
            (slot.id, slot.health)
            for slot in self._touched
            if (before := old.get(slot.id)) and before.health is not slot.health and before.health != slot.health
        )

    def look(self) -> None:
        """Find out all of it now."""
        _ = self.added, self.removed, self.health

    @cached_property
    def _touched(self) -> tuple[Slot, ...]:
        """The new slots that are not the very ones of before; few, when few devices changed."""
        start, old_end, new_end = spans.changed(self.old.slots, self.new.slots)
        before = set[int]()
        for some in spans.pieces(self.old.slots[start:old_end]):
            before.update(map(id, some))
        return tuple(slot for slot in self.new.slots[start:new_end] if id(slot) not in before)


Change = Added | RemovedResource | ChangedResource
NOTHING_KNOWN: Mapping[str, ChangedResource] = {}


def size(change: Change) -> int:
    """How many slots it is about."""
    match change:
        case ChangedResource(new=resource) | Added(resource) | RemovedResource(resource):
            return len(resource.slots)


def settled(old: Inventory, new: Inventory) -> Inventory:
    """`new`, of the objects of `old` where they are equal: these know more of themselves."""
    resources = {
        name: before if (before := old.resources.get(name)) == resource and before else resource
        for name, resource in new.resources.items()
    }
    return new if all(map(is_, resources.values(), new.resources.values())) else replace(new, resources=resources)


def diff(old: Inventory, new: Inventory, known: Mapping[str, ChangedResource] = NOTHING_KNOWN) -> tuple[Change, ...]:
    """What must be done to get from `old` to `new`; empty for equal inventories.

    `known` are changes by resource, which are good for the very resources that they are of.
    """
    changes: list[Change] = []
    if not old.resources.keys() <= new.resources.keys():
        changes += (RemovedResource(each) for name, each in old.resources.items() if name not in new.resources)
    for name, resource in new.resources.items():
        before = old.resources.get(name)
        if before is resource:
            continue
        found = known.get(name)
        if before is None:
            changes.append(Added(resource))
        elif found is not None and found.old is before and found.new is resource:
            changes.append(found)
        elif before != resource:
            changes.append(ChangedResource(before, resource))
    return tuple(changes)


class Differences:
    """`diff` for several who ask one after the other; what `find` found ahead, in a thread, is not looked for again.

    It holds the old inventory until `forget`.
    """

    def __init__(self) -> None:
        self._found: Mapping[str, ChangedResource] = {}

    def find(self, old: Inventory, new: Inventory) -> None:
        """Look for all that will be asked."""
        changed = [each for each in diff(old, new) if isinstance(each, ChangedResource)]
        for each in changed:
            each.look()
        self._found = {each.new.name: each for each in changed}

    def forget(self) -> None:
        """Nobody will ask for a while."""
        self._found = {}

    def __call__(self, old: Inventory, new: Inventory) -> tuple[Change, ...]:
        """What `diff` says."""
        return diff(old, new, self._found)
