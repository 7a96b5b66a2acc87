"""The resources of a node, made of what discovery found: owners, partitions, names, replicas, and lists that fit.

Every error leaves out what it concerns and nothing else.
"""

from collections.abc import Iterable, Mapping, Sequence

from ..model.device import RawDevice, Slot
from ..model.problem import Problem, error, warning
from ..model.syntax import names
from ..spec import EntrySpec, Spec
from . import claimable, list_size, node_owners, refusal
from .listed import naming, sharing, template_names
from .listed.sharing import Known
from .resources import Inventory, Resource


def arrange(spec: Spec, node: str, found: Mapping[str, Sequence[RawDevice]]) -> Inventory:
    """The inventory of a node, as discovery sees it."""
    here = spec.on_node(node)
    claimed = node_owners.settle(here, found)
    judged = refusal.settle(here, claimed.devices)
    named = template_names.by_name(here, judged.devices)
    advertised = naming.advertise(spec, named.parts)
    offered = claimable.offer(spec, here, judged.devices)
    only_claimed = (name for entry in here if entry.dra and not entry.listed for name in naming.names_of(spec, entry))
    templates = (entry.resource for entry in here if entry.template)
    of_others = (name for entry in spec.entries if not entry.is_on(node) for name in naming.names_of(spec, entry))
    elsewhere = frozenset((*only_claimed, *templates, *of_others)) if spec.sharing else frozenset[str]()
    known = Known(frozenset(entry.name for entry in spec.entries), named.written, elsewhere)
    shared = sharing.share(advertised.devices, spec.sharing, known)
    problems = [*claimed.problems, *judged.problems, *named.problems]
    problems += [*advertised.problems, *shared.problems, *offered.problems]
    entries = {entry.name: entry for entry in here if entry.listed}
    resources: dict[str, Resource] = {}
    for name, slots in _with_fine_ids(shared.slots, problems, entries).items():
        resource = Resource(
            name=name,
            slots=slots,
            entries={
                key: entry.without_node for key, entry in _entries_of(name, slots, entries, named.of_device).items()
            },
            sharing=sharing.sharing_of(spec.sharing, shared.sharing.get(name)),
            flags=spec.flags,
        )
        where = _where(slots, entries, name)
        complaint = names.resource_name_problem(name)
        if complaint:
            problems.append(error(where, f"the kubelet would refuse the resource name: {complaint}"))
        elif resource.list_bytes > list_size.LIST_LIMIT:
            problems.append(_too_large(resource, where))
        else:
            resources[name] = resource
            at_worst = list_size.list_size(slots, healthy=False)
            if at_worst > list_size.LIST_LIMIT:
                problems.append(_nearly_too_large(resource, at_worst, where))
    left_out = claimed.left_out | judged.refused
    return Inventory(resources, tuple(problems), advertised.reasons, left_out, offered.resources)


def _entries_of(
    name: str, slots: Iterable[Slot], entries: Mapping[str, EntrySpec], of_device: Mapping[str, EntrySpec]
) -> Mapping[str, EntrySpec]:
    """Those whose devices the resource has; without any device, those that would give it some."""
    used = {slot.device.raw.entry: slot.device.raw.id for slot in slots}
    if not used:
        return {key: entry for key, entry in entries.items() if entry.resource == name}
    return {entry: of_device.get(device) or entries[entry] for entry, device in used.items()}


def _with_fine_ids(
    slots: Mapping[str, Sequence[Slot]], problems: list[Problem], entries: Mapping[str, EntrySpec]
) -> dict[str, tuple[Slot, ...]]:
    """The slots without those whose id is too long, or taken."""
    seen: dict[str, str] = {}
    return {name: tuple(_unique(own, name, seen, problems, entries)) for name, own in slots.items()}


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
        if slot.id in seen:
            wrong = f"exists twice on this node: in {seen[slot.id]!r} and {name!r}"
        elif len(slot.id) > names.MAX_ID:
            wrong = f"has {len(slot.id)} characters; at most {names.MAX_ID} are allowed"
        else:
            seen[slot.id] = name
            kept.append(slot)
            continue
        problems.append(error(entries[slot.device.raw.entry].where, f"device id {slot.id!r} {wrong}"))
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
