"""Fault rules and what they name: unknown devices, rules that can never fire, rules that contradict each other."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import combinations

from ...core.faults.contradictions import by_chance, contradiction
from ...core.faults.meaning import ImaginedNodes, imagined, meant
from ...core.faults.unheard import unheard
from ...core.inventory.resources import Inventory
from ...core.model.device import base_id
from ...core.model.faults.fault_effects import ApiFailure, Call, FaultKind, Process
from ...core.model.faults.fault_rules import DeviceFilter, DeviceSelection, FaultRuleSpec, When
from ...core.model.place import KeyPath
from ...core.model.problem import did_you_mean
from ...core.model.syntax.names import is_nvidia_id
from ...core.spec import NO_FLEET, EntrySpec, Spec, VirtualSource
from ..compile.whole_spec import partition_names
from ..report import ProblemReport

_NAMED = 8  # names that a message shows at most
_NVIDIA_IDS = ("GPU-", "MIG-")
_PLACEHOLDER = re.compile(r"\{[^{}]*\}")

Placed = Sequence[tuple[KeyPath, FaultRuleSpec]]


@dataclass(frozen=True, slots=True)
class Declared:
    """What rules may name."""

    entries: tuple[EntrySpec, ...]
    resources: frozenset[str]
    drivers: frozenset[str]
    profiles: frozenset[str]
    nodes: ImaginedNodes


def check_rules(rules: Placed, spec: Spec, report: ProblemReport) -> None:
    """The rules against what `spec` declares, and against each other."""
    if not rules:
        return
    declared = _declared(spec, [rule for _, rule in rules])
    first: dict[str, KeyPath] = {}
    for path, rule in rules:
        if rule.name in first:
            at = report.document.value_place((*first[rule.name], "name"))
            report.error((*path, "name"), f"the name {rule.name!r} is taken by the rule at {at}")
        first.setdefault(rule.name, path)
        _rule(rule, path, declared, spec, report)
    for (_, one), (path, other) in combinations(rules, 2):
        _pair(one, other, path, report)
        if why := contradiction(one, other, declared.nodes):
            report.error(path, f"{one.name!r} and {other.name!r} {why}", "limit them to different times or devices")


def _declared(spec: Spec, rules: Sequence[FaultRuleSpec]) -> Declared:
    resources = {entry.resource for entry in spec.entries} | partition_names(spec.entries, spec.flags)
    resources |= {_PLACEHOLDER.sub("*", entry.resource) for entry in spec.entries if entry.template}
    resources |= {pattern.name for pattern in (*spec.gpu_patterns, *spec.mig_patterns)}
    if spec.sharing:
        resources |= {item.rename or f"{item.name}.shared" for item in spec.sharing.resources}
    profiles = {profile for entry in spec.entries for profile in entry.possible_profiles}
    profiles |= {each.name for entry in spec.entries if entry.geometry for each in entry.geometry.profiles}
    drivers = frozenset(entry.dra.driver for entry in spec.entries if entry.dra)
    return Declared(spec.entries, frozenset(resources), drivers, frozenset(profiles), imagined(spec, rules))


# --- one rule --------------------------------------------------------------------------------------------------------


def _rule(rule: FaultRuleSpec, path: KeyPath, declared: Declared, spec: Spec, report: ProblemReport) -> None:
    """What one rule names, and whether anybody sees what it does."""
    if rule.nodes.labels and spec.fleet == NO_FLEET:
        message = "only vdev fleet knows the labels of its nodes; vdev run takes the rule for one of other nodes"
        report.warning((*path, "onNodes"), message, "name the nodes by patterns")
    before = len(report.problems)
    _resource(rule, path, declared, report)
    why, hint = unheard(rule, spec)
    if rule.triggered or (rule.kind is FaultKind.DEVICE and not why):
        for number, want in enumerate(rule.selection.filters):
            _want(rule, want, number, path, declared, report)
        if len(report.problems) == before and declared.nodes.inventories:
            _all_conditions(rule, path, declared, report)
    if rule.kind is FaultKind.CDI and not any(each.is_cdi for each in spec.flags.device_list_strategies):
        strategy = "set flags.plugin.deviceListStrategy to cdi-cri or cdi-annotations"
        report.warning((*path, "cdi"), "no CDI file is written, so the rule has no effect", strategy)
    if why and ("node",) not in report.broken():
        report.warning((*path, rule.kind.value), why, hint)


def _resource(rule: FaultRuleSpec, path: KeyPath, declared: Declared, report: ProblemReport) -> None:
    if rule.resource == "*" or not (declared.drivers or rule.of_resources):
        return
    known = frozenset[str]()
    known |= declared.resources if rule.of_resources else known
    known |= declared.drivers if rule.of_drivers else known
    if not any(rule.concerns(each) or ("*" in each and fnmatchcase(rule.resource, each)) for each in known):
        kind = "resource" if rule.of_resources else "driver"
        _unknown(kind, rule.resource, known, (*path, "resource"), report)


def _unknown(
    kind: str, word: str, known: frozenset[str], path: KeyPath, report: ProblemReport, *, what: str = "known"
) -> None:
    more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
    there = f"{what}: {', '.join(sorted(known)[:_NAMED])}{more}" if known else f"there is no {kind}"
    report.error(path, f"unknown {kind} {word!r}, so the rule can never fire", did_you_mean(word, known) or there)


def _want(
    rule: FaultRuleSpec, want: DeviceFilter, number: int, path: KeyPath, declared: Declared, report: ProblemReport
) -> None:
    base, nodes = (*path, "devices"), declared.nodes

    def at(key: str) -> KeyPath:
        """Where the condition is written: in the list, or under its key."""
        return next(
            (each for each in ((*base, number), (*base, "names", number)) if each in report.document.values),
            (*base, key),
        )

    entries = [each for each in declared.entries if not want.entry or fnmatchcase(each.name, want.entry)]
    if not entries:
        if declared.entries or want.entry:
            _unknown("device entry", want.entry, frozenset(each.name for each in declared.entries), at("entry"), report)
        return
    named = (("resource", want.resource, declared.resources), ("profile", want.profile, declared.profiles))
    for kind, word, there in named:
        if word and not any(fnmatchcase(name, word) for name in there):
            _unknown(kind, word, there, at(kind), report)
    if want.id and not _may_be_id(want.id, declared.entries, nodes):
        known = frozenset(each.name for each in declared.entries)
        _unknown("device", want.id, known, at("id"), report, what="known entries")
    counts = [each.source.count for each in entries if isinstance(each.source, VirtualSource)]
    if len(counts) == len(entries):
        _index(want, max(counts), at("index"), report)
        _numa(want, entries, at("numa"), report)
        if (
            want.partition is not None
            and all(each.name in nodes.known for each in entries)
            and not any(each.stop > max(counts) for each in want.indices)
        ):
            _partition(want, nodes, at("index"), report)
    _nodes(rule, entries, path, report)


def _index(want: DeviceFilter, count: int, path: KeyPath, report: ProblemReport) -> None:
    beyond = [each for each in want.indices if each.stop > count]
    if beyond:
        index = max(beyond[0].start, count)
        report.error(path, f"there is no device {index}; the entry has {count}", f"expected 0 to {count - 1}")


def _partition(want: DeviceFilter, nodes: ImaginedNodes, path: KeyPath, report: ProblemReport) -> None:
    """A partition's number on its device."""
    parts = {
        slot.device.part
        for node in nodes.inventories.values()
        for resource in node.everything.values()
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


def _all_conditions(rule: FaultRuleSpec, path: KeyPath, declared: Declared, report: ProblemReport) -> None:
    """All conditions together, if every device that they could mean is known."""
    wants, nodes = rule.selection.filters, declared.nodes
    if any(
        fnmatchcase(entry.name, want.entry or "*")
        for entry in declared.entries
        for want in wants
        if entry.name not in nodes.known
    ) or any(want.id and not _is_known(want.id, nodes) for want in wants):
        return
    for want in wants:
        alone = replace(rule, selection=DeviceSelection(filters=(want,)))
        if not any(meant(alone, inventory, node) for node, inventory in nodes.inventories.items()):
            message = "no device meets all of the conditions, so the rule can never fire"
            report.error((*path, "devices"), message, "devices and resource must hold together")
            return
    most = max(_units(rule, node, each) for node, each in nodes.inventories.items())
    if rule.selection.pick is not None and rule.selection.pick > most:
        report.error((*path, "devices", "pick"), f"it cannot pick {rule.selection.pick} of {most} devices")


def _units(rule: FaultRuleSpec, node: str, inventory: Inventory) -> int:
    """How many things the rule can pick from: replicas by id, partitions or whole devices."""
    keys = meant(rule, inventory, node)
    slots = [slot for name, each in inventory.everything.items() for slot in each.slots if (name, slot.id) in keys]
    if any(want.id for want in rule.selection.filters):
        return len(slots)
    fine = rule.resource != "*" or any(
        w.profile or w.resource or w.partition is not None for w in rule.selection.filters
    )
    return len({slot.device.id if fine else slot.device.raw.id for slot in slots})


def _numa(want: DeviceFilter, entries: Sequence[EntrySpec], path: KeyPath, report: ProblemReport) -> None:
    known = {node for each in entries if isinstance(each.source, VirtualSource) for node in each.source.numa}
    if want.numa and not known & set(want.numa):
        there = f"there are {sorted(known)}" if known else "the devices have none"
        report.error(path, f"no device is on NUMA node {want.numa[0]}, so the rule can never fire", there)


def _may_be_id(text: str, entries: Sequence[EntrySpec], nodes: ImaginedNodes) -> bool:
    """Whether a device may have the id: ids of virtual devices are known, others begin with the entry's name or are
    NVIDIA's, which depend on the node's name.
    """
    if any(mark in text for mark in "*?["):
        return True
    if text.startswith(_NVIDIA_IDS) and not _is_known(text, nodes):
        return any(entry.is_nvidia for entry in entries) and is_nvidia_id(base_id(text))
    others = [entry for entry in entries if entry.name not in nodes.known]
    return any(text.startswith((f"{entry.name[:40]}-", f"{entry.name[:40]}_")) for entry in others) or _is_known(
        text, nodes
    )


def _is_known(text: str, nodes: ImaginedNodes) -> bool:
    return any(
        fnmatchcase(each, text)
        for node in nodes.inventories.values()
        for resource in node.everything.values()
        for slot in resource.slots
        for each in (slot.id, slot.device.id, slot.device.raw.id)
    )


def _nodes(rule: FaultRuleSpec, entries: Sequence[EntrySpec], path: KeyPath, report: ProblemReport) -> None:
    """Whether a device is on a node that the rule names; patterns are not compared."""
    plain = [each for each in rule.nodes.globs if not set("*?[") & set(each)]
    if plain and len(plain) == len(rule.nodes.globs) and not any(e.is_on(node) for e in entries for node in plain):
        message = f"its devices are on none of the nodes {', '.join(plain)}, so the rule can never fire"
        report.error((*path, "onNodes"), message)


# --- two rules -------------------------------------------------------------------------------------------------------


def _pair(one: FaultRuleSpec, other: FaultRuleSpec, path: KeyPath, report: ProblemReport) -> None:
    if one.nodes != other.nodes or by_chance(one) or by_chance(other):
        return
    if isinstance(one.effect, Process) and other.when.at > one.when.at and not other.triggered:
        message = f"the rule can never fire: {one.name!r} ends the process before, after {one.when.at:g} s"
        report.error((*path, "at"), message)
    elif isinstance(other.effect, Process) and one.when.at > other.when.at and not one.triggered:
        message = f"{one.name!r} can never fire: this ends the process before, after {other.when.at:g} s"
        report.error((*path, "at"), message)
    elif _same_calls(one, other) and one.when == When():
        report.error(path, f"the rule can never fire: {one.name!r} takes all of its calls", "limit one of them in time")


def _same_calls(one: FaultRuleSpec, other: FaultRuleSpec) -> bool:
    match one.effect, other.effect:
        case Call() as first, Call() as second:
            ends = first.hang or first.fail is not None or first.faulty_answer is not None
            return ends and second.rpcs <= first.rpcs and one.resource in ("*", other.resource)
        case ApiFailure() as failure, ApiFailure() as later:
            return later.requests <= failure.requests
    return False
