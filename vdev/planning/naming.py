"""The resource of each device: by its entry, by patterns, by the profile of a partition."""

import glob
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ..model.device import Device, RawDevice, grouped
from ..model.entry import Entry, MigStrategy
from ..model.geometry import LayoutError, Placement, resource_suffix
from ..model.names import domain_and_name, resource_name_problem
from ..model.problem import Problem, error, warning
from ..model.spec import PatternItem, Spec
from .partitions import place

_NAMESPACE = uuid.UUID("5f3ab1f0-6d2f-5c55-9a2e-7d1f4f8f3a10")  # of ids made here; must never change


@dataclass(frozen=True, slots=True)
class NamedEntry:
    """An entry with one resource name, and its devices of that name."""

    entry: Entry
    raws: Sequence[RawDevice]
    written: str
    """The resource as the configuration has it, which may have placeholders."""


def split_by_name(
    problems: list[Problem], entries: Sequence[Entry], found: Mapping[str, Sequence[RawDevice]]
) -> Iterator[NamedEntry]:
    """The entries in order, those with placeholders split. A device whose name no kubelet takes is left out."""
    for entry in entries:
        raws = found.get(entry.name, ())
        if not entry.is_templated:
            yield NamedEntry(entry, raws, entry.resource)
            continue
        for name, members in grouped((entry.resource_of(raw), raw) for raw in raws).items():
            if why := resource_name_problem(name):
                message = f"{members[0].id} has no resource: {entry.resource} would be {name!r} for it, and {why}"
                problems.append(error(entry.where, message))
            else:
                yield NamedEntry(entry.model_copy(update={"resource": name}), members, entry.resource)


Names = dict[str, tuple[str, str]]
"""The name of each device, by its id, and the reason for it."""


def by_resource(
    problems: list[Problem], spec: Spec, entries: Iterable[NamedEntry]
) -> tuple[dict[str, list[Device]], Names]:
    """All devices of the node by resource name, before sharing, and the reasons for their names.

    A resource whose devices break the strategy's rules is left out, with an error; the others are not touched by that.
    """
    devices: dict[str, list[Device]] = {}
    names: Names = {}
    is_cut = False
    for resource, own in grouped((each.entry.resource, each) for each in entries if each.entry.listed).items():
        for device, name in _named_devices(problems, spec, own):
            devices.setdefault(name[0], []).append(device)
            names.setdefault(device.id, name)
            is_cut = is_cut or device.is_partition
        if not any(each.raws for each in own):
            devices.setdefault(resource, [])  # advertised with 0 devices, so that a hot-plug can show
    if spec.resources.gpus or spec.resources.mig:
        problems += _unused_patterns(spec, names)
    if is_cut:
        problems += _mixed_names(spec, devices)
    return devices, names


def _named_devices(
    problems: list[Problem], spec: Spec, own: Sequence[NamedEntry]
) -> Iterator[tuple[Device, tuple[str, str]]]:
    """The devices of the entries of one resource, each with its name and the reason for that."""
    resource, where = own[0].entry.resource, own[0].entry.where
    strategy = spec.flags.mig_strategy
    devices: list[tuple[Entry, Device]] = []
    empty: list[str] = []  # the devices without any partition, as `entry/index`
    offset = 0  # of the entry's first ordinal
    for each in own:
        entry, parts, count = each.entry, list[Device](), 0
        for raw in each.raws:
            wanted, ordinal = entry.parts(raw.index), offset + raw.index
            count = max(count, raw.index + 1)  # the indices of absent devices stay free
            if wanted is None or strategy is MigStrategy.NONE:
                devices.append((entry, whole_device(raw, ordinal)))
                continue
            if not wanted:
                empty.append(f"{entry.name}/{raw.index}")
            parts += listed_partitions(problems, entry, raw, ordinal, wanted)
        devices += ((entry, device) for device in parts)
        offset += count
    if strategy is MigStrategy.SINGLE and (problem := _single_problem(resource, where, devices, empty)):
        problems.append(problem)
        return
    if strategy is MigStrategy.MIXED:
        problems += (
            warning(where, f"device {device} has no partitions configured and advertises nothing") for device in empty
        )
    for entry, device in devices:
        if spec.resources.gpus and not device.is_partition and (unmatched := _unmatched(spec, entry)):
            problems.append(unmatched)
        name = name_of(spec, entry, device)
        if isinstance(name, Problem):
            problems.append(name)
        else:
            yield device, name


