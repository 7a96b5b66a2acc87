"""Checks of fault rules beyond single values.

`check_rule` checks one rule: keys that need or exclude each other, times that overlap, harmful effects without consent.
`check_rules` checks that devices, resources and drivers in the rules exist in the configuration.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ..faults.effects import ApiFaults, ClaimCall, Rpc
from ..faults.rules import EFFECTS, OF_DEVICES, DeviceFilter, FaultRule, Select
from ..faults.xids import APPLICATION_ERRORS
from ..model.device import base_id
from ..model.entry import Entry
from ..model.names import is_nvidia_id
from ..model.problem import KeyPath, did_you_mean, listed
from ..model.section import Section
from ..model.spec import Spec
from .file_checks import check_names
from .messages import ProblemReport
from .sharing_checks import partition_names

MAX_JITTER = 0.5  # more would let one repetition overtake the next
_LISTS = (Rpc.ALLOCATE, Rpc.PREFERRED)
_WRONG: Mapping[str, Sequence[Rpc | ClaimCall]] = {  # by wrong answer, the calls that can have it
    "empty": _LISTS,
    "bogusIds": _LISTS,
    "oversized": _LISTS,
    "wrongDevice": (ClaimCall.PREPARE,),
    "skipClaim": tuple(ClaimCall),
    "claimError": tuple(ClaimCall),
}
_CALL_KEYS = ("delay", "hang", "error", "answer")
_ONE_KEY = ("register", "stream", "socket", "cdi", "podResources", "slices", "healthStream")
_OF_HEALTH = ("health", "xid", "flap")  # keys for which a reason can be given
_OF_THE_WHOLE = ("podResources", "process", "event", "condition", "api")
_ASKS_TO_WAIT = (429, 503)


def check_rule(model: FaultRule, report: ProblemReport) -> None:
    """Check one rule."""
    path, given = model.where.path, model.given
    kinds = [key for key in EFFECTS if key in given]
    if kinds == ["health", "xid"]:
        kinds = ["xid"]  # with this health
    if not kinds:
        if any(key in given for key in _CALL_KEYS):
            report.error(path, "no calls are named", "add rpc, such as rpc: Allocate")
        else:
            report.error(path, "the rule has no effect", f"give one of {', '.join(EFFECTS)}")
    elif len(kinds) == 1:
        _kind(model, kinds[0], given, path, report)
    report.one_at_most(path, kinds, "one rule has one effect: make several rules")
    if model.hardware_errors is not None and not model.hardware_errors.given:
        hint = "give at least one of its keys, such as correctedEcc: 60"
        report.error((*path, "hardwareErrors"), "no error is counted", hint)
    if model.api is not None:
        _api(model.api, (*path, "api"), report)
    _times(model, kinds, path, report)
    if model.nth and model.every_nth:
        report.one_at_most(path, ("nth", "everyNth"))
    report.one_at_most(path, [key for key in ("since", "onAllocate", "onFile", "manual") if key in given])
    _consent(model, path, report)


# --- what happens ----------------------------------------------------------------------------------------------------


def _kind(model: FaultRule, kind: str, given: tuple[str, ...], path: KeyPath, report: ProblemReport) -> None:
    if kind not in OF_DEVICES and "devices" in given and not model.on_allocate:
        report.key_error((*path, "devices"), f"devices is for faults of devices, and this is {kind}", "use resource")
    if "reason" in given:
        _reason(model, kind, (*path, "reason"), report)
    if kind == "rpc":
        _call(model, given, path, report)
    else:
        for key in _CALL_KEYS:
            if key in given:
                report.key_error((*path, key), f"{key} is for rpc only, and this is {kind}")
    if kind in _ONE_KEY:
        _one_key(model.by_key[kind], (*path, kind), report)
    if kind in _OF_THE_WHOLE and "resource" in given:
        report.key_error((*path, "resource"), f"{kind} concerns the whole plugin, not one resource")
    if model.devices is not None:
        _select(model.devices, (*path, "devices"), report)


def _call(model: FaultRule, given: tuple[str, ...], path: KeyPath, report: ProblemReport) -> None:
    ways = [key for key in _CALL_KEYS if key in given]
    if not ways:
        report.error(path, "nothing happens to the calls", f"give one or more of {', '.join(_CALL_KEYS)}")
    last = [key for key in ways if key != "delay"]
    if last == ["hang"] and "delay" in ways:
        last.append("delay")
    report.one_at_most(path, last, "a call ends in one way")
    if model.delay is not None and model.delay.p50 > model.delay.max:
        report.error((*path, "delay"), f"p50 {model.delay.p50:g} s is longer than max {model.delay.max:g} s")
    if model.answer is None:
        return
    _one_key(model.answer, (*path, "answer"), report)
    for way in model.answer.given[:1]:
        for rpc in model.rpc:
            if rpc not in _WRONG[way]:
                hint = "for wrong lists there is stream" if rpc is Rpc.LIST else "use error, hang or delay"
                report.error(
                    (*path, "answer"), f"only {' and '.join(_WRONG[way])} can have this answer, not {rpc}", hint
                )


def _reason(model: FaultRule, kind: str, path: KeyPath, report: ProblemReport) -> None:
    if kind not in _OF_HEALTH:
        report.key_error(path, "reason is for health, xid and flap only")
    elif model.xid in APPLICATION_ERRORS and model.health is None:
        message = f"Xid {model.xid} is an error of the application and leaves the health alone, which has the reason"
        report.key_error(path, message, "add health: Unhealthy, or leave the reason out")


def _api(block: ApiFaults, path: KeyPath, report: ProblemReport) -> None:
    ways = {"unreachable": block.unreachable, "status": block.status, "watch": block.watch}
    way = report.exactly_one(path, ways, "no request fails")
    if block.retry_after is not None and way and block.status not in _ASKS_TO_WAIT:
        report.key_error((*path, "retryAfter"), "retryAfter is for status 429 and 503 only")
    if way == "watch" and block.verbs:
        report.key_error((*path, "verbs"), "watch and verbs exclude each other", "use unreachable with verbs")


def _one_key(block: Section, path: KeyPath, report: ProblemReport) -> None:
    report.exactly_one(path, block.by_key, "nothing fails")


def _select(model: Select, path: KeyPath, report: ProblemReport) -> None:
    conditions = [key for key in ("entry", "index", "id", "resource", "profile", "numa") if getattr(model, key)]
    if model.names:
        report.one_at_most(path, ["names", *conditions])
    report.one_at_most(path, [key for key in ("pick", "share") if getattr(model, key) is not None])
    if model.share == 0:
        report.error((*path, "share"), "expected more than 0")


# --- when ------------------------------------------------------------------------------------------------------------


def _times(model: FaultRule, kinds: list[str], path: KeyPath, report: ProblemReport) -> None:
    moment = kinds in (["process"], ["event"])
    flap = model.flap
    if moment and model.lasts is not None:
        what = "a process ends at once" if kinds == ["process"] else "an Event is of a moment"
        report.key_error((*path, "for"), what, "use every to let it happen again and again")
    if model.every is None:
        if model.times is not None:
            report.key_error((*path, "times"), "times needs every")
        if model.jitter and not model.at and flap is None:
            report.key_error((*path, "jitter"), "jitter needs every, at or flap")
    elif model.lasts is None and kinds and not model.momentary:
        report.key_error((*path, "every"), "without `for` it never ends, so it cannot repeat", "add for")
    if model.jitter > MAX_JITTER:
        report.error((*path, "jitter"), f"{model.jitter:g} is too much", f"at most {MAX_JITTER:.0%} keeps the order")
    elif model.every is not None and model.lasts is not None:
        room = model.every * (1 - (0 if flap else 2 * model.jitter))
        if model.lasts > room:
            moved = f", moved by {model.jitter:.0%} both ways" if model.jitter and not flap else ""
            message = f"{model.lasts:g} s every {model.every:g} s{moved}: it would begin again before it ends"
            report.error((*path, "for"), message, f"at most {room:g} s fit")


def _consent(model: FaultRule, path: KeyPath, report: ProblemReport) -> None:
    oversized = model.stream is not None and model.stream.oversized
    for key, is_given, why in (
        ("drop", model.drop, "dropping an id while its Allocate is in flight makes 1.36 panic"),
        ("stream", oversized, "a list over 4 MiB ends the stream, and all devices of the resource are lost"),
    ):
        if is_given and not model.allow_harmful:
            hint = "add allowHarmful: true to the rule if that is intended"
            report.error((*path, key), f"this can harm a real kubelet: {why}", hint)


_NVIDIA_IDS = ("GPU-", "MIG-")
_PLACEHOLDER = re.compile(r"\{[^{}]*\}")


@dataclass(frozen=True, slots=True)
class Declared:
    """The names that rules can use."""

    entries: tuple[Entry, ...]
    resources: frozenset[str]
    drivers: frozenset[str]
    profiles: frozenset[str]


def check_rules(rules: Sequence[FaultRule], spec: Spec, report: ProblemReport) -> None:
    """Check the names in the rules against those of `spec`."""
    if not rules:
        return
    declared = _declared(spec)
    entries = [entry.name for entry in spec.entries]
    check_names(rules, "rule", report)
    for rule in rules:
        path = rule.where.path
        _resource(rule, path, declared, report)
        for number, want in enumerate(rule.selection.filters(entries)):
            _want(want, number, path, declared, report)


def _declared(spec: Spec) -> Declared:
    resources = {entry.resource for entry in spec.entries} | partition_names(spec)
    resources |= {_PLACEHOLDER.sub("*", entry.resource) for entry in spec.entries if entry.is_templated}
    resources |= {pattern.name for pattern in (*spec.resources.gpus, *spec.resources.mig)}
    if spec.sharing:
        resources |= {item.rename or f"{item.name}.shared" for item in spec.sharing.resources}
    profiles = {profile for entry in spec.entries for profile in entry.possible_profiles}
    profiles |= {each for entry in spec.entries if entry.geometry for each in entry.geometry.profiles}
    drivers = frozenset(entry.dra.driver for entry in spec.entries if entry.dra)
    return Declared(spec.entries, frozenset(resources), drivers, frozenset(profiles))


def _resource(rule: FaultRule, path: KeyPath, declared: Declared, report: ProblemReport) -> None:
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
    there = listed(sorted(known), lead=f"{what}:") if known else f"there is no {kind}"
    report.error(path, f"unknown {kind} {word!r}", did_you_mean(word, known) or there)


def _want(want: DeviceFilter, number: int, path: KeyPath, declared: Declared, report: ProblemReport) -> None:
    base = (*path, "devices")

    def at(key: str) -> KeyPath:
        """Return the place of the condition: in the list, or under its key."""
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
    counts = [each.virtual.count for each in entries if each.virtual]
    if len(counts) == len(entries):
        _index(want, max(counts), at("index"), report)


def _index(want: DeviceFilter, count: int, path: KeyPath, report: ProblemReport) -> None:
    beyond = [each for each in want.indices if each.stop > count]
    if beyond:
        index = max(beyond[0].start, count)
        report.error(path, f"there is no device {index}; the entry has {count}", f"expected 0 to {count - 1}")


def _may_be_id(text: str, entries: Sequence[Entry]) -> bool:
    """Whether a device may have the id: the file gives it, it begins with an entry's name, or NVIDIA made it."""
    given = {each for entry in entries if entry.virtual for each in entry.virtual.ids}
    if any(mark in text for mark in "*?[") or base_id(text) in given:
        return True
    if text.startswith(_NVIDIA_IDS):
        return any(entry.is_nvidia for entry in entries) and is_nvidia_id(base_id(text))
    return any(text.startswith((f"{entry.name[:40]}-", f"{entry.name[:40]}_")) for entry in entries)
