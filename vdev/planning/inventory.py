"""Builds the inventory of a node from the devices that discovery found.

`arrange` decides which entry owns a host node, partitions devices, names resources, and adds replicas. An error leaves
out only the devices that it concerns.
"""

import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ..model import names
from ..model.device import Device, IdStyle, RawDevice, Slot, grouped
from ..model.entry import Entry
from ..model.problem import Problem, error, warning
from ..model.spec import Spec
from ..model.virtual import VirtualDevices
from . import naming, refusal, sharing
from .partitions import placements
from .resources import LIST_LIMIT, Inventory, Resource, list_size


def _owned(
    problems: list[Problem], entries: Sequence[Entry], found: Mapping[str, Sequence[RawDevice]]
) -> Mapping[str, Sequence[RawDevice]]:
    """The devices of each entry. A host node belongs to the first entry in the file that finds it."""
    owners: dict[str, RawDevice] = {}  # by host node: the device that owns it
    users: dict[str, RawDevice] = {}  # by host node: the first device that hands it out without owning it
    devices: dict[str, list[RawDevice]] = {entry.name: [] for entry in entries}
    twins: dict[tuple[str, str], list[tuple[RawDevice, RawDevice]]] = defaultdict(list)  # by both entries
    for entry in entries:
        for raw in found.get(entry.name, ()):
            # A node that a device owns belongs to no other device. Several devices may use a node that no device owns.
            others = [owners.get(key) or users.get(key) for key in raw.owns]
            others += (owners.get(key) for key in raw.uses)
            if other := next(filter(None, others), None):
                twins[entry.name, other.entry].append((raw, other))
                continue
            devices[entry.name].append(raw)
            owners |= dict.fromkeys(raw.owns, raw)
            for key in raw.uses:
                users.setdefault(key, raw)
    where = {entry.name: entry.where for entry in entries}
    problems += (_twin_problem(where[loser], pairs) for (loser, _), pairs in twins.items())
    return devices


def _twin_problem(where: str, pairs: Sequence[tuple[RawDevice, RawDevice]]) -> Problem:
    raw, other = pairs[0]
    more = f" (and {len(pairs) - 1} more like it)" if len(pairs) > 1 else ""
    subject = f"{_shown(raw)} is not advertised{more}: it is the same device as {_shown(other)}"
    hint = f"exclude one of the two, or set shared: true in {raw.entry!r} if pods may have it from both"
    return warning(where, f"{subject} of the entry {other.entry!r}, which comes first", hint)


def _shown(raw: RawDevice) -> str:
    return f"{raw.id} ({raw.paths[0]})" if raw.paths else raw.id


def arrange(spec: Spec, node: str, found: Mapping[str, Sequence[RawDevice]]) -> Inventory:
    """Build the inventory of a node from discovered devices."""
    problems: list[Problem] = []
    entries = spec.on_node(node)

    # 1. Decide which entry gets each device, and whether its values may be used in the entry's templates.
    devices = refusal.checked(problems, entries, _owned(problems, entries, found))

    # 2. Partition the devices and name them.
    named = naming.named_devices(problems, spec, entries, devices)

    # 3. Make the slots; a shared device has one for each replica.
    if spec.sharing:
        problems += sharing.unknown_names(spec.sharing, {*named, *_names_elsewhere(spec, entries)})
    listed = {entry.name: entry for entry in entries if entry.listed}
    slots: dict[str, list[Slot]] = defaultdict(list)
    entries_of: dict[str, dict[str, Entry]] = defaultdict(dict)
    for name, members in named.items():
        if not members:
            slots[name] = []
            entries_of[name] = {key: entry for key, entry in listed.items() if entry.resource == name}
        for target, entry, slot in sharing.slots_of(problems, spec, name, members, named.keys()):
            slots[target].append(slot)
            entries_of[target][entry.name] = entry

    # 4. Offer the same devices to claims, partitioned by other rules.
    offers = _claimable(problems, spec, entries, devices) if any(each.dra for each in entries) else {}

    # 5. Leave out ids, names and lists that the kubelet would refuse.
    ids: dict[str, str] = {}  # the resource of each id; the kubelet looks up health by the id alone
    resources: dict[str, Resource] = {}
    for name, own in slots.items():
        kept = []
        for slot in own:
            if slot.id in ids:
                wrong = f"exists twice on this node: in {ids[slot.id]!r} and {name!r}"
            elif len(slot.id) > names.MAX_ID:
                wrong = f"has {len(slot.id)} characters; at most {names.MAX_ID} are allowed"
            else:
                ids[slot.id] = name
                kept.append(slot)
                continue
            problems.append(error(listed[slot.device.raw.entry].where, f"device id {slot.id!r} {wrong}"))
        resource = Resource(
            name=name,
            slots=tuple(kept),
            entries={key: entry.without_node for key, entry in entries_of[name].items()},
            sharing=spec.sharing,
            flags=spec.flags,
        )
        where = next((listed[key].where for key in resource.entries), "")
        if complaint := names.resource_name_problem(name):
            problems.append(error(where, f"the kubelet would refuse the resource name: {complaint}"))
        elif (size := list_size(kept, healthy=False)) > LIST_LIMIT:
            problems.append(_too_large(resource, size, where))
        else:
            resources[name] = resource

    handed_out = {raw.id for raws in devices.values() for raw in raws if not raw.refused}
    return Inventory(
        resources,
        tuple(dict.fromkeys(problems)),
        left_out=frozenset(raw.id for entry in entries for raw in found.get(entry.name, ())) - handed_out,
        claimable=offers,
    )


