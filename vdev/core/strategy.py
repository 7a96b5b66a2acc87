"""From raw devices to devices under resource names: indices, partitions, MIG strategies, name patterns.

NVIDIA's rules, for any partitionable device and per declared resource:

    none     whole devices only; declared partitions are ignored
    single   all devices of the resource are partitioned, all partitions are alike, and carry the resource's own name
    mixed    whole devices under the resource's name, partitions under `<domain>/<prefix><profile>`, `+` written `.`
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .device import Device, IdStyle, RawDevice
from .names import domain_and_name
from .partition import LayoutError, Placement, place, resource_suffix
from .problem import Problem, error, warning
from .spec import EntrySpec, MigStrategy, NamePattern, Spec, VirtualSource

_NAMESPACE = uuid.UUID(
    "5f3ab1f0-6d2f-5c55-9a2e-7d1f4f8f3a10"
)  # of ids made here; any constant would do, this one for ever


@dataclass(slots=True)
class Advertised:
    """Devices by resource name, in order, with the reasons for their names and what went wrong on the way."""

    devices: dict[str, list[Device]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def advertise(spec: Spec, node: str, found: Mapping[str, Sequence[RawDevice]]) -> Advertised:
    """All devices of the node under their resource names, before sharing.

    `found` maps an entry's name to its raw devices. A resource whose devices break the strategy's rules is left out,
    with an error; the others are not touched by that.
    """
    result = Advertised()
    by_resource: dict[str, list[EntrySpec]] = {}
    for entry in spec.on_node(node):
        by_resource.setdefault(entry.resource, []).append(entry)
    for resource, entries in by_resource.items():
        _one_resource(result, spec, resource, entries, found)
    _unused_patterns(result, spec)
    _mixed_names(result, spec)
    return result


def _one_resource(
    result: Advertised, spec: Spec, resource: str, entries: list[EntrySpec], found: Mapping[str, Sequence[RawDevice]]
) -> None:
    cut = _cut(result, spec, entries, found)
    where = entries[0].where
    match spec.flags.mig_strategy:
        case MigStrategy.SINGLE:
            problem = _single_problem(resource, where, cut)
            if problem:
                result.problems.append(problem)
                return
        case MigStrategy.MIXED:
            result.problems += (
                warning(where, f"device {device} has no partitions configured and advertises nothing")
                for device in cut.empty
            )
        case MigStrategy.NONE:
            pass
    for entry, device in cut.whole:
        _name_whole(result, spec, entry, device)
    for entry, device in cut.parts:
        _name_partition(result, spec, entry, device)
    if not any(found.get(entry.name) for entry in entries):
        result.devices.setdefault(
            resource, []
        )  # nothing there now; it is advertised with 0 so that a hot-plug can show


@dataclass(slots=True)
class _Cut:
    """One resource's devices: those left whole, the partitions, and `entry/index` of those cut into nothing."""

    whole: list[tuple[EntrySpec, Device]] = field(default_factory=list)
    parts: list[tuple[EntrySpec, Device]] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)


def _cut(
    result: Advertised, spec: Spec, entries: Iterable[EntrySpec], found: Mapping[str, Sequence[RawDevice]]
) -> _Cut:
    cut = _Cut()
    offset = 0
    for entry in entries:
        raws = found.get(entry.name, ())
        for raw in raws:
            ordinal = offset + raw.index
            wanted = entry.parts(raw.index)
            if wanted is None or spec.flags.mig_strategy is MigStrategy.NONE:
                cut.whole.append((entry, _whole(raw, ordinal)))
                continue
            if not wanted:
                cut.empty.append(f"{entry.name}/{raw.index}")
            cut.parts += ((entry, device) for device in _partitions(result, entry, raw, ordinal, wanted))
        offset += max((raw.index + 1 for raw in raws), default=0)
    return cut


def _whole(raw: RawDevice, ordinal: int) -> Device:
    return Device(
        id=raw.id, raw=raw, ordinal=str(ordinal), memory=raw.memory, attributes=raw.attributes, health=raw.health
    )


def _partitions(
    result: Advertised, entry: EntrySpec, raw: RawDevice, ordinal: int, wanted: tuple[str, ...]
) -> Iterable[Device]:
    assert entry.geometry is not None, "checked when the configuration was read"
    try:
        placements = place(entry.geometry, wanted)
    except LayoutError as refused:
        result.problems.append(error(entry.where, f"partitions of device {raw.index}: {refused}", refused.hint))
        return
    for number, placement in enumerate(placements):
        profile = placement.profile
        is_all = entry.geometry.whole_device and placement.size == entry.geometry.slices
        yield Device(
            id=raw.id if is_all else partition_id(entry, raw, placement),
            raw=raw,
            ordinal=str(ordinal) if is_all else f"{ordinal}:{number}",
            profile=profile.name,
            slices=range(placement.start, placement.start + placement.size),
            memory=profile.memory,
            attributes={**raw.attributes, **profile.attributes},
            health=raw.health,
        )


