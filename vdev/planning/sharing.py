"""Replicas of shared devices: which devices are shared, under which name, and what one replica's share is.

NVIDIA's form and ids (`<id>::<n>`), with what it parses but disables: `devices`, `rename`, several entries for one
name.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ..model.device import Device, Slot, replica_id
from ..model.problem import Problem, did_you_mean, error, warning
from ..model.spec import SharedItem, SharingKind, TimeSlicing


@dataclass(frozen=True, slots=True)
class Sharing:
    """How one advertised resource is shared; `replicas` maps a shared device's id to its number of replicas."""

    kind: SharingKind
    fail_requests_greater_than_one: bool
    replicas: Mapping[str, int]


def sharing_of(spec: TimeSlicing | None, replicas: Mapping[str, int] | None) -> Sharing | None:
    """How a resource with these numbers of replicas is shared; None if it is not shared."""
    return Sharing(spec.kind, spec.fail_requests_greater_than_one, replicas) if spec and replicas else None


@dataclass(slots=True)
class Shared:
    """The slots by resource name after sharing, and what goes wrong."""

    problems: list[Problem]
    slots: dict[str, list[Slot]] = field(default_factory=dict)
    replicas: dict[str, dict[str, int]] = field(default_factory=dict)
    """The number of replicas of each shared device, by resource name and device id."""


def share(
    problems: list[Problem],
    devices: Mapping[str, Sequence[Device]],
    spec: TimeSlicing | None,
    *,
    entries: frozenset[str],
    written: Mapping[str, Collection[str]],
    elsewhere: Collection[str],
) -> Shared:
    """Slots for all devices: one each, or `replicas` for those that an entry of the sharing block selects.

    The block may name `entries`, and a resource as it is `written` with placeholders. The resources `elsewhere` are not
    on this node, and naming them is no mistake.
    """
    result = Shared(problems)
    rules = spec.resources if spec else ()
    for each in rules:
        if each.name not in devices and each.name not in elsewhere:
            text = f"sharing names {each.name!r}, which no entry has"
            problems.append(warning(each.where, text, did_you_mean(each.name, devices)))
    for resource, members in devices.items():
        own = tuple(rule for rule in rules if rule.name in (resource, *written.get(resource, ())))
        if spec is None or not own:
            result.slots.setdefault(resource, []).extend(Slot(each.id, each, None, each.health) for each in members)
        else:
            if not members:
                result.slots.setdefault(resource, [])
            collides = frozenset(_target(spec, rule, resource) for rule in own) & devices.keys() - {resource}
            shared = chosen(problems, resource, members, own, entries)
            _replicate(result, resource, members, spec, shared, collides)
    return result


def _replicate(
    result: Shared,
    resource: str,
    members: Sequence[Device],
    spec: TimeSlicing,
    shared: Mapping[str, SharedItem],
    collides: frozenset[str],
) -> None:
    """Add slots for the devices of one resource. The devices in `shared` have replicas."""
    for device in members:
        rule = shared.get(device.id)
        if rule is None:
            result.slots.setdefault(resource, []).append(Slot(device.id, device, None, device.health))
            continue
        most = mps_clients(device) if spec.kind is SharingKind.MPS else rule.replicas
        if rule.replicas > most and not (rule.for_nvidia and most == MPS_CLIENTS):  # that has a warning already
            result.problems.append(_too_many_clients(resource, device, rule, most))
            if not rule.for_nvidia:
                continue
        target = _target(spec, rule, resource)
        if target in collides:
            message = f"renaming {resource!r} to {target!r} collides with a resource of that name"
            result.problems.append(error(rule.where, message))
            continue
        result.slots.setdefault(target, []).extend(
            Slot(replica_id(device.id, n), device, n, device.health) for n in range(rule.replicas)
        )
        result.replicas.setdefault(target, {})[device.id] = rule.replicas


def _target(spec: TimeSlicing, rule: SharedItem, resource: str) -> str:
    if rule.rename:
        return rule.rename
    return f"{resource}.shared" if spec.rename_by_default else resource


def chosen(
    problems: list[Problem],
    resource: str,
    members: Sequence[Device],
    rules: Sequence[SharedItem],
    entries: frozenset[str],
) -> dict[str, SharedItem]:
    """The rule that shares each device. If two rules name a device, that is an error and the first one counts.

    In a file for NVIDIA's plugin it is not an error, and the rule with more replicas counts. Rules may name `entries`
    that have no device here.
    """
    rule_of: dict[str, SharedItem] = {}
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
    problems: list[Problem], members: Sequence[Device], rule: SharedItem, entries: frozenset[str]
) -> list[Device]:
    ordered = sorted(members, key=lambda device: device.sort_key)
    unfit: list[Problem] = []
    match rule.devices:
        case None | ():  # the latter in a file for NVIDIA's plugin, which shares every device
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
    problems: list[Problem], ordered: list[Device], rule: SharedItem, references: tuple[str, ...]
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
    """How many clients NVIDIA's MPS daemon allows for a device; one without a compute capability counts as new."""
    capability = _CAPABILITY.fullmatch(device.attributes.get("computeCapability", ""))
    if capability is None or (int(capability[1]), int(capability[2] or 0)) >= _NEWER:
        return MPS_CLIENTS
    return _OLD_MPS_CLIENTS


def _too_many_clients(resource: str, device: Device, rule: SharedItem, most: int) -> Problem:
    capability = device.attributes.get("computeCapability", "")
    why = f" of compute capability {capability}" if most < MPS_CLIENTS else ""
    message = f"{rule.replicas} replicas of {resource!r}: MPS serves at most {most} clients of a device{why}"
    if rule.for_nvidia:
        return warning(rule.where, message, "all are offered, as by NVIDIA's plugin")
    return error(rule.where, message, f"replicas: {most} or fewer, or timeSlicing")


def mps_share(sharing: Sharing, device: Device) -> tuple[int, int]:
    """The share of one MPS replica of the device: memory in MiB, and per cent of the threads."""
    replicas = sharing.replicas[device.id]
    return device.memory // replicas // 2**20, 100 // replicas