def _names_elsewhere(spec: Spec, entries: Sequence[Entry]) -> Iterator[str]:
    """The resource names that only other nodes or claims have, where `entries` are those of this node."""
    listed = {entry.name for entry in entries if entry.listed}
    for entry in spec.entries:
        if entry.name not in listed:
            yield from naming.names_of(spec, entry)
        elif entry.is_templated:
            yield entry.resource


def _too_large(resource: Resource, size: int, where: str) -> Problem:
    count = len(resource.slots)
    return error(
        where,
        f"{resource.name}: the list of {count} devices takes up to {size} bytes, "
        f"more than the {LIST_LIMIT} that the kubelet receives",
        f"about {count * LIST_LIMIT // size} devices of this kind fit",
    )


# --- devices for claims -----------------------------------------------------------------------------------------------


def _claimable(
    problems: list[Problem], spec: Spec, entries: Sequence[Entry], found: Mapping[str, Sequence[RawDevice]]
) -> Mapping[str, Resource]:
    """The devices of these entries that claims can get, by driver. A driver may currently have no device.

    MIG strategies and name patterns do not apply to claims.
    """
    of_driver: dict[str, dict[str, Entry]] = {}
    slots: dict[str, list[Slot]] = defaultdict(list)
    ordinals = Counter[str]()  # the next free ordinal of each resource
    for entry in entries:
        raws, first = found.get(entry.name, ()), ordinals[entry.resource]
        ordinals[entry.resource] += max((raw.index + 1 for raw in raws), default=0)
        if entry.dra:
            driver = entry.dra.driver
            devices = [each for raw in raws for each in _devices_for_claims(problems, entry, raw, first + raw.index)]
            of_driver.setdefault(driver, {})[entry.name] = entry
            replicas = _replicas(problems, spec, entry, devices)
            for device in devices:
                if device.id in replicas:
                    device = replace(device, replicas=replicas[device.id])
                slots[driver].append(Slot(device.id, device, None, device.raw.health))
    return {
        driver: Resource(
            name=driver,
            slots=tuple(slots[driver]),
            entries=own,
            sharing=spec.sharing,
            flags=spec.flags,
        )
        for driver, own in of_driver.items()
    }


def _devices_for_claims(problems: list[Problem], entry: Entry, raw: RawDevice, ordinal: int) -> Iterator[Device]:
    assert entry.dra is not None
    wanted = None if entry.dra.mig_enabled is False else entry.parts(raw.index)
    is_dynamic = entry.dra.is_dynamic and entry.dra.mig_enabled is not False
    if wanted is None or (is_dynamic and entry.geometry):
        yield naming.whole_device(raw, ordinal)
    if is_dynamic and entry.geometry:
        for number, placement in enumerate(placements(entry.geometry)):
            yield naming.partition(entry, raw, f"{ordinal}:{number}", placement)
    elif wanted is not None:
        yield from naming.listed_partitions(problems, entry, raw, ordinal, wanted)


def _replicas(problems: list[Problem], spec: Spec, entry: Entry, devices: Sequence[Device]) -> dict[str, int]:
    """The number of claims that may use each device at the same time, if the section `sharing` names its resource."""
    if spec.sharing is None or not devices:
        return {}
    named = ((naming.name_of(spec, entry, device.profile), device) for device in devices)
    by_name = grouped((name, device) for name, device in named if name)
    found: dict[str, int] = {}
    for name, members in by_name.items():
        rules = [rule for rule in spec.sharing.resources if rule.name == name]
        is_dynamic = entry.dra is not None and entry.dra.is_dynamic
        chosen = sharing.chosen([] if is_dynamic else problems, spec, name, members, rules)
        shared = {each: rule.replicas for each, rule in chosen.items() if rule.replicas > 1}
        if is_dynamic and shared:
            message = f"claims do not share {name} of {entry.name}, whose partitions are dynamic"
            hint = "set dra.partitions to static if claims should share devices"
            problems.append(warning(rules[0].where, message, hint))
        elif not is_dynamic:
            found |= shared
    return found


# --- virtual devices --------------------------------------------------------------------------------------------------


_NAMESPACE = uuid.UUID("0d3a1c52-6f0e-5b1c-9a40-3f6de1c7b2a8")  # of generated ids; must never change


def virtual_devices(entry: Entry, source: VirtualDevices, node: str) -> list[RawDevice]:
    """The devices of an entry on a node, in the order of their index.

    Their ids are `<name>-<index>`, or UUIDs in the style of NVIDIA's driver, which are unique across nodes.
    """
    ids: Sequence[str] = source.ids
    if not ids and source.model.id_style is IdStyle.NVIDIA:
        ids = [f"GPU-{uuid.uuid5(_NAMESPACE, f'{node}/{entry.name}/{index}')}" for index in range(source.count)]
    elif not ids:
        ids = [names.device_id(entry.name, str(index), fingerprint=16) for index in range(source.count)]
    return [
        RawDevice(
            id=each,
            entry=entry.name,
            index=index,
            memory=source.memory,
            numa=source.numa[index : index + 1] if len(source.numa) > 1 else source.numa,
            attributes=source.attributes,
            numa_hidden=entry.exclude_topology,
        )
        for index, each in enumerate(ids)
    ]


def inventory(spec: Spec, node: str) -> Inventory:
    """The inventory of a node with virtual devices only."""
    found = {
        entry.name: tuple(virtual_devices(entry, entry.virtual, node)) for entry in spec.on_node(node) if entry.virtual
    }
    return arrange(spec, node, found)
