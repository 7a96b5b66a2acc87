"""Names the resource of each device, by its entry, by patterns, or by the profile of a partition."""

import glob
import uuid
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from ..model.device import Device, RawDevice, grouped
from ..model.entry import Entry, MigStrategy
from ..model.geometry import LayoutError, Placement, resource_suffix
from ..model.names import domain_and_name, resource_name_problem
from ..model.problem import Problem, error, warning
from ..model.spec import Spec
from .partitions import place

_NAMESPACE = uuid.UUID("5f3ab1f0-6d2f-5c55-9a2e-7d1f4f8f3a10")  # of generated ids; must never change


def named_devices(
    problems: list[Problem], spec: Spec, entries: Sequence[Entry], found: Mapping[str, Sequence[RawDevice]]
) -> Mapping[str, Sequence[tuple[Entry, Device]]]:
    """All devices that the device plugin lists, partitioned, by the name of their resource.

    The entry of a device keeps the resource name of the file, even if a pattern or a profile replaces it.

    A resource whose devices break the strategy's rules is left out, with an error; other resources are not affected.
    A resource without devices is included, so that devices can be hot-plugged later.
    """
    members: dict[str, list[tuple[Entry, Device]]] = {}
    strategy = spec.flags.mig_strategy
    for resource, own in _by_resource(problems, entries, found).items():
        where = own[0][0].where
        devices: list[tuple[Entry, Device]] = []
        empty: list[str] = []
        following = 0  # the first ordinal of the entry; indices of absent devices stay unused
        for entry, raws in own:
            first = following
            partitions: list[Device] = []
            for raw in raws:
                wanted, ordinal = entry.parts(raw.index), first + raw.index
                following = max(following, ordinal + 1)
                if wanted == ():
                    empty.append(f"{entry.name}/{raw.index}")
                if wanted is None or strategy is MigStrategy.NONE:
                    devices.append((entry, whole_device(raw, ordinal)))
                else:
                    partitions += listed_partitions(problems, entry, raw, ordinal, wanted)
            devices += ((entry, device) for device in partitions)
        if strategy is MigStrategy.SINGLE and (problem := _single_problem(resource, where, devices, empty)):
            problems.append(problem)
            continue
        if strategy is MigStrategy.MIXED:
            problems += (
                warning(where, f"device {device} has no partitions configured and advertises nothing")
                for device in empty
            )
        for entry, device in devices:
            if spec.resources.gpus and not device.is_partition and (unmatched := _unmatched(spec, entry)):
                problems.append(unmatched)
            if name := name_of(spec, entry, device.profile):
                members.setdefault(name, []).append((entry, device))
        if not any(raws for _, raws in own):
            members.setdefault(resource, [])
    return members


def _by_resource(
    problems: list[Problem], entries: Sequence[Entry], found: Mapping[str, Sequence[RawDevice]]
) -> Mapping[str, Sequence[tuple[Entry, Sequence[RawDevice]]]]:
    """The listed entries of each resource, with their devices.

    If the name has placeholders, each device determines its own resource. A device is left out if the kubelet would
    refuse the name of its resource.
    """
    groups: dict[str, list[tuple[Entry, Sequence[RawDevice]]]] = {}
    for entry in entries:
        raws = found.get(entry.name, ())
        if not entry.is_templated:
            if entry.listed:
                groups.setdefault(entry.resource, []).append((entry, raws))
            continue
        for name, members in grouped((entry.resource_of(raw), raw) for raw in raws).items():
            if why := resource_name_problem(name):
                message = f"{members[0].id} has no resource: {entry.resource} would be {name!r} for it, and {why}"
                problems.append(error(entry.where, message))
            elif entry.listed:
                groups.setdefault(name, []).append((entry.model_copy(update={"resource": name}), members))
    return groups


def whole_device(raw: RawDevice, ordinal: int) -> Device:
    return Device(id=raw.id, raw=raw, ordinal=str(ordinal), memory=raw.memory, attributes=raw.attributes)


def listed_partitions(
    problems: list[Problem], entry: Entry, raw: RawDevice, ordinal: int, wanted: tuple[str, ...]
) -> Iterable[Device]:
    """The configured partitions of a raw device. If they do not fit, adds a problem and returns none."""
    assert entry.geometry is not None, "checked when the configuration was read"
    try:
        placements = place(entry.geometry, wanted)
    except LayoutError as refused:
        problems.append(error(entry.where, f"partitions of device {raw.index}: {refused}", refused.hint))
        return
    for number, placement in enumerate(placements):
        yield partition(entry, raw, f"{ordinal}:{number}", placement)