def whole_device(raw: RawDevice, ordinal: int) -> Device:
    """A raw device that is not cut."""
    return Device(
        id=raw.id, raw=raw, ordinal=str(ordinal), memory=raw.memory, attributes=raw.attributes, health=raw.health
    )


def listed_partitions(
    problems: list[Problem], entry: Entry, raw: RawDevice, ordinal: int, wanted: tuple[str, ...]
) -> Iterable[Device]:
    """The partitions of a raw device with the wanted profiles. If they do not fit, there are none, and a problem."""
    assert entry.geometry is not None, "checked when the configuration was read"
    try:
        placements = place(entry.geometry, wanted)
    except LayoutError as refused:
        problems.append(error(entry.where, f"partitions of device {raw.index}: {refused}", refused.hint))
        return
    for number, placement in enumerate(placements):
        yield partition(entry, raw, f"{ordinal}:{number}", placement)


def partition(entry: Entry, raw: RawDevice, ordinal: str, placement: Placement) -> Device:
    """The partition of a raw device at a place. In the mode with one partition, it has the id of the device."""
    profile = placement.profile
    is_all = bool(entry.geometry and entry.geometry.whole_device and placement.size == entry.geometry.slices)
    return Device(
        id=raw.id if is_all else partition_id(entry, raw, placement),
        raw=raw,
        ordinal=ordinal.partition(":")[0] if is_all else ordinal,
        profile=profile.name,
        slices=placement.slices,
        memory=profile.memory,
        attributes={**raw.attributes, **profile.attributes},
        health=raw.health,
    )


def partition_id(entry: Entry, raw: RawDevice, placement: Placement) -> str:
    """A partition's id, made of its device, profile and first slice, so that other partitions do not change it."""
    if entry.is_nvidia:
        return f"MIG-{uuid.uuid5(_NAMESPACE, f'{raw.id}/{placement.profile.name}/{placement.start}')}"
    return f"{raw.id}-{placement.profile.name.replace('+', '.')}-{placement.start}"


def _single_problem(
    resource: str, where: str, devices: Sequence[tuple[Entry, Device]], empty: Sequence[str]
) -> Problem | None:
    if empty:
        return error(
            where,
            f"{resource}: device {empty[0]} has no partitions configured, which migStrategy single does not allow",
            "give it partitions, or use migStrategy mixed",
        )
    parts = [device for _, device in devices if device.is_partition]
    whole = len(devices) - len(parts)
    if whole and parts:
        return error(
            where,
            f"{resource}: with migStrategy single all devices must be partitioned or none "
            f"(whole: {whole}, partitioned: {len({device.raw.id for device in parts})})",
            "partition all of them, or use migStrategy mixed",
        )
    kinds = {(device.profile, device.memory, tuple(sorted(device.attributes.items()))): device for device in parts}
    if len(kinds) > 1:
        names = ", ".join(sorted({device.profile for device in kinds.values()}))
        return error(
            where,
            f"{resource}: with migStrategy single all partitions must be alike; found {names}",
            "use one profile (and one model), or migStrategy mixed",
        )
    return None


def name_of_whole(spec: Spec, entry: Entry) -> tuple[str, str] | Problem:
    """The name of the entry's whole devices and the reason for it, or why there is none."""
    own = entry.resource, f"the entry {entry.name!r} gives this name"
    if not spec.resources.gpus:
        return own
    for pattern in spec.resources.gpus:
        hit = next((name for name in entry.gpu_names if matches(pattern.pattern, name)), None)
        if hit is not None:
            return pattern.name, f"resources.gpus pattern {pattern.pattern!r} matches {hit!r}"
    if (unmatched := _unmatched(spec, entry)) and unmatched.is_error:
        return unmatched
    return own


