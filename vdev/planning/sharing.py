"""Replicas of shared devices: which devices are shared, under which name, and the share of one replica.

Format and ids (`<id>::<n>`) are NVIDIA's. The settings `devices`, `rename` and several entries for one name also work,
which NVIDIA's plugin parses but disables.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ..model.device import Device, Slot, grouped, replica_id
from ..model.entry import Entry
from ..model.problem import Problem, did_you_mean, error, warning
from ..model.spec import SharedItem, SharingKind, Spec, TimeSlicing


def slots_of(
    problems: list[Problem], spec: Spec, name: str, members: Sequence[tuple[Entry, Device]], names: Collection[str]
) -> Iterator[tuple[str, Entry, Slot]]:
    """The slots of a resource's devices, each with the resource that lists it: replicas may have another name.

    A device has one slot, or `replicas` if an item of the sharing section selects it. `names` are those of all
    resources of the node.
    """
    block = spec.sharing
    shared: Mapping[str, SharedItem] = {}
    if block:
        # An item may also name the resource with its placeholders.
        written = {entry.name: entry.resource for entry in spec.entries if entry.is_templated}
        known = {name, *(written.get(entry.name) for entry, _ in members if entry.resource == name)}
        rules = [rule for rule in block.resources if rule.name in known]
        shared = chosen(problems, spec, name, [device for _, device in members], rules)
    for entry, device in members:
        rule = shared.get(device.id)
        if block is None or rule is None:
            yield name, entry, Slot(device.id, device, None, device.raw.health)
            continue
        most = mps_clients(device) if block.kind is SharingKind.MPS else rule.replicas
        if rule.replicas > most and not (rule.for_nvidia and most == MPS_CLIENTS):  # which already has a warning
            problems.append(_too_many_clients(name, device, rule, most))
            if not rule.for_nvidia:
                continue
        target = rule.rename or (f"{name}.shared" if block.rename_by_default else name)
        if target != name and target in names:
            message = f"renaming {name!r} to {target!r} collides with a resource of that name"
            problems.append(error(rule.where, message, "choose another name"))
            continue
        shared_device = replace(device, replicas=rule.replicas)
        for number in range(rule.replicas):
            yield target, entry, Slot(replica_id(device.id, number), shared_device, number, device.raw.health)


def unknown_names(block: TimeSlicing, known: Collection[str]) -> Iterator[Problem]:
    """A warning for each name in the sharing section that is not a known resource."""
    for each in block.resources:
        if each.name not in known:
            yield warning(
                each.where, f"sharing names {each.name!r}, which no entry has", did_you_mean(each.name, known)
            )


def chosen(
    problems: list[Problem], spec: Spec, resource: str, members: Sequence[Device], rules: Sequence[SharedItem]
) -> dict[str, SharedItem]:
    """The rule that shares each device. If two rules name a device, this is an error and the first one applies.

    In a file for NVIDIA's plugin, this is a warning and the rule with more replicas applies.
    """
    rule_of: dict[str, SharedItem] = {}
    for rule in rules:
        devices = _selected(problems, spec, members, rule)
        if clash := next((device for device in devices if device.id in rule_of), None):
            message = f"device {clash.ordinal} of {resource!r} is already shared by {rule_of[clash.id].where}"
            if rule.for_nvidia:
                instead = "it has the larger number of replicas, as with NVIDIA's plugin"
                problems.append(warning(rule.where, message, instead))
            else:
                hint = "items for one resource must list different devices"
                problems.append(error(rule.where, message, hint))
        for device in devices:
            first = rule_of.setdefault(device.id, rule)
            if rule.for_nvidia and rule.replicas > first.replicas:
                rule_of[device.id] = rule
    return rule_of


def _selected(problems: list[Problem], spec: Spec, members: Sequence[Device], rule: SharedItem) -> Iterable[Device]:
    """The devices that a rule names, by number, index, id, or entry, which need not have a device here."""
    entries = [entry.name for entry in spec.entries]
    ordered = sorted(members, key=lambda device: device.sort_key)
    unfit: list[Problem] = []
    match rule.devices:
        case None | ():  # () is from a file for NVIDIA's plugin, which shares all devices
            picked = ordered
        case int(count):
            if count > len(ordered):
                message = f"{count} devices of {rule.name!r} are to be shared, but this node has {len(ordered)}"
                unfit.append(error(rule.where, message))
            picked = ordered[:count]
        case references:
            known = {each.ordinal: [each] for each in ordered} | {each.id: [each] for each in ordered}
            known |= {name: [] for name in entries if not name.isdecimal()}  # a number is an index
            known |= grouped((each.raw.entry, each) for each in ordered if not each.raw.entry.isdecimal())
            picked = [device for reference in references for device in known.get(reference, ())]
            indices = ", ".join(device.ordinal for device in ordered[:16]) or "none"
            for reference in references:
                if reference not in known:
                    kind = "index" if reference.replace(":", "").isdigit() else "id"
                    message = f"{rule.name!r} has no device with {kind} {reference!r} on this node"
                    hint = f"{did_you_mean(reference, entries)} its indices: {indices}".lstrip()
                    unfit.append(error(rule.where, message, hint))
    if unfit and rule.for_nvidia:
        instead = "every device is shared, as by NVIDIA's plugin"
        problems += (warning(each.where, each.message, instead) for each in unfit)
        return ordered
    problems += unfit
    return {device.id: device for device in picked}.values()


MPS_CLIENTS = 48
_OLD_MPS_CLIENTS = 16
# The lowest compute capability with which NVIDIA's daemon allows 48 clients, although 7.0 also supports them.
_NEWER = (7, 5)
_CAPABILITY = re.compile(r"v?([0-9]{1,3})(?:\.([0-9]{1,3}))?")


def mps_clients(device: Device) -> int:
    """The number of clients that NVIDIA's MPS daemon allows for a device; without a compute capability, 48."""
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


def mps_share(device: Device, count: int) -> tuple[int, int]:
    """The share of `count` MPS replicas of a shared device: memory in MiB, and threads in percent."""
    return device.memory // device.replicas // 2**20 * count, min(100, 100 // device.replicas * count)
