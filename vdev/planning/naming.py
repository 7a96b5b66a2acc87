"""The resource of each device: by its entry, by patterns, by the profile of a partition."""

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from ..model.device import Device, RawDevice, grouped
from ..model.entry import Entry, MigStrategy
from ..model.geometry import LayoutError, Placement, resource_suffix
from ..model.names import domain_and_name, resource_name_problem
from ..model.problem import Problem, error, warning
from ..model.spec import PatternItem, Spec
from .partitions import place


@dataclass(frozen=True, slots=True)
class Part:
    """An entry under one name, with its devices of that name."""

    entry: Entry
    raws: Sequence[RawDevice]


@dataclass(slots=True)
class Parts:
    """All entries, each under every name that it has on this node.

    `written` has what the configuration wrote for a name that was made from it; `of_device` the part's entry for each
    device whose entry has several.
    """

    parts: list[Part] = field(default_factory=list)
    written: dict[str, set[str]] = field(default_factory=dict)
    of_device: dict[str, Entry] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def by_name(entries: Sequence[Entry], found: Mapping[str, Sequence[RawDevice]]) -> Parts:
    """The entries in order, those with placeholders split. A device whose name no kubelet takes is left out."""
    result = Parts()
    for entry in entries:
        raws = found.get(entry.name, ())
        if not entry.is_templated:
            result.parts.append(Part(entry, raws))
            continue
        named = grouped((entry.resource_of(raw), raw) for raw in raws)
        wrong = {name: why for name in named if (why := resource_name_problem(name))}
        result.problems += _problems(entry, named, wrong)
        for name, members in named.items():
            if name not in wrong:
                part = Part(entry.model_copy(update={"resource": name}), members)
                result.parts.append(part)
                result.written.setdefault(name, set()).add(entry.resource)
                result.of_device |= {raw.id: part.entry for raw in members}
    return result


def _problems(entry: Entry, named: Mapping[str, Sequence[RawDevice]], wrong: Mapping[str, str]) -> Iterator[Problem]:
    for name, why in wrong.items():
        message = f"{named[name][0].id} has no resource: {entry.resource} would be {name!r} for it, and {why}"
        yield error(entry.where, message)


_NAMESPACE = uuid.UUID("5f3ab1f0-6d2f-5c55-9a2e-7d1f4f8f3a10")  # of ids made here; must never change


@dataclass(slots=True)
class Advertised:
    """Devices by resource name, in order, with the reasons for their names and what went wrong on the way."""

    devices: dict[str, list[Device]] = field(default_factory=dict)
    reasons: dict[str, tuple[str, str]] = field(default_factory=dict)  # of the first entry that has a device
    problems: list[Problem] = field(default_factory=list)


def advertise(spec: Spec, parts: Iterable[Part]) -> Advertised:
    """All devices of the node under their resource names, before sharing.

    A resource whose devices break the strategy's rules is left out, with an error; the others are not touched by that.
    """
    result = Advertised()
    for own in grouped((part.entry.resource, part) for part in parts if part.entry.listed).values():
        _one_resource(result, spec, own)
    _unused_patterns(result, spec)
    _mixed_names(result, spec)
    return result


def _one_resource(result: Advertised, spec: Spec, own: Sequence[Part]) -> None:
    resource, where = own[0].entry.resource, own[0].entry.where
    cuts = list(_cuts(spec, own))
    result.problems += (problem for cut in cuts for problem in cut.problems)
    strategy = spec.flags.mig_strategy
    if strategy is MigStrategy.SINGLE and (problem := _single_problem(resource, where, cuts)):
        result.problems.append(problem)
        return
    if strategy is MigStrategy.MIXED:
        result.problems += (
            warning(where, f"device {device} has no partitions configured and advertises nothing")
            for cut in cuts
            for device in cut.empty
        )
    problems: list[Problem] = []
    for cut in cuts:
        if cut.whole and (unmatched := _unmatched(spec, cut.entry)):
            problems.append(unmatched)
        for device in (*cut.whole, *cut.parts):
            told = name_of(spec, cut.entry, device)
            if isinstance(told, Problem):
                problems.append(told)
            else:
                result.devices.setdefault(told[0], []).append(device)
                result.reasons.setdefault(device.id, told)
    result.problems += (problem for problem in dict.fromkeys(problems) if problem not in result.problems)
    if not any(part.raws for part in own):
        result.devices.setdefault(resource, [])  # nothing there now; advertised with 0, so that a hot-plug can show


@dataclass(slots=True)
class _Cut:
    """One entry's devices: those left whole, the partitions, and `entry/index` of those cut into nothing."""

    entry: Entry
    whole: list[Device] = field(default_factory=list)
    parts: list[Device] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def _cuts(spec: Spec, own: Iterable[Part]) -> Iterator[_Cut]:
    offset = 0  # of the entry's first ordinal
    for part in own:
        entry, cut = part.entry, _Cut(part.entry)
        for raw in part.raws:
            wanted, ordinal = entry.parts(raw.index), offset + raw.index
            if wanted is None or spec.flags.mig_strategy is MigStrategy.NONE:
                cut.whole.append(whole_device(raw, ordinal))
                continue
            if not wanted:
                cut.empty.append(f"{entry.name}/{raw.index}")
            cut.parts += listed_partitions(cut.problems, entry, raw, ordinal, wanted)
        yield cut
        offset += max((raw.index + 1 for raw in part.raws), default=0)  # indices of devices that are away stay free


