"""The resources of a node, made of what discovery found: owners, partitions, names, replicas, and lists that fit.

Every error leaves out what it concerns and nothing else.
"""

from collections.abc import Iterable, KeysView, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain

from ..memory import Memory
from ..model import spans
from ..model.device import RawDevice, Slot
from ..model.problem import Problem, error, warning
from ..model.syntax import names
from ..spec import EntrySpec, Spec
from . import claimable, list_size, node_owners, refusal
from .listed import naming, sharing, template_names
from .listed.sharing import Known
from .resources import Inventory, Resource


def arrange(spec: Spec, node: str, found: Mapping[str, Sequence[RawDevice]], memory: Memory | None = None) -> Inventory:
    """The inventory of a node, as discovery sees it.

    With the `memory` of the last call, resources and slots that nothing changed are the same objects as before.
    """
    memory = memory or Memory()
    with memory.round():
        return _arranged(spec, node, found, memory)


def _arranged(spec: Spec, node: str, found: Mapping[str, Sequence[RawDevice]], memory: Memory) -> Inventory:
    here = spec.on_node(node)
    claimed = node_owners.settle(here, found, memory)
    judged = refusal.settle(here, claimed.devices, memory)
    named = template_names.by_name(here, judged.devices, memory)
    advertised = naming.advertise(spec, named.parts, memory)
    offered = claimable.offer(spec, here, judged.devices, memory)
    only_claimed = (name for entry in here if entry.dra and not entry.listed for name in naming.names_of(spec, entry))
    templates = (entry.resource for entry in here if entry.template)
    of_others = (name for entry in spec.entries if not entry.is_on(node) for name in naming.names_of(spec, entry))
    elsewhere = frozenset((*only_claimed, *templates, *of_others)) if spec.sharing else frozenset[str]()
    known = Known(frozenset(entry.name for entry in spec.entries), named.written, elsewhere)
    shared = sharing.share(advertised.devices, spec.sharing, memory, known)
    problems = [*claimed.problems, *judged.problems, *named.problems]
    problems += [*advertised.problems, *shared.problems, *offered.problems]
    entries = {entry.name: entry for entry in here if entry.listed}
    groups = {
        name: tuple(
            memory.recall("slot group", (name, n), (each,), partial(_slot_group, each)) for n, each in enumerate(slots)
        )
        for name, slots in shared.slots.items()
    }
    if not _ids_are_fine(groups.values()):
        groups = _with_fine_ids(groups, problems, entries)
    resources: dict[str, Resource] = {}
    for name, parts in groups.items():
        own = _entries_of(name, parts, entries, named.of_device)
        replicas = shared.sharing.get(name)
        rules = spec.sharing if replicas else None
        make = partial(_resource, spec, name, parts, own, replicas)
        resource = memory.recall("resource", name, (spec.flags, rules, *own.values(), *parts), make)
        where = _where(resource.slots, entries, name)
        complaint = names.resource_name_problem(name)
        if complaint:
            problems.append(error(where, f"the kubelet would refuse the resource name: {complaint}"))
        elif resource.list_bytes > list_size.LIST_LIMIT:
            problems.append(_too_large(resource, where))
        else:
            resources[name] = resource
            at_worst = sum(part.bytes_at_worst for part in parts)
            if at_worst > list_size.LIST_LIMIT:
                problems.append(_nearly_too_large(resource, at_worst, where))
    left_out = claimed.left_out | judged.refused
    return Inventory(resources, tuple(problems), advertised.reasons, left_out, offered.resources)


@dataclass(frozen=True)
class _SlotGroup:
    """Slots in a row, and what is known of all of them."""

    slots: tuple[Slot, ...]

    @cached_property
    def by_id(self) -> Mapping[str, Slot]:
        return {slot.id: slot for slot in self.slots}

    @cached_property
    def ids(self) -> KeysView[str]:
        return self.by_id.keys()

    @cached_property
    def raws(self) -> AbstractSet[str]:
        if all(slot.device.raw.id == slot.id for slot in self.slots):  # devices are neither cut nor shared
            return self.ids
        return frozenset(slot.device.raw.id for slot in self.slots)

    @cached_property
    def longest_id(self) -> int:
        return max((len(slot.id) for slot in self.slots), default=0)

    @cached_property
    def entries(self) -> Mapping[str, str]:
        """The names of the entries whose devices these are, with the last device of each."""
        return {slot.device.raw.entry: slot.device.raw.id for slot in self.slots}

    @cached_property
    def healthy(self) -> int:
        return _healthy(self.slots)

    @cached_property
    def list_bytes(self) -> int:
        return list_size.list_size(self.slots)

    @cached_property
    def bytes_at_worst(self) -> int:
        return list_size.list_size(self.slots, healthy=False)


def _healthy(slots: Iterable[Slot]) -> int:
    return sum(slot.health.healthy for slot in slots)


def _slot_group(slots: tuple[Slot, ...], last: _SlotGroup | None) -> _SlotGroup:
    """A group, with the sums of the one that it was, brought up to date."""
    group = _SlotGroup(slots)
    if last is not None:
        start, old_end, new_end = spans.changed(last.slots, slots)
        gone, new = last.slots[start:old_end], slots[start:new_end]
        if len(gone) + len(new) < len(slots):
            group.__dict__.update(  # where cached properties keep their values
                healthy=last.healthy + _healthy(new) - _healthy(gone),
                list_bytes=last.list_bytes + list_size.list_size(new) - list_size.list_size(gone),
                bytes_at_worst=last.bytes_at_worst
                + list_size.list_size(new, healthy=False)
                - list_size.list_size(gone, healthy=False),
            )
    return group