def _unmatched(spec: Spec, entry: Entry) -> Problem | None:
    """The problem if no pattern of resources.gpus matches the entry's whole devices, or None."""
    if not spec.resources.gpus or not entry.gpu_names:
        return None
    if any(matches(pattern.pattern, name) for pattern in spec.resources.gpus for name in entry.gpu_names):
        return None
    tried = ", ".join(repr(pattern.pattern) for pattern in spec.resources.gpus)
    names = " or ".join(repr(name) for name in entry.gpu_names)
    message = f"{names} does not match any resources.gpus pattern ({tried})"
    if (first := spec.resources.gpus[0]).for_nvidia:
        return warning(first.where, message, f"it stays {entry.resource}, as with NVIDIA's plugin, which ignores them")
    return error(entry.where, message, "add a pattern '*'")


def name_of_partition(spec: Spec, entry: Entry, profile: str) -> tuple[str, str] | Problem:
    """The name of the entry's partitions of that profile, and the reason for it, or why there is none."""
    assert entry.geometry is not None
    for pattern in _partition_patterns(spec, entry):
        if matches(pattern.pattern, profile):
            return pattern.name, f"resources.mig pattern {pattern.pattern!r} matches {profile!r}"
    if spec.flags.mig_strategy is MigStrategy.SINGLE:
        return name_of_whole(spec, entry)
    domain, _ = domain_and_name(entry.resource)
    name = f"{domain}/{resource_suffix(entry.geometry, profile)}"
    return name, f"migStrategy mixed gives profile {profile!r} this name"


def name_of(spec: Spec, entry: Entry, device: Device) -> tuple[str, str] | Problem:
    """The name of a device of the entry and the reason for it, or why there is none."""
    return name_of_partition(spec, entry, device.profile) if device.is_partition else name_of_whole(spec, entry)


def names_of(spec: Spec, entry: Entry) -> Iterable[str]:
    """Every name that the entry's devices and partitions may have."""
    names = [name_of_whole(spec, entry)]
    names += [name_of_partition(spec, entry, each) for each in (entry.geometry.profiles if entry.geometry else ())]
    return (each[0] for each in names if not isinstance(each, Problem))


def _partition_patterns(spec: Spec, entry: Entry) -> Iterable[PatternItem]:
    """The patterns for the entry: all for NVIDIA's devices; for others, the patterns with a name in their domain."""
    domain, _ = domain_and_name(entry.resource)
    own = entry.is_nvidia
    return (pattern for pattern in spec.resources.mig if own or domain_and_name(pattern.name)[0] == domain)


def _unused_patterns(spec: Spec, names: Names) -> Iterator[Problem]:
    reasons = "\n".join({why for _, why in names.values()})
    for kind, patterns in (("gpus", spec.resources.gpus), ("mig", spec.resources.mig)):
        for pattern in patterns:
            text = f"resources.{kind} pattern {pattern.pattern!r} "
            if pattern.pattern != "*" and text not in reasons:
                yield warning(pattern.where, f"{text}matches nothing on this node")


def _mixed_names(spec: Spec, devices: Mapping[str, Sequence[Device]]) -> Iterator[Problem]:
    """A warning for each name of both whole devices and partitions: a pod that asks for one may get the other."""
    where = next((pattern.where for pattern in spec.resources.mig), "")
    for name, members in devices.items():
        if len({device.is_partition for device in members}) > 1:
            text = f"{name!r} is the name of both whole devices and partitions; a pod may get either"
            yield warning(where, text, "use another name under resources.mig")


def matches(pattern: str, text: str) -> bool:
    """NVIDIA's patterns: the whole text, `*` stands for any run of characters, everything else for itself."""
    return fnmatchcase(text, glob.escape(pattern).replace("[*]", "*"))
