"""What fault rules say of the rest of the configuration, and of each other: unknown devices, rules that can never fire,
rules that contradict each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import combinations

from ...core.faults.meaning import NOWHERE, Scene, meant, scene
from ...core.faults.schedule import Dice, Firing, spans
from ...core.inventory.resources import Inventory
from ...core.model.device import base_id
from ...core.model.fault_effects import (
    Call,
    Cdi,
    Effect,
    FaultKind,
    Flap,
    Process,
    Register,
    Remove,
    SetHealth,
    Socket,
    Stream,
)
from ...core.model.fault_rules import ALWAYS, Chance, DeviceFilter, DeviceSelection, FaultRuleSpec, When
from ...core.model.names import is_nvidia_id
from ...core.model.problem import did_you_mean
from ...core.spec import EntrySpec, Spec, VirtualSource
from ..compile.entry_spec import partition_names
from ..document.position import Path
from ..validation import Report

_NVIDIA_IDS = ("GPU-", "MIG-")
_LOOKED_AT = 50  # spans of each rule that are compared with another's

Placed = Sequence[tuple[Path, FaultRuleSpec]]


@dataclass(frozen=True, slots=True)
class World:
    """What rules may speak of."""

    entries: tuple[EntrySpec, ...]
    resources: frozenset[str]
    profiles: frozenset[str]
    spec: Spec
    cdi: bool
    stage: Scene = NOWHERE


def world(spec: Spec) -> World:
    """What the rest of the configuration declares."""
    resources = {entry.resource for entry in spec.entries} | partition_names(spec.entries, spec.flags)
    resources |= {pattern.name for pattern in (*spec.gpu_patterns, *spec.mig_patterns)}
    if spec.sharing:
        resources |= {item.rename or f"{item.name}.shared" for item in spec.sharing.resources}
    profiles = {
        profile.partition("@")[0] for entry in spec.entries for each in entry.partitions.values() for profile in each
    }
    profiles |= {each.name for entry in spec.entries if entry.geometry for each in entry.geometry.profiles}
    cdi = any(each.is_cdi for each in spec.flags.device_list_strategies)
    return World(spec.entries, frozenset(resources), frozenset(profiles), spec, cdi)


def check(rules: Placed, around: World, report: Report) -> None:
    """The rules against the world, and against each other."""
    first: dict[str, Path] = {}
    around = replace(around, stage=scene(around.spec, [rule for _, rule in rules])) if rules else around
    for path, rule in rules:
        if rule.name in first:
            at = report.document.value_place((*first[rule.name], "name"))
            report.error((*path, "name"), f"the name {rule.name!r} is taken by the rule at {at}")
        first.setdefault(rule.name, path)
        _resource(rule, path, around, report)
        if rule.kind is FaultKind.DEVICE or rule.triggered:
            before = len(report.findings)
            for number, want in enumerate(rule.selection.filters):
                _want(rule, want, number, path, around, report)
            if len(report.findings) == before and around.stage.nodes:
                _whole(rule, path, around, report)
        if rule.kind is FaultKind.CDI and not around.cdi:
            hint = "set flags.plugin.deviceListStrategy to cdi-cri or cdi-annotations"
            report.warning((*path, "cdi"), "no CDI file is written, so the rule has nothing to break", hint)
    for (_, one), (path, other) in combinations(rules, 2):
        _pair(one, other, path, report)
        why = contrary(one, other, around.stage)
        if why:
            report.error(path, f"{one.name!r} and {other.name!r} {why}", "give them times of their own")


# --- one rule and the world ------------------------------------------------------------------------------------------


def _resource(rule: FaultRuleSpec, path: Path, around: World, report: Report) -> None:
    if rule.resource != "*" and not any(rule.concerns(name) for name in around.resources):
        _unknown("resource", rule.resource, around.resources, (*path, "resource"), report)


def _unknown(kind: str, word: str, known: frozenset[str], path: Path, report: Report) -> None:
    there = f"there are {', '.join(sorted(known)[:8])}" if known else f"there is no {kind}"
    report.error(path, f"unknown {kind} {word!r}, so the rule can never fire", did_you_mean(word, known) or there)


def _want(  # noqa: PLR0917
    rule: FaultRuleSpec, want: DeviceFilter, number: int, path: Path, around: World, report: Report
) -> None:
    base, stage = (*path, "devices"), around.stage

    def at(key: str) -> Path:
        """The item of the list, or the key of the mapping."""
        return next(
            (each for each in ((*base, number), (*base, "names", number)) if each in report.document.values),
            (*base, key),
        )

    entries = [each for each in around.entries if not want.entry or fnmatchcase(each.name, want.entry)]
    if not entries:
        if around.entries or want.entry:
            _unknown("device entry", want.entry, frozenset(each.name for each in around.entries), at("entry"), report)
        return
    if want.resource and not any(fnmatchcase(name, want.resource) for name in around.resources):
        _unknown("resource", want.resource, around.resources, at("resource"), report)
    if want.profile and not any(fnmatchcase(name, want.profile) for name in around.profiles):
        _unknown("profile", want.profile, around.profiles, at("profile"), report)
    if want.id and not _may_be_id(want.id, around.entries, stage):
        known = frozenset(each.name for each in around.entries)
        _unknown("device", want.id, known, at("id"), report)
    counts = [each.source.count for each in entries if isinstance(each.source, VirtualSource)]
    if len(counts) == len(entries):
        _index(want, max(counts), at("index"), report)
        _numa(want, entries, at("numa"), report)
        if want.partition is not None and stage.nodes and not any(each.stop > max(counts) for each in want.indices):
            _partition(want, stage, at("index"), report)
    _nodes(rule, entries, path, report)


def _index(want: DeviceFilter, count: int, path: Path, report: Report) -> None:
    beyond = [each for each in want.indices if each.stop > count]
    if beyond:
        index = max(beyond[0].start, count)
        report.error(path, f"there is no device {index}; the entry has {count}", f"expected 0 to {count - 1}")


def _partition(want: DeviceFilter, stage: Scene, path: Path, report: Report) -> None:
    """A partition's number on its device."""
    parts = {
        slot.device.sort_key[-1]
        for node in stage.nodes.values()
        for resource in node.resources.values()
        for slot in resource.slots
        if slot.device.is_partition
        and fnmatchcase(slot.device.raw.entry, want.entry)
        and any(slot.device.raw.index in each for each in want.indices)
    }
    if want.partition not in parts:
        index = want.indices[0].start
        there = ", ".join(f"{index}:{each}" for each in sorted(parts))
        message = f"there is no partition {index}:{want.partition}, so the rule can never fire"
        report.error(path, message, f"there are {there}" if there else "the device has no partitions")