def _entries_of(
    name: str,
    groups: Iterable[_SlotGroup],
    entries: Mapping[str, EntrySpec],
    of_device: Mapping[str, EntrySpec],
) -> Mapping[str, EntrySpec]:
    """Those whose devices the resource has; without any device, those that would give it some."""
    used = {
        entry: of_device.get(device) or entries[entry] for group in groups for entry, device in group.entries.items()
    }
    return used or {key: entry for key, entry in entries.items() if entry.resource == name}


def _resource(
    spec: Spec,
    name: str,
    groups: Sequence[_SlotGroup],
    entries: Mapping[str, EntrySpec],
    replicas: Mapping[str, int] | None,
    _last: object,
) -> Resource:
    """The resource of these groups; what is known of each group is summed up instead of being counted again."""
    resource = Resource(
        name=name,
        slots=tuple(chain.from_iterable(group.slots for group in groups)),
        entries={key: entry.without_node for key, entry in entries.items()},
        sharing=sharing.sharing_of(spec.sharing, replicas),
        flags=spec.flags,
    )
    by_id, ids, raws = _known(groups)
    resource.__dict__.update(  # where cached properties keep their values
        by_id=by_id,
        ids=ids,
        raws=raws,
        healthy=sum(group.healthy for group in groups),
        list_bytes=sum(group.list_bytes for group in groups),
    )
    return resource


def _known(groups: Sequence[_SlotGroup]) -> tuple[Mapping[str, Slot], KeysView[str], AbstractSet[str]]:
    """The slots by id, their ids, and those of their raw devices. What a single group knows is not made twice."""
    if len(groups) == 1:
        return groups[0].by_id, groups[0].ids, groups[0].raws
    by_id: dict[str, Slot] = {}
    for group in groups:
        by_id.update(group.by_id)
    ids = by_id.keys()
    if all(group.raws is group.ids for group in groups):
        return by_id, ids, ids
    return by_id, ids, frozenset[str]().union(*(group.raws for group in groups))


def _ids_are_fine(resources: Iterable[Sequence[_SlotGroup]]) -> bool:
    """Whether no id is too long and none is there twice."""
    groups = list(chain.from_iterable(resources))
    if max((group.longest_id for group in groups), default=0) > names.MAX_ID:
        return False
    largest = max(groups, key=lambda group: len(group.slots), default=_SlotGroup(()))
    others = set[str]().union(*(group.by_id for group in groups if group is not largest))
    apart = largest.by_id.keys().isdisjoint(others)
    return apart and len(largest.by_id) + len(others) == sum(len(group.slots) for group in groups)


def _with_fine_ids(
    groups: Mapping[str, Sequence[_SlotGroup]], problems: list[Problem], entries: Mapping[str, EntrySpec]
) -> dict[str, tuple[_SlotGroup, ...]]:
    """The groups without slots whose id is too long, or taken."""
    seen: dict[str, str] = {}
    return {
        name: tuple(_SlotGroup(tuple(_unique(part.slots, name, seen, problems, entries))) for part in parts)
        for name, parts in groups.items()
    }


def _where(slots: Sequence[Slot], entries: Mapping[str, EntrySpec], name: str) -> str:
    if slots:
        return entries[slots[0].device.raw.entry].where
    return next((entry.where for entry in entries.values() if entry.resource == name), "")


def _unique(
    slots: Iterable[Slot], name: str, seen: dict[str, str], problems: list[Problem], entries: Mapping[str, EntrySpec]
) -> list[Slot]:
    """The slots whose ids are new on this node: the kubelet looks health up by the bare id, over all resources."""
    kept = []
    for slot in slots:
        where = entries[slot.device.raw.entry].where
        if slot.id in seen:
            wrong = f"exists twice on this node: in {seen[slot.id]!r} and {name!r}"
            problems.append(error(where, f"device id {slot.id!r} {wrong}"))
        elif len(slot.id) > names.MAX_ID:
            wrong = f"has {len(slot.id)} characters; at most {names.MAX_ID} are allowed"
            problems.append(error(where, f"device id {slot.id!r} {wrong}"))
        else:
            seen[slot.id] = name
            kept.append(slot)
    return kept


def _too_large(resource: Resource, where: str) -> Problem:
    count, size = len(resource.slots), resource.list_bytes
    fits = count * list_size.LIST_LIMIT // size
    return error(
        where,
        f"{resource.name}: the list of {count} devices takes {size} bytes, "
        f"more than the {list_size.LIST_LIMIT} that the kubelet receives",
        f"about {fits} devices of this kind fit",
    )


def _nearly_too_large(resource: Resource, size: int, where: str) -> Problem:
    return warning(
        where,
        f"{resource.name}: if all of its {len(resource.slots)} devices were Unhealthy, "
        f"the list would take {size} bytes, more than the {list_size.LIST_LIMIT} that the kubelet receives",
    )