def partition(entry: Entry, raw: RawDevice, ordinal: str, placement: Placement) -> Device:
    """The partition of a raw device at a placement. In a mode with one partition, it has the id of the device.

    Other ids depend on the device, the profile and the first slice, and not on other partitions.
    """
    profile = placement.profile
    own_id = f"{raw.id}-{profile.name.replace('+', '.')}-{placement.start}"
    if entry.geometry and entry.geometry.whole_device and placement.profile.slices == entry.geometry.slices:
        own_id, ordinal = raw.id, ordinal.partition(":")[0]
    elif entry.is_nvidia:
        own_id = f"MIG-{uuid.uuid5(_NAMESPACE, f'{raw.id}/{profile.name}/{placement.start}')}"
    return Device(
        id=own_id,
        raw=raw,
        ordinal=ordinal,
        profile=profile.name,
        slices=placement.slices,
        memory=profile.memory,
        attributes={**raw.attributes, **profile.attributes},
    )


def _single_problem(
    resource: str, where: str, devices: Sequence[tuple[Entry, Device]], empty: Sequence[str]
) -> Problem | None:
    """The violation of the rules of migStrategy single: all devices are whole, or all partitions are of one kind."""
    kinds = {(device.profile, device.memory, tuple(sorted(device.attributes.items()))) for _, device in devices}
    if not empty and (len(kinds) <= 1 or not any(device.is_partition for _, device in devices)):
        return None
    found = sorted({device.profile or "whole devices" for _, device in devices})
    found += (f"{device} without partitions" for device in empty)
    return error(
        where,
        f"{resource}: with migStrategy single all devices must be whole, or all must be partitioned alike; "
        f"found {', '.join(found)}",
        "use one profile (and one model), or migStrategy mixed",
    )


def name_of(spec: Spec, entry: Entry, profile: str = "") -> str | None:
    """The resource name of whole devices or of partitions with a profile.

    None: no pattern of resources.gpus matches, which is an error.
    """
    if profile:
        assert entry.geometry is not None
        domain, _ = domain_and_name(entry.resource)
        for pattern in spec.resources.mig:  # for devices of other vendors, only patterns with a name in their domain
            is_for_entry = entry.is_nvidia or domain_and_name(pattern.name)[0] == domain
            if is_for_entry and matches(pattern.pattern, profile):
                return pattern.name
        if spec.flags.mig_strategy is not MigStrategy.SINGLE:
            return f"{domain}/{resource_suffix(entry.geometry, profile)}"
    for pattern in spec.resources.gpus:
        if any(matches(pattern.pattern, name) for name in entry.gpu_names):
            return pattern.name
    if spec.resources.gpus and (unmatched := _unmatched(spec, entry)) and unmatched.is_error:
        return None
    return entry.resource


def _unmatched(spec: Spec, entry: Entry) -> Problem | None:
    """The problem if no pattern of resources.gpus matches the entry's whole devices, or None."""
    patterns, names = spec.resources.gpus, entry.gpu_names
    if not names or any(matches(pattern.pattern, name) for pattern in patterns for name in names):
        return None
    tried = ", ".join(repr(pattern.pattern) for pattern in patterns)
    message = f"{' or '.join(map(repr, names))} does not match any resources.gpus pattern ({tried})"
    if patterns[0].for_nvidia:
        stays = f"it stays {entry.resource}, as with NVIDIA's plugin, which ignores them"
        return warning(patterns[0].where, message, stays)
    return error(entry.where, message, "add a pattern '*'")


def names_of(spec: Spec, entry: Entry) -> Iterable[str]:
    """Every name that the entry's devices and partitions may have."""
    profiles = entry.geometry.profiles if entry.geometry else ()
    return filter(None, (name_of(spec, entry, each) for each in ("", *profiles)))


def matches(pattern: str, text: str) -> bool:
    """Whether the whole text matches one of NVIDIA's patterns, in which only `*` is special: any characters."""
    return fnmatchcase(text, glob.escape(pattern).replace("[*]", "*"))
