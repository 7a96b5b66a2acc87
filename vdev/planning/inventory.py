"""`arrange` makes the inventory of a node from the devices that discovery found.

It decides which entry owns a host node, cuts devices into partitions, names resources, and adds the shares. An error
leaves out only what it concerns.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain

from ..model import names
from ..model.device import RawDevice, Slot
from ..model.entry import Entry
from ..model.problem import Problem, error, warning
from ..model.spec import Spec
from . import claimable, naming, refusal, sharing
from .list_size import LIST_LIMIT, list_size
from .resources import Inventory, Resource
from .sharing import Known
from .virtual_devices import devices


@dataclass(frozen=True, slots=True)
class EntryDevices:
    """The devices that each entry gets, the ids of those that it found but does not get, and why."""

    devices: Mapping[str, Sequence[RawDevice]]
    left_out: frozenset[str] = frozenset()
    problems: tuple[Problem, ...] = ()


def same(one: RawDevice, other: RawDevice) -> bool:
    """Whether two devices are the same: one hands out what the other consists of."""
    return _meet(one.owns, other.owns) or _meet(one.owns, other.uses) or _meet(one.uses, other.owns)


def _meet(some: Sequence[str], others: Sequence[str]) -> bool:
    return bool(some and others) and not set(some).isdisjoint(others)


def settle(entries: Sequence[Entry], found: Mapping[str, Sequence[RawDevice]]) -> EntryDevices:
    """Which of the devices that were found each entry gets; `entries` are in the order of the file."""
    owners: dict[str, RawDevice] = {}
    users: dict[str, RawDevice] = {}
    devices: dict[str, Sequence[RawDevice]] = {}
    twins: dict[tuple[str, str], list[tuple[RawDevice, RawDevice]]] = defaultdict(list)
    for entry in entries:
        had = []
        for raw in found.get(entry.name, ()):
            others = (owners.get(key) or users.get(key) for key in raw.owns)
            others_used = (owners.get(key) for key in raw.uses)
            other = next(filter(None, chain(others, others_used)), None)
            if other is not None:
                twins[entry.name, other.entry].append((raw, other))
                continue
            had.append(raw)
            for key in raw.owns:
                owners.setdefault(key, raw)
            for key in raw.uses:
                users.setdefault(key, raw)
        devices[entry.name] = had
    where = {entry.name: entry.where for entry in entries}
    return EntryDevices(
        devices=devices,
        left_out=frozenset(raw.id for pairs in twins.values() for raw, _ in pairs),
        problems=tuple(_problem(where[loser], pairs) for (loser, _), pairs in twins.items()),
    )


def _problem(where: str, pairs: Sequence[tuple[RawDevice, RawDevice]]) -> Problem:
    raw, other = pairs[0]
    more = f" (and {len(pairs) - 1} more like it)" if len(pairs) > 1 else ""
    subject = f"{_shown(raw)} is not advertised{more}: it is the same device as {_shown(other)}"
    shared = f"or set shared: true in {raw.entry!r} if pods may have it from both"
    if raw.entry == other.entry:
        return warning(where, f"{subject}, which this entry found first", f"exclude one of the two, {shared}")
    return warning(
        where,
        f"{subject} of the entry {other.entry!r}, which comes first",
        f"exclude it from one of the two entries, {shared}",
    )


def _shown(raw: RawDevice) -> str:
    return f"{raw.id} ({raw.paths[0]})" if raw.paths else raw.id


def arrange(spec: Spec, node: str, found: Mapping[str, Sequence[RawDevice]]) -> Inventory:
    """The inventory of a node, as discovery sees it."""
    here = spec.on_node(node)
    claimed = settle(here, found)
    judged = refusal.settle(here, claimed.devices)
    named = naming.by_name(here, judged.devices)
    advertised = naming.advertise(spec, named.parts)
    offered = claimable.offer(spec, here, judged.devices)
    only_claimed = (name for entry in here if entry.dra and not entry.listed for name in naming.names_of(spec, entry))
    templates = (entry.resource for entry in here if entry.is_templated)
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
        elif (size := list_size(slots, healthy=False)) > LIST_LIMIT:
            problems.append(_too_large(resource, size, where))
        else:
            resources[name] = resource
    left_out = claimed.left_out | judged.refused
    return Inventory(resources, tuple(problems), advertised.reasons, left_out, offered.resources)


def _entries_of(
    name: str, slots: Iterable[Slot], entries: Mapping[str, Entry], of_device: Mapping[str, Entry]
) -> Mapping[str, Entry]:
    """Those whose devices the resource has; without any device, those that would give it some."""
    used = {slot.device.raw.entry: slot.device.raw.id for slot in slots}
    if not used:
        return {key: entry for key, entry in entries.items() if entry.resource == name}
    return {entry: of_device.get(device) or entries[entry] for entry, device in used.items()}


def _with_fine_ids(
    slots: Mapping[str, Sequence[Slot]], problems: list[Problem], entries: Mapping[str, Entry]
) -> dict[str, tuple[Slot, ...]]:
    """The slots without those whose id is too long, or taken: the kubelet looks health up by the bare id, over all
    resources.
    """
    seen: dict[str, str] = {}
    fine: dict[str, list[Slot]] = {}
    for name, own in slots.items():
        kept = fine[name] = []
        for slot in own:
            if slot.id in seen:
                wrong = f"exists twice on this node: in {seen[slot.id]!r} and {name!r}"
            elif len(slot.id) > names.MAX_ID:
                wrong = f"has {len(slot.id)} characters; at most {names.MAX_ID} are allowed"
            else:
                seen[slot.id] = name
                kept.append(slot)
                continue
            problems.append(error(entries[slot.device.raw.entry].where, f"device id {slot.id!r} {wrong}"))
    return {name: tuple(kept) for name, kept in fine.items()}


def _where(slots: Sequence[Slot], entries: Mapping[str, Entry], name: str) -> str:
    if slots:
        return entries[slots[0].device.raw.entry].where
    return next((entry.where for entry in entries.values() if entry.resource == name), "")


def _too_large(resource: Resource, size: int, where: str) -> Problem:
    count = len(resource.slots)
    return error(
        where,
        f"{resource.name}: the list of {count} devices takes up to {size} bytes, "
        f"more than the {LIST_LIMIT} that the kubelet receives",
        f"about {count * LIST_LIMIT // size} devices of this kind fit",
    )


_OTHERS = ("node", "x", "other-node", "0")  # names to try for the node that no pattern means


def node_names(patterns: Iterable[str]) -> tuple[str, ...]:
    """The name of a node that no pattern matches, where there can be one, and a name for each pattern."""
    patterns = tuple(dict.fromkeys(patterns))
    free = [name for name in _OTHERS if not any(fnmatchcase(name, pattern) for pattern in patterns)]
    examples = [name for pattern in patterns if fnmatchcase(name := re.sub(r"[*?]", "x", pattern), pattern)]
    return tuple(dict.fromkeys((*free[:1], *examples))) or _OTHERS[:1]


def inventory(spec: Spec, node: str) -> Inventory:
    """What the node of that name would advertise if it had no real devices."""
    found = {entry.name: tuple(devices(entry, entry.virtual, node)) for entry in spec.on_node(node) if entry.virtual}
    return arrange(spec, node, found)