def partition_id(entry: EntrySpec, raw: RawDevice, placement: Placement) -> str:
    """A partition's id: of its device, profile and first slice alone, so that other partitions do not move it."""
    if isinstance(entry.source, VirtualSource) and entry.source.id_style is IdStyle.NVIDIA:
        return f"MIG-{uuid.uuid5(_NAMESPACE, f'{raw.id}/{placement.profile.name}/{placement.start}')}"
    return f"{raw.id}-{placement.profile.name.replace('+', '.')}-{placement.start}"


def _single_problem(resource: str, where: str, cut: _Cut) -> Problem | None:
    if cut.empty:
        return error(
            where,
            f"{resource}: device {cut.empty[0]} has no partitions configured, which migStrategy single does not allow",
            "give it partitions, or use migStrategy mixed",
        )
    if cut.whole and cut.parts:
        return error(
            where,
            f"{resource}: with migStrategy single all devices must be partitioned or none; "
            f"{len(cut.whole)} are whole and {len({device.raw.id for _, device in cut.parts})} are partitioned",
            "partition all of them, or use migStrategy mixed",
        )
    kinds = {
        (device.profile, device.memory, tuple(sorted(device.attributes.items()))): device for _, device in cut.parts
    }
    if len(kinds) > 1:
        names = ", ".join(sorted({device.profile for device in kinds.values()}))
        return error(
            where,
            f"{resource}: with migStrategy single all partitions must be alike; found {names}",
            "use one profile (and one model), or migStrategy mixed",
        )
    return None


def _name_whole(result: Advertised, spec: Spec, entry: EntrySpec, device: Device) -> None:
    if not spec.gpu_patterns or not entry.gpu_names:
        _add(result, entry.resource, device, f"the entry {entry.name!r} says so")
        return
    for pattern in spec.gpu_patterns:
        hit = next((name for name in entry.gpu_names if matches(pattern.pattern, name)), None)
        if hit is not None:
            _add(result, pattern.name, device, f"resources.gpus pattern {pattern.pattern!r} matches {hit!r}")
            return
    tried = ", ".join(repr(pattern.pattern) for pattern in spec.gpu_patterns)
    names = " or ".join(repr(name) for name in entry.gpu_names)
    problem = error(entry.where, f"{names} does not match any resources.gpus pattern ({tried})", "add a pattern '*'")
    if problem not in result.problems:
        result.problems.append(problem)


def _name_partition(result: Advertised, spec: Spec, entry: EntrySpec, device: Device) -> None:
    assert entry.geometry is not None
    for pattern in _partition_patterns(spec, entry):
        if matches(pattern.pattern, device.profile):
            _add(result, pattern.name, device, f"resources.mig pattern {pattern.pattern!r} matches {device.profile!r}")
            return
    if spec.flags.mig_strategy is MigStrategy.SINGLE:
        _name_whole(result, spec, entry, device)
        return
    domain, _ = domain_and_name(entry.resource)
    name = f"{domain}/{resource_suffix(entry.geometry, device.profile)}"
    _add(result, name, device, f"migStrategy mixed names profile {device.profile!r} so")


def _partition_patterns(spec: Spec, entry: EntrySpec) -> Iterable[NamePattern]:
    """NVIDIA's devices obey every pattern, others those whose name is in their own domain."""
    domain, _ = domain_and_name(entry.resource)
    own = entry.is_nvidia or bool(entry.gpu_names)
    return (pattern for pattern in spec.mig_patterns if own or domain_and_name(pattern.name)[0] == domain)


def _add(result: Advertised, resource: str, device: Device, reason: str) -> None:
    result.devices.setdefault(resource, []).append(device)
    result.reasons.setdefault(device.id, reason)


def _unused_patterns(result: Advertised, spec: Spec) -> None:
    reasons = "\n".join(set(result.reasons.values()))
    for kind, patterns in (("gpus", spec.gpu_patterns), ("mig", spec.mig_patterns)):
        for pattern in patterns:
            if pattern.pattern != "*" and f"resources.{kind} pattern {pattern.pattern!r} " not in reasons:
                result.problems.append(
                    warning(pattern.where, f"resources.{kind} pattern {pattern.pattern!r} matches nothing on this node")
                )


def _mixed_names(result: Advertised, spec: Spec) -> None:
    """Say that a name stands for whole devices and for partitions: who asks for one may get the other."""
    where = next((pattern.where for pattern in spec.mig_patterns), "")
    for name, devices in result.devices.items():
        if len({device.is_partition for device in devices}) > 1:
            text = f"{name!r} names whole devices and partitions alike; a pod may get either"
            result.problems.append(warning(where, text, "give resources.mig a name of its own"))


def matches(pattern: str, text: str) -> bool:
    """NVIDIA's patterns: the whole text, `*` stands for any run of characters, everything else for itself.

    Each part between two `*` is looked for once, as far left as it can be.
    """
    first, *parts = pattern.split("*")
    if not parts:
        return text == first
    last = parts.pop()
    place, end = len(first), len(text) - len(last)
    if not text.startswith(first) or not text.endswith(last):
        return False
    for part in parts:
        place = text.find(part, place, end) + len(part)
        if place < len(part):
            return False
    return place <= end