def _whole(rule: FaultRuleSpec, path: Path, around: World, report: Report) -> None:
    """All conditions together, where every device that they could mean is known."""
    wants, stage = rule.selection.filters, around.stage
    if any(
        fnmatchcase(entry.name, want.entry or "*")
        for entry in around.entries
        for want in wants
        if entry.name not in stage.known
    ) or any(want.id and not _is_known(want.id, stage) for want in wants):
        return
    for want in wants:
        if not stage.meant(replace(rule, selection=DeviceSelection(filters=(want,)))):
            message = "no device meets all of the conditions, so the rule can never fire"
            report.error((*path, "devices"), message, "devices and resource must hold together")
            return
    most = max(_units(rule, node, each) for node, each in stage.nodes.items())
    if rule.selection.pick is not None and rule.selection.pick > most:
        report.error((*path, "devices", "pick"), f"{rule.selection.pick} cannot be picked of {most}")


def _units(rule: FaultRuleSpec, node: str, around: Inventory) -> int:
    """How many things the rule can pick from: replicas by id, partitions or whole devices."""
    keys = meant(rule, around, node)
    slots = [slot for name, each in around.resources.items() for slot in each.slots if (name, slot.id) in keys]
    if any(want.id for want in rule.selection.filters):
        return len(slots)
    fine = rule.resource != "*" or any(
        w.profile or w.resource or w.partition is not None for w in rule.selection.filters
    )
    return len({slot.device.id if fine else slot.device.raw.id for slot in slots})


def _numa(want: DeviceFilter, entries: Sequence[EntrySpec], path: Path, report: Report) -> None:
    known = {node for each in entries if isinstance(each.source, VirtualSource) for node in each.source.numa}
    if want.numa and not known & set(want.numa):
        there = f"there are {sorted(known)}" if known else "the devices have none"
        report.error(path, f"no device is on NUMA node {want.numa[0]}, so the rule can never fire", there)


def _may_be_id(text: str, entries: Sequence[EntrySpec], stage: Scene) -> bool:
    """Ids begin with the entry's name, or are NVIDIA's, which depend on the node's name; those of virtual devices are
    known.
    """
    if any(mark in text for mark in "*?["):
        return True
    if text.startswith(_NVIDIA_IDS):
        return any(entry.is_nvidia for entry in entries) and is_nvidia_id(base_id(text))
    others = [entry for entry in entries if entry.name not in stage.known]
    return any(text.startswith((f"{entry.name[:40]}-", f"{entry.name[:40]}_")) for entry in others) or _is_known(
        text, stage
    )


def _is_known(text: str, stage: Scene) -> bool:
    return any(
        fnmatchcase(each, text)
        for node in stage.nodes.values()
        for resource in node.resources.values()
        for slot in resource.slots
        for each in (slot.id, slot.device.id, slot.device.raw.id)
    )