def whole_device(raw: RawDevice, ordinal: int) -> Device:
    """A raw device that is not cut."""
    return Device(
        id=raw.id, raw=raw, ordinal=str(ordinal), memory=raw.memory, attributes=raw.attributes, health=raw.health
    )


def listed_partitions(
    problems: list[Problem], entry: Entry, raw: RawDevice, ordinal: int, wanted: tuple[str, ...]
) -> Iterable[Device]:
    """The partitions of a raw device with the wanted profiles; none, and a problem, where they do not fit."""
    assert entry.geometry is not None, "checked when the configuration was read"
    try:
        placements = place(entry.geometry, wanted)
    except LayoutError as refused:
        problems.append(error(entry.where, f"partitions of device {raw.index}: {refused}", refused.hint))
        return
    for number, placement in enumerate(placements):
        yield partition(entry, raw, f"{ordinal}:{number}", placement)


def partition(entry: Entry, raw: RawDevice, ordinal: str, placement: Placement) -> Device:
    """The partition of a raw device at a place; one that is the whole device, in its only mode, has its id."""
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
    """A partition's id, made of its device, profile and first slice alone: other partitions do not change it."""
    if entry.is_nvidia:
        return f"MIG-{uuid.uuid5(_NAMESPACE, f'{raw.id}/{placement.profile.name}/{placement.start}')}"
    return f"{raw.id}-{placement.profile.name.replace('+', '.')}-{placement.start}"


def _single_problem(resource: str, where: str, cuts: Sequence[_Cut]) -> Problem | None:
    empty = [device for cut in cuts for device in cut.empty]
    if empty:
        return error(
            where,
            f"{resource}: device {empty[0]} has no partitions configured, which migStrategy single does not allow",
            "give it partitions, or use migStrategy mixed",
        )
    whole = sum(len(cut.whole) for cut in cuts)
    parts = [device for cut in cuts for device in cut.parts]
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
    for pattern in spec.gpu_patterns:
        hit = next((name for name in entry.gpu_names if matches(pattern.pattern, name)), None)
        if hit is not None:
            return pattern.name, f"resources.gpus pattern {pattern.pattern!r} matches {hit!r}"
    if (unmatched := _unmatched(spec, entry)) and unmatched.is_error:
        return unmatched
    return entry.resource, f"the entry {entry.name!r} gives this name"


def _unmatched(spec: Spec, entry: Entry) -> Problem | None:
    """What is wrong if no pattern of resources.gpus is for the entry's whole devices."""
    if not spec.gpu_patterns or not entry.gpu_names:
        return None
    if any(matches(pattern.pattern, name) for pattern in spec.gpu_patterns for name in entry.gpu_names):
        return None
    tried = ", ".join(repr(pattern.pattern) for pattern in spec.gpu_patterns)
    names = " or ".join(repr(name) for name in entry.gpu_names)
    message = f"{names} does not match any resources.gpus pattern ({tried})"
    if (first := spec.gpu_patterns[0]).for_nvidia:
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
    told = [name_of_whole(spec, entry)]
    told += [name_of_partition(spec, entry, each) for each in (entry.geometry.profiles if entry.geometry else ())]
    return (each[0] for each in told if not isinstance(each, Problem))


def _partition_patterns(spec: Spec, entry: Entry) -> Iterable[PatternItem]:
    """Every pattern applies to NVIDIA's devices; to others, those whose name is in their own domain."""
    domain, _ = domain_and_name(entry.resource)
    own = entry.is_nvidia
    return (pattern for pattern in spec.mig_patterns if own or domain_and_name(pattern.name)[0] == domain)


def _unused_patterns(result: Advertised, spec: Spec) -> None:
    if not spec.gpu_patterns and not spec.mig_patterns:
        return
    reasons = "\n".join({why for _, why in result.reasons.values()})
    for kind, patterns in (("gpus", spec.gpu_patterns), ("mig", spec.mig_patterns)):
        for pattern in patterns:
            if pattern.pattern != "*" and f"resources.{kind} pattern {pattern.pattern!r} " not in reasons:
                result.problems.append(
                    warning(pattern.where, f"resources.{kind} pattern {pattern.pattern!r} matches nothing on this node")
                )


def _mixed_names(result: Advertised, spec: Spec) -> None:
    """Warn of a name for both whole devices and partitions: a pod that asks for one may get the other."""
    where = next((pattern.where for pattern in spec.mig_patterns), "")
    for name, devices in result.devices.items():
        if len({device.is_partition for device in devices}) > 1:
            text = f"{name!r} is the name of both whole devices and partitions; a pod may get either"
            result.problems.append(warning(where, text, "use another name under resources.mig"))


@lru_cache(maxsize=4096)  # of many devices with few names
def matches(pattern: str, text: str) -> bool:
    """NVIDIA's patterns: the whole text, `*` stands for any run of characters, everything else for itself."""
    first, *parts = map(re.escape, pattern.split("*"))
    if not parts:
        return text == pattern
    *middle, last = parts
    # Each part is looked for once, as far left as it can be, so that no pattern takes long.
    found = "".join(f"(?>.*?{part})" for part in middle)
    return re.fullmatch(f"{first}{found}.*{last}", text, re.DOTALL) is not None
