"""What fault rules say of the rest of the configuration, and of each other: unknown devices, rules that can never fire,
rules that contradict each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import combinations

from ..core import faults as core
from ..core.problem import did_you_mean
from ..core.spec import EntrySpec, Spec, VirtualSource
from ..core.timeline import Dice, Firing, spans
from .compile import partition_names
from .place import Path
from .read import Report

_NVIDIA_IDS = ("GPU-", "MIG-")
_LOOKED_AT = 50  # spans of each rule that are compared with another's

Placed = Sequence[tuple[Path, core.Rule]]


@dataclass(frozen=True, slots=True)
class World:
    """What rules may speak of."""

    entries: tuple[EntrySpec, ...]
    resources: frozenset[str]
    profiles: frozenset[str]


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
    return World(spec.entries, frozenset(resources), frozenset(profiles))


def check(rules: Placed, around: World, report: Report) -> None:
    """The rules against the world, and against each other."""
    first: dict[str, Path] = {}
    for path, rule in rules:
        if rule.name in first:
            at = report.document.value_place((*first[rule.name], "name"))
            report.error((*path, "name"), f"the name {rule.name!r} is taken by the rule at {at}")
        first.setdefault(rule.name, path)
        _resource(rule, path, around, report)
        if rule.kind is core.Kind.DEVICE or rule.triggered:
            for number, want in enumerate(rule.aim.wants):
                _want(rule, want, number, path, around, report)
    for (_, one), (path, other) in combinations(rules, 2):
        _pair(one, other, path, report)


# --- one rule and the world ------------------------------------------------------------------------------------------


def _resource(rule: core.Rule, path: Path, around: World, report: Report) -> None:
    if rule.resource != "*" and not any(rule.concerns(name) for name in around.resources):
        _unknown("resource", rule.resource, around.resources, (*path, "resource"), report)


def _unknown(kind: str, word: str, known: frozenset[str], path: Path, report: Report) -> None:
    there = f"there are {', '.join(sorted(known)[:8])}" if known else f"there is no {kind}"
    report.error(path, f"unknown {kind} {word!r}, so the rule can never fire", did_you_mean(word, known) or there)


def _want(rule: core.Rule, want: core.Want, number: int, path: Path, around: World, report: Report) -> None:  # noqa: PLR0917
    base = (*path, "devices")

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
    if want.id and not _may_be_id(want.id, around.entries):
        known = frozenset(each.name for each in around.entries)
        _unknown("device", want.id, known, at("id"), report)
    counts = [each.source.count for each in entries if isinstance(each.source, VirtualSource)]
    if len(counts) == len(entries):
        _index(want, max(counts), at("index"), report)
        _numa(want, entries, at("numa"), report)
    _nodes(rule, entries, path, report)


def _index(want: core.Want, count: int, path: Path, report: Report) -> None:
    if want.indices and all(each.start >= count for each in want.indices):
        index = want.indices[0].start
        report.error(path, f"there is no device {index}; the entry has {count}", f"expected 0 to {count - 1}")


def _numa(want: core.Want, entries: Sequence[EntrySpec], path: Path, report: Report) -> None:
    known = {node for each in entries if isinstance(each.source, VirtualSource) for node in each.source.numa}
    if want.numa and not known & set(want.numa):
        there = f"there are {sorted(known)}" if known else "the devices have none"
        report.error(path, f"no device is on NUMA node {want.numa[0]}, so the rule can never fire", there)


def _may_be_id(text: str, entries: Sequence[EntrySpec]) -> bool:
    """Ids begin with the entry's name, or are NVIDIA's."""
    if any(mark in text for mark in "*?["):
        return True
    if text.startswith(_NVIDIA_IDS):
        return any(entry.is_nvidia for entry in entries)
    return any(text.startswith(f"{entry.name[:40]}-") for entry in entries)


def _nodes(rule: core.Rule, entries: Sequence[EntrySpec], path: Path, report: Report) -> None:
    """Only names without wildcards can be compared for certain."""
    plain = [each for each in rule.nodes.globs if not set("*?[") & set(each)]
    if plain and len(plain) == len(rule.nodes.globs) and not any(e.is_on(node) for e in entries for node in plain):
        message = f"its devices are on none of the nodes {', '.join(plain)}, so the rule can never fire"
        report.error((*path, "onNodes"), message)


# --- two rules -------------------------------------------------------------------------------------------------------


def _pair(one: core.Rule, other: core.Rule, path: Path, report: Report) -> None:
    if one.nodes != other.nodes or _by_chance(one) or _by_chance(other):
        return
    if isinstance(one.effect, core.Process) and other.when.at > one.when.at and not other.triggered:
        message = f"the rule can never fire: {one.name!r} ends the process before, after {one.when.at:g} s"
        report.error((*path, "at"), message)
    elif isinstance(other.effect, core.Process) and one.when.at > other.when.at and not one.triggered:
        message = f"{one.name!r} can never fire: this ends the process before, after {other.when.at:g} s"
        report.error((*path, "at"), message)
    elif _same_calls(one, other) and _unconditional(one):
        report.error(path, f"the rule can never fire: {one.name!r} takes all of its calls", "limit one of them in time")
    elif _opposed(one, other) and _overlap(one, other):
        hint = "give them times of their own"
        report.error(path, f"{one.name!r} says the contrary of the same devices at the same time", hint)


def _by_chance(rule: core.Rule) -> bool:
    return rule.chance != core.Chance() or rule.triggered


def _same_calls(one: core.Rule, other: core.Rule) -> bool:
    match one.effect, other.effect:
        case core.Call() as first, core.Call() as second:
            ends = first.hang or first.fail is not None or first.wrong is not None
            return ends and second.rpcs <= first.rpcs and one.resource in ("*", other.resource)
    return False


def _unconditional(rule: core.Rule) -> bool:
    return rule.when == core.When()


def _opposed(one: core.Rule, other: core.Rule) -> bool:
    """Whether both speak of the same devices and cannot both be true."""
    if (one.aim, one.resource) != (other.aim, other.resource):
        return False
    match one.effect, other.effect:
        case core.Verdict(healthy=first), core.Verdict(healthy=second):
            return first != second
        case (core.Verdict(), core.Remove()) | (core.Remove(), core.Verdict()):
            return True
    return False


def _overlap(one: core.Rule, other: core.Rule) -> bool:
    """Whether their first spans, without jitter's luck, share a moment."""
    dice, zero = Dice(0, ""), Firing(0.0)
    first, second = (
        [span for _, span in zip(range(_LOOKED_AT), spans(each, dice, zero, 0.0), strict=False)]
        for each in (one, other)
    )
    return any(a.start < b.end and b.start < a.end for a in first for b in second if a.real and b.real)
