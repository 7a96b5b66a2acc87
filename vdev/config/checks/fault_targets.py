"""What fault rules name: resources, drivers, entries, profiles and devices that the configuration declares."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ...core.model.device import base_id
from ...core.model.faults.fault_rules import DeviceFilter, FaultRuleSpec
from ...core.model.place import KeyPath
from ...core.model.problem import did_you_mean
from ...core.model.syntax.names import is_nvidia_id
from ...core.spec import EntrySpec, Spec, VirtualSource
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


def check_rules(rules: Placed, spec: Spec, report: ProblemReport) -> None:
    """The names in the rules against what `spec` declares."""
    if not rules:
        return
    declared = _declared(spec)
    first: dict[str, KeyPath] = {}
    for path, rule in rules:
        if rule.name in first:
            at = report.document.value_place((*first[rule.name], "name"))
            report.error((*path, "name"), f"the name {rule.name!r} is taken by the rule at {at}")
        first.setdefault(rule.name, path)
        _resource(rule, path, declared, report)
        for number, want in enumerate(rule.selection.filters):
            _want(want, number, path, declared, report)


def _declared(spec: Spec) -> Declared:
    resources = {entry.resource for entry in spec.entries} | partition_names(spec.entries, spec.flags)
    resources |= {_PLACEHOLDER.sub("*", entry.resource) for entry in spec.entries if entry.template}
    resources |= {pattern.name for pattern in (*spec.gpu_patterns, *spec.mig_patterns)}
    if spec.sharing:
        resources |= {item.rename or f"{item.name}.shared" for item in spec.sharing.resources}
    profiles = {profile for entry in spec.entries for profile in entry.possible_profiles}
    profiles |= {each.name for entry in spec.entries if entry.geometry for each in entry.geometry.profiles}
    drivers = frozenset(entry.dra.driver for entry in spec.entries if entry.dra)
    return Declared(spec.entries, frozenset(resources), drivers, frozenset(profiles))


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
    report.error(path, f"unknown {kind} {word!r}", did_you_mean(word, known) or there)


def _want(want: DeviceFilter, number: int, path: KeyPath, declared: Declared, report: ProblemReport) -> None:
    base = (*path, "devices")

    def at(key: str) -> KeyPath:
        """Where the condition is written: in the list, or under its key."""
        return next(
            (each for each in ((*base, number), (*base, "names", number)) if each in report.document.values),
            (*base, key),
        )

    known = frozenset(each.name for each in declared.entries)
    entries = [each for each in declared.entries if not want.entry or fnmatchcase(each.name, want.entry)]
    if not entries:
        if want.entry:
            _unknown("device entry", want.entry, known, at("entry"), report)
        return
    for kind, word, there in (
        ("resource", want.resource, declared.resources),
        ("profile", want.profile, declared.profiles),
    ):
        if word and not any(fnmatchcase(name, word) for name in there):
            _unknown(kind, word, there, at(kind), report)
    if want.id and not _may_be_id(want.id, declared.entries):
        _unknown("device", want.id, known, at("id"), report, what="known entries")
    counts = [each.source.count for each in entries if isinstance(each.source, VirtualSource)]
    if len(counts) == len(entries):
        _index(want, max(counts), at("index"), report)


def _index(want: DeviceFilter, count: int, path: KeyPath, report: ProblemReport) -> None:
    beyond = [each for each in want.indices if each.stop > count]
    if beyond:
        index = max(beyond[0].start, count)
        report.error(path, f"there is no device {index}; the entry has {count}", f"expected 0 to {count - 1}")


def _may_be_id(text: str, entries: Sequence[EntrySpec]) -> bool:
    """Whether a device may have the id: the file gives it, it begins with its entry's name, or is one of NVIDIA's."""
    given = {each for entry in entries if isinstance(entry.source, VirtualSource) for each in entry.source.ids}
    if any(mark in text for mark in "*?[") or base_id(text) in given:
        return True
    if text.startswith(_NVIDIA_IDS):
        return any(entry.is_nvidia for entry in entries) and is_nvidia_id(base_id(text))
    return any(text.startswith((f"{entry.name[:40]}-", f"{entry.name[:40]}_")) for entry in entries)
