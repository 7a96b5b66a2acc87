"""Checks of fault rules beyond single values.

`check_rule` checks one rule: keys that need or exclude each other, times that overlap, harmful effects without consent.
`check_rules` checks that devices, resources and drivers in the rules exist in the configuration.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase

from ..faults.effects import CALLS_FOR_CLAIMS, ApiFaults, Rpc
from ..faults.rules import EFFECTS, OF_DEVICES, FaultRule, Select
from ..model.device import base_id
from ..model.entry import Entry, MigStrategy
from ..model.names import is_nvidia_id
from ..model.problem import did_you_mean, listed
from ..model.scalars import index_range
from ..model.spec import Spec
from ..planning.naming import name_of
from .file_checks import check_names
from .messages import ProblemReport

MAX_JITTER = 0.5  # more would let one repetition overtake the next
_LISTS = (Rpc.ALLOCATE, Rpc.PREFERRED)
_WRONG: Mapping[str, Sequence[Rpc]] = {  # the calls that can have each wrong answer
    "empty": _LISTS,
    "bogusIds": _LISTS,
    "oversized": _LISTS,
    "wrongDevice": (Rpc.PREPARE,),
    "skipClaim": CALLS_FOR_CLAIMS,
    "claimError": CALLS_FOR_CLAIMS,
}
_CALL_KEYS = ("delay", "hang", "error", "answer")
_ONE_KEY = ("register", "stream", "socket", "cdi", "podResources", "slices", "healthStream")
_ONLY_FOR = {"reason": ("health", "xid", "flap"), **dict.fromkeys(_CALL_KEYS, ("rpc",))}
_OF_THE_WHOLE = ("podResources", "process", "event", "condition", "api")
_ASKS_TO_WAIT = (429, 503)


def check_rule(rule: FaultRule, report: ProblemReport) -> None:
    given = rule.given
    kinds = [key for key in EFFECTS if key in given]
    if kinds == ["health", "xid"]:
        kinds = ["xid"]  # with this health
    if not kinds and any(key in given for key in _CALL_KEYS):
        report.error((), "no calls are named", "add rpc, such as rpc: Allocate")
    elif not kinds:
        report.error((), "the rule has no effect", f"give one of {', '.join(EFFECTS)}")
    elif len(kinds) == 1:
        _effect(rule, kinds[0], given, report)
    report.one_at_most(kinds, "one rule has one effect: make several rules")
    if rule.hardware_errors is not None and not rule.hardware_errors.given:
        report.error("hardwareErrors", "no error is counted", "give at least one of its keys, such as correctedEcc: 60")
    if rule.api is not None:
        _api(rule.api, report.at("api"))
    _times(rule, kinds, report)
    if rule.nth and rule.every_nth:
        report.one_at_most(("nth", "everyNth"))
    report.one_at_most([key for key in ("since", "onAllocate", "onFile", "manual") if key in given])
    oversized = rule.stream is not None and rule.stream.oversized
    for key, is_given, why in (
        ("drop", rule.drop, "dropping an id while its Allocate is in flight makes 1.36 panic"),
        ("stream", oversized, "a list over 4 MiB ends the stream, and all devices of the resource are lost"),
    ):
        if is_given and not rule.allow_harmful:
            hint = "add allowHarmful: true to the rule if that is intended"
            report.error(key, f"this can harm a real kubelet: {why}", hint)


# --- what happens ----------------------------------------------------------------------------------------------------


def _effect(rule: FaultRule, kind: str, given: tuple[str, ...], report: ProblemReport) -> None:
    report.keys_fit(rule, kind, _ONLY_FOR)
    if kind not in OF_DEVICES and "devices" in given and not rule.on_allocate:
        report.key_error("devices", f"devices is for faults of devices, and this is {kind}", "use resource")
    if kind == "rpc":
        _call(rule, given, report)
    if kind in _ONE_KEY:
        report.at(kind).exactly_one(rule.by_key[kind].by_key, "nothing fails")
    if kind in _OF_THE_WHOLE and "resource" in given:
        report.key_error("resource", f"{kind} concerns the whole plugin, not one resource")
    if "devices" in given:
        _select(rule.devices, report.at("devices"))


def _call(rule: FaultRule, given: tuple[str, ...], report: ProblemReport) -> None:
    ways = [key for key in _CALL_KEYS if key in given]
    if not ways:
        report.error((), "nothing happens to the calls", f"give one or more of {', '.join(_CALL_KEYS)}")
    report.one_at_most([key for key in ways if key != "delay"], "a call can have only one result")
    if rule.delay is not None and rule.delay.p50 > rule.delay.max:
        report.error("delay", f"p50 {rule.delay.p50:g} s is longer than max {rule.delay.max:g} s")
    if rule.answer is None:
        return
    here = report.at("answer")
    here.exactly_one(rule.answer.by_key, "nothing fails")
    for way in rule.answer.given[:1]:
        for rpc in rule.rpc:
            if rpc not in _WRONG[way]:
                hint = "use stream for wrong lists" if rpc is Rpc.LIST else "use error, hang or delay"
                here.error((), f"only {' and '.join(_WRONG[way])} can have this answer, not {rpc}", hint)


def _api(block: ApiFaults, report: ProblemReport) -> None:
    ways = {"unreachable": block.unreachable, "status": block.status, "watch": block.watch}
    way = report.exactly_one(ways, "no request fails")
    if block.retry_after is not None and way and block.status not in _ASKS_TO_WAIT:
        report.key_error("retryAfter", "retryAfter is for status 429 and 503 only")
    if way == "watch" and block.verbs:
        report.key_error("verbs", "watch and verbs exclude each other", "use unreachable with verbs")


def _select(select: Select, report: ProblemReport) -> None:
    conditions = [key for key in ("entry", "index", "id", "resource", "profile", "numa") if getattr(select, key)]
    if select.names:
        report.one_at_most(["names", *conditions])
    report.one_at_most([key for key in ("pick", "share") if getattr(select, key) is not None])
    if select.share == 0:
        report.error("share", "expected more than 0")


# --- when ------------------------------------------------------------------------------------------------------------


def _times(rule: FaultRule, kinds: list[str], report: ProblemReport) -> None:
    flap = rule.flap
    if kinds in (["process"], ["event"]) and rule.lasts is not None:
        what = "a process ends at once" if kinds == ["process"] else "an Event happens at one moment"
        report.key_error("for", what, "use every to let it happen again and again")
    if rule.every is None:
        if rule.times is not None:
            report.key_error("times", "times needs every")
        if rule.jitter and not rule.at and flap is None:
            report.key_error("jitter", "jitter needs every, at or flap")
    elif rule.lasts is None and kinds and not rule.momentary:
        report.key_error("every", "without `for` it never ends, so it cannot repeat", "add for")
    if rule.jitter > MAX_JITTER:
        report.error("jitter", f"{rule.jitter:g} is too much", f"at most {MAX_JITTER:.0%} keeps the order")
    elif rule.every is not None and rule.lasts is not None:
        room = rule.every * (1 - (0 if flap else 2 * rule.jitter))
        if rule.lasts > room:
            moved = f", moved by {rule.jitter:.0%} both ways" if rule.jitter and not flap else ""
            message = f"{rule.lasts:g} s every {rule.every:g} s{moved}: it would begin again before it ends"
            report.error("for", message, f"at most {room:g} s fit")


# --- the names in the rules -------------------------------------------------------------------------------------------

_PLACEHOLDER = re.compile(r"\{[^{}]*\}")


def check_rules(rules: Sequence[FaultRule], spec: Spec, report: ProblemReport) -> None:
    """Check the names in the rules against those of `spec`."""
    check_names(rules, "rule", report)
    resources = {entry.resource for entry in spec.entries}
    if spec.flags.mig_strategy is MigStrategy.MIXED:
        resources |= {name_of(spec, entry, each) or "" for entry in spec.entries for each in entry.possible_profiles}
    resources |= {pattern.name for pattern in (*spec.resources.gpus, *spec.resources.mig)}
    resources |= {_PLACEHOLDER.sub("*", entry.resource) for entry in spec.entries if entry.is_templated}
    if spec.sharing:
        resources |= {item.rename or f"{item.name}.shared" for item in spec.sharing.resources}
    profiles = {profile for entry in spec.entries for profile in entry.possible_profiles}
    profiles |= {each for entry in spec.entries if entry.geometry for each in entry.geometry.profiles}
    drivers = {entry.dra.driver for entry in spec.entries if entry.dra}
    names = [entry.name for entry in spec.entries]
    of_devices = {"entry": names, "resource": resources, "profile": profiles}
    for rule in rules:
        here = report.of(rule)
        has_effect = any(key in rule.given for key in EFFECTS)  # if not, there is an error already
        if has_effect and rule.resource != "*" and (drivers or rule.of_resources):
            known = (resources if rule.of_resources else set()) | (drivers if rule.of_drivers else set())
            if not any(rule.concerns(each) or ("*" in each and fnmatchcase(rule.resource, each)) for each in known):
                _unknown("resource" if rule.of_resources else "driver", rule.resource, known, here.at("resource"))
        for number, select in enumerate(rule.devices.alternatives(names)):
            _check_names(select, number, spec.entries, of_devices, here.at("devices"))


def _unknown(kind: str, word: str, known: Collection[str], report: ProblemReport, *, what: str = "known") -> None:
    there = listed(sorted(known), lead=f"{what}:") if known else f"there is no {kind}"
    report.error((), f"unknown {kind} {word!r}", did_you_mean(word, known) or there)


def _check_names(
    select: Select, number: int, entries: Sequence[Entry], known: Mapping[str, Collection[str]], report: ProblemReport
) -> None:
    """Check the names in the conditions `select`. If `devices` is a list, they are its item `number`."""
    item = next((report.at(*each) for each in ((number,), ("names", number)) if report.has(each)), None)
    for key, words in known.items():
        word = getattr(select, key)
        if word and not any(fnmatchcase(name, word) for name in words):
            _unknown("device entry" if key == "entry" else key, word, words, item or report.at(key))
    if select.id and not _may_be_id(select.id, entries):
        _unknown("device", select.id, known["entry"], item or report.at("id"), what="known entries")
    meant = [each.virtual for each in entries if fnmatchcase(each.name, select.entry or "*")]
    if not meant or None in meant:
        return  # the number of real devices is unknown
    count = max(each.count for each in meant if each)
    for indices in (index_range(each.partition(":")[0]) for each in select.index):
        if indices.stop > count:
            message = f"there is no device {max(indices.start, count)}; the entry has {count}"
            (item or report.at("index")).error((), message, f"expected 0 to {count - 1}")


def _may_be_id(text: str, entries: Sequence[Entry]) -> bool:
    """Whether a device may have the id: it is in the file, starts with an entry's name, or has NVIDIA's form."""
    given = {each for entry in entries if entry.virtual for each in entry.virtual.ids}
    starts = tuple(f"{entry.name[:40]}{mark}" for entry in entries for mark in "-_")
    if any(mark in text for mark in "*?[") or base_id(text) in given or text.startswith(starts):
        return True
    return is_nvidia_id(base_id(text)) and any(entry.is_nvidia for entry in entries)