def _nodes(rule: FaultRuleSpec, entries: Sequence[EntrySpec], path: Path, report: Report) -> None:
    """Only names without wildcards can be compared for certain."""
    plain = [each for each in rule.nodes.globs if not set("*?[") & set(each)]
    if plain and len(plain) == len(rule.nodes.globs) and not any(e.is_on(node) for e in entries for node in plain):
        message = f"its devices are on none of the nodes {', '.join(plain)}, so the rule can never fire"
        report.error((*path, "onNodes"), message)


# --- two rules -------------------------------------------------------------------------------------------------------


def _pair(one: FaultRuleSpec, other: FaultRuleSpec, path: Path, report: Report) -> None:
    if one.nodes != other.nodes or _by_chance(one) or _by_chance(other):
        return
    if isinstance(one.effect, Process) and other.when.at > one.when.at and not other.triggered:
        message = f"the rule can never fire: {one.name!r} ends the process before, after {one.when.at:g} s"
        report.error((*path, "at"), message)
    elif isinstance(other.effect, Process) and one.when.at > other.when.at and not one.triggered:
        message = f"{one.name!r} can never fire: this ends the process before, after {other.when.at:g} s"
        report.error((*path, "at"), message)
    elif _same_calls(one, other) and _unconditional(one):
        report.error(path, f"the rule can never fire: {one.name!r} takes all of its calls", "limit one of them in time")


def _by_chance(rule: FaultRuleSpec) -> bool:
    return rule.chance != Chance() or rule.triggered


def _same_calls(one: FaultRuleSpec, other: FaultRuleSpec) -> bool:
    match one.effect, other.effect:
        case Call() as first, Call() as second:
            ends = first.hang or first.fail is not None or first.faulty_answer is not None
            return ends and second.rpcs <= first.rpcs and one.resource in ("*", other.resource)
    return False


def _unconditional(rule: FaultRuleSpec) -> bool:
    return rule.when == When()


def contrary(one: FaultRuleSpec, other: FaultRuleSpec, stage: Scene, *, later: float = 0.0) -> str:
    """Why both cannot be true, or "" when they can; `other` is read so many seconds after `one`.

    Chance and triggers are given the benefit of the doubt, and so are devices that only a node can tell.
    """
    if _by_chance(one) or _by_chance(other) or not _opposed(one.effect, other.effect):
        return ""
    if one.nodes != other.nodes and min(one.nodes.share, other.nodes.share) < ALWAYS:
        return ""
    if one.kind is FaultKind.DEVICE:
        what = "the same devices" if _same_devices(one, other, stage) else ""
    else:
        what = "the same resource" if _same_resources(one, other, stage) else ""
    return f"say the contrary of {what} at the same time" if what and _overlap(one, other, later) else ""


def _opposed(one: Effect, other: Effect) -> bool:
    """Whether both effects cannot be there at once."""
    match one, other:
        case SetHealth(healthy=first), SetHealth(healthy=second):
            return first != second
        case (SetHealth(), Remove() | Flap()) | (Remove() | Flap(), SetHealth()):
            return True
        case Flap(), Flap():
            return (one.up, one.down) != (other.up, other.down)
        case Register(delay=first), Register(delay=second) if not (one.never or other.never):
            return one != other and bool(first) == bool(second)  # what comes late can be wrong, too
        case (Register(), Register()) | (Stream(), Stream()) | (Socket(), Socket()) | (Cdi(), Cdi()):
            return one != other
    return False


def _both(one: FaultRuleSpec, other: FaultRuleSpec, node: str) -> bool:
    """Whether both rules are for the node of that name."""
    return all(
        not globs or any(fnmatchcase(node, each) for each in globs) for globs in (one.nodes.globs, other.nodes.globs)
    )


def _same_devices(one: FaultRuleSpec, other: FaultRuleSpec, stage: Scene) -> bool:
    if (one.selection, one.resource, one.nodes) == (other.selection, other.resource, other.nodes):
        return True
    if any(each is not None for rule in (one, other) for each in (rule.selection.pick, rule.selection.share)):
        return False  # their lots may differ
    return any(
        not meant(one, each, node).isdisjoint(meant(other, each, node))
        for node, each in stage.nodes.items()
        if _both(one, other, node)
    )


def _same_resources(one: FaultRuleSpec, other: FaultRuleSpec, stage: Scene) -> bool:
    if (one.resource, one.nodes) == (other.resource, other.nodes):
        return True
    return any(
        one.concerns(name) and other.concerns(name)
        for node, each in stage.nodes.items()
        if _both(one, other, node)
        for name in each.resources
    )


def _overlap(one: FaultRuleSpec, other: FaultRuleSpec, later: float) -> bool:
    """Whether their first spans, without jitter's luck, share a moment. A flap counts from its first fall on."""
    dice = Dice(0, "")
    first, second = (
        [span for _, span in zip(range(_LOOKED_AT), spans(each, dice, Firing(zero), later), strict=False)]
        for each, zero in ((one, 0.0), (other, later))
    )
    return any(
        (a.start < b.end and b.start < a.end) or a.start == b.start for a in first for b in second if a.real and b.real
    )
