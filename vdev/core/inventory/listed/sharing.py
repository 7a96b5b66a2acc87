"""Replicas of shared devices: which devices are shared, under which name, and what one replica's share is.

NVIDIA's form and ids (`<id>::<n>`), with what it parses but disables: `devices`, `rename`, several entries for one
name.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from ...many import many
from ...memory import Memory
from ...model import spans
from ...model.device import Device, Slot, replica_id
from ...model.problem import Problem, did_you_mean, error, warning
from ...spec import SharedResource, SharingKind, SharingSpec


@dataclass(frozen=True, slots=True)
class Sharing:
    """How one advertised resource is shared; `replicas` maps a shared device's id to its number of replicas."""

    kind: SharingKind
    fail_requests_greater_than_one: bool
    replicas: Mapping[str, int]


def sharing_of(spec: SharingSpec | None, replicas: Mapping[str, int] | None) -> Sharing | None:
    """How a resource with these numbers of replicas is shared; None where it has none."""
    return Sharing(spec.kind, spec.fail_requests_greater_than_one, replicas) if spec and replicas else None


Slots = tuple[Slot, ...]


@dataclass(slots=True)
class Shared:
    """Slots by resource name after sharing, in portions that stay the same objects, and what went wrong."""

    slots: dict[str, list[Slots]] = field(default_factory=dict)
    sharing: dict[str, dict[str, int]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Replicas:
    """What became of one resource that is shared: slots by name, numbers of replicas by name and device."""

    slots: Mapping[str, Slots]
    sharing: Mapping[str, Mapping[str, int]]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """What the names in a sharing block may refer to beside the resources that are there.

    `entries` are all of the configuration; `written` maps a resource to what the configuration wrote for it, where that
    has placeholders; the resources `elsewhere` are none of this node's, such as those of entries for other nodes, and
    no mistake either.
    """

    entries: frozenset[str] = frozenset()
    written: Mapping[str, Collection[str]] = field(default_factory=dict)
    elsewhere: frozenset[str] = frozenset()


NOTHING_ELSE = Known()


def share(
    devices: Mapping[str, Sequence[Sequence[Device]]],
    spec: SharingSpec | None,
    memory: Memory,
    known: Known = NOTHING_ELSE,
) -> Shared:
    """Slots for all devices: one each, or `replicas` for those that an entry of the sharing block selects.

    `devices` are by resource name, in portions of one entry each.
    """
    result = Shared()
    rules = spec.resources if spec else ()
    problems: list[Problem] = []
    for each in rules:
        if each.name not in devices and each.name not in known.elsewhere:
            text = f"sharing names {each.name!r}, which no entry has"
            problems.append(warning(each.where, text, did_you_mean(each.name, devices)))
    for resource, portions in devices.items():
        own = tuple(rule for rule in rules if rule.name in (resource, *known.written.get(resource, ())))
        if not any(portions):
            result.slots.setdefault(resource, [])
        if not own:
            for portion in filter(None, portions):
                key = (resource, portion[0].raw.entry, portion[0].is_partition)
                slots = memory.recall("slots", key, (portion,), partial(_plain, portion))
                result.slots.setdefault(resource, []).append(slots)
            continue
        collides = frozenset(_target(spec, rule, resource) for rule in own) & devices.keys() - {resource}
        members = list(chain.from_iterable(portions))
        make = partial(_replicas, resource, members, spec, own, collides, known.entries)
        shared = memory.recall("replicas", (resource, collides, known.entries), (spec, *portions), make)
        for name, slots in shared.slots.items():
            result.slots.setdefault(name, []).append(slots)
        for name, numbers in shared.sharing.items():
            result.sharing.setdefault(name, {}).update(numbers)
        problems += shared.problems
    result.problems = list(dict.fromkeys(problems))
    return result


def _plain(devices: Sequence[Device], last: Slots | None) -> Slots:
    before = last or ()
    start, old_end, new_end = spans.changed([slot.device for slot in before], devices)
    same = {id(slot.device): slot for slot in before[start:old_end]}
    touched = devices[start:new_end]
    new = iter(_slots([each for each in touched if id(each) not in same]))
    fresh = (same[id(each)] if id(each) in same else next(new) for each in touched)
    return (*before[:start], *fresh, *before[old_end:])


def _slots(devices: Sequence[Device]) -> list[Slot]:
    """One for each device."""
    made: list[Slot] = []
    for some in spans.pieces(devices):
        each = {"id": [one.id for one in some], "device": some, "health": [one.health for one in some]}
        made += many(Slot, len(some), each=each, same={})
    return made


def _replicas(
    resource: str,
    members: Sequence[Device],
    spec: SharingSpec | None,
    rules: Sequence[SharedResource],
    collides: frozenset[str],
    entries: frozenset[str],
    last: _Replicas | None,
) -> _Replicas:
    same = {(id(slot.device), slot.replica): slot for slots in (last.slots.values() if last else ()) for slot in slots}
    slots: dict[str, list[Slot]] = {}
    sharing: dict[str, dict[str, int]] = {}
    problems: list[Problem] = []
    shared = chosen(problems, resource, members, rules, entries)

    def slot(device: Device, replica: int | None) -> Slot:
        name = device.id if replica is None else replica_id(device.id, replica)
        return same.get((id(device), replica)) or Slot(name, device, replica, device.health)

    for device in members:
        rule = shared.get(device.id)
        if rule is None:
            slots.setdefault(resource, []).append(slot(device, None))
            continue
        most = mps_clients(device) if spec and spec.kind is SharingKind.MPS else rule.replicas
        if rule.replicas > most and not (rule.for_nvidia and most == MPS_CLIENTS):  # which the file's warning says
            problems.append(_too_many_clients(resource, device, rule, most))
            if not rule.for_nvidia:
                continue
        target = _target(spec, rule, resource)
        if target in collides:
            message = f"renaming {resource!r} to {target!r} collides with a resource of that name"
            problems.append(error(rule.where, message))
            continue
        slots.setdefault(target, []).extend(slot(device, n) for n in range(rule.replicas))
        sharing.setdefault(target, {})[device.id] = rule.replicas
    return _Replicas({name: tuple(each) for name, each in slots.items()}, sharing, tuple(dict.fromkeys(problems)))


def _target(spec: SharingSpec | None, rule: SharedResource, resource: str) -> str:
    if rule.rename:
        return rule.rename
    return f"{resource}.shared" if spec and spec.rename_by_default else resource


def chosen(
    problems: list[Problem],
    resource: str,
    members: Sequence[Device],
    rules: Sequence[SharedResource],
    entries: frozenset[str] = NOTHING_ELSE.entries,
) -> dict[str, SharedResource]:
    """The rule that shares each device; a device that two rules claim is an error and stays with the first.

    For NVIDIA's plugin it is none, and the rule with more replicas counts. Rules may name `entries`, which need not
    have a device here.
    """
    rule_of: dict[str, SharedResource] = {}
    for rule in rules:
        for device in _selected(problems, members, rule, entries):
            if device.id in rule_of and rule.for_nvidia:
                rule_of[device.id] = max(rule_of[device.id], rule, key=lambda each: each.replicas)
            elif device.id in rule_of:
                message = f"device {device.ordinal} of {resource!r} is already shared by {rule_of[device.id].where}"
                problems.append(error(rule.where, message))
            else:
                rule_of[device.id] = rule
    return rule_of


def _selected(
    problems: list[Problem], members: Sequence[Device], rule: SharedResource, entries: frozenset[str]
) -> list[Device]:
    ordered = sorted(members, key=lambda device: device.sort_key)
    unfit: list[Problem] = []
    match rule.devices:
        case None:
            picked = ordered
        case int(count):
            if count > len(ordered):
                message = f"{count} devices of {rule.name!r} are to be shared, but this node has {len(ordered)}"
                unfit.append(error(rule.where, message))
            picked = ordered[:count]
        case references:
            named = {each for each in references if each in entries and not each.isdecimal()}  # a number is an index
            whole = [device for device in ordered if device.raw.entry in named]
            others = tuple(each for each in references if each not in named)
            picked = [*{each.id: each for each in (*whole, *_referenced(unfit, ordered, rule, others))}.values()]
    if unfit and rule.for_nvidia:
        instead = "every device is shared, as by NVIDIA's plugin"
        problems += (warning(each.where, each.message, instead) for each in unfit)
        return ordered
    problems += unfit
    return picked


def _referenced(
    problems: list[Problem], ordered: list[Device], rule: SharedResource, references: tuple[str, ...]
) -> list[Device]:
    names = {device.ordinal: device for device in ordered} | {device.id: device for device in ordered}
    picked: dict[str, Device] = {}
    for reference in references:
        device = names.get(reference)
        if device is None:
            known = ", ".join(device.ordinal for device in ordered[:16]) or "none"
            kind = "index" if reference.replace(":", "").isdigit() else "id"
            message = f"{rule.name!r} has no device with {kind} {reference!r} on this node"
            problems.append(error(rule.where, message, f"its indices: {known}"))
        else:
            picked[device.id] = device
    return list(picked.values())


MPS_CLIENTS = 48
_OLD_MPS_CLIENTS = 16
_NEWER = (7, 5)  # compute capability; NVIDIA's daemon compares with this, though Volta, 7.0, could serve 48 as well
_CAPABILITY = re.compile(r"v?([0-9]{1,3})(?:\.([0-9]{1,3}))?")


def mps_clients(device: Device) -> int:
    """How many clients NVIDIA's MPS daemon lets a device have; a device that says no compute capability is new."""
    capability = _CAPABILITY.fullmatch(device.attributes.get("computeCapability", ""))
    if capability is None or (int(capability[1]), int(capability[2] or 0)) >= _NEWER:
        return MPS_CLIENTS
    return _OLD_MPS_CLIENTS


def _too_many_clients(resource: str, device: Device, rule: SharedResource, most: int) -> Problem:
    capability = device.attributes.get("computeCapability", "")
    why = f" of compute capability {capability}" if most < MPS_CLIENTS else ""
    message = f"{rule.replicas} replicas of {resource!r}: MPS serves at most {most} clients of a device{why}"
    if rule.for_nvidia:
        return warning(rule.where, message, "all are offered, as by NVIDIA's plugin")
    return error(rule.where, message, f"replicas: {most} or fewer, or timeSlicing")


def mps_share(sharing: Sharing, device: Device) -> tuple[int, int]:
    """What one MPS replica of the device gets: memory in MiB, and per cent of the threads."""
    replicas = sharing.replicas[device.id]
    return device.memory // replicas // 2**20, 100 // replicas
