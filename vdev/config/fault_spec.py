"""Fault rules to the core's values."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from ..faults import effects as effects
from ..faults.rules import (
    APPLICATION_ERRORS,
    Chance,
    DeviceFilter,
    DeviceSelection,
    FaultRuleSpec,
    NodeSelection,
    Start,
    When,
    described,
)
from ..model.problem import KeyPath
from ..model.scalars import Section, index_range
from . import fault_section as schema
from .fault_section import ApiFaults, EventType
from .loader import Document
from .parser import Tree

_TEXT = "drill"  # the rule that injects it is said beside it


def as_section(document: Document) -> Document:
    """A document of rules, or of a single rule, as one that has a section `faults`."""
    if "faults" in document.root:
        return document
    lead: KeyPath = ("faults",) if "rules" in document.root else ("faults", "rules", 0)
    root: dict[str, Tree] = {"faults": document.root if lead == ("faults",) else {"rules": [document.root]}}
    top = document.value_place(())
    values = {lead[:end]: top for end in range(len(lead))} | {
        (*lead, *at): place for at, place in document.values.items()
    }
    keys = {(*lead, *at): place for at, place in document.keys.items()}
    problems = tuple(replace(each, path=(*lead, *each.path)) for each in document.problems)
    return replace(document, root=root, values=values, keys=keys, problems=problems)


def fault_rule(model: schema.FaultRule, entries: Collection[str], where: str) -> FaultRuleSpec | None:
    """The rule, or None for one without an effect. `entries` are the names of the entries."""
    given = model.given
    effect = next((make(model, model.by_key[key]) for key, make in _EFFECTS.items() if key in given), None)
    if effect is None:
        return None
    nodes = model.on_nodes or schema.OnNodes()
    return FaultRuleSpec(
        name=model.name,
        effect=effect,
        selection=_aim(model.devices, entries),
        resource=model.resource,
        nodes=NodeSelection(globs=tuple(nodes.names), labels=tuple(sorted(nodes.labels.items())), share=nodes.share),
        when=When(
            start=_start(model),
            at=model.at,
            lasts=model.lasts,
            every=model.every,
            times=model.times,
            jitter=model.jitter,
            file=model.on_file or "",
        ),
        chance=Chance(nth=tuple(model.nth), every_nth=model.every_nth or 1, probability=model.probability),
        where=where,
    )


def wanted(name: str, entries: Collection[str]) -> DeviceFilter:
    """The devices that a reference means: `<entry>/<index>`, `<entry>` or a device id."""
    entry, slash, index = name.partition("/")
    if not slash:
        is_entry = any(fnmatchcase(each, name) for each in entries)
        return DeviceFilter(entry=name) if is_entry else DeviceFilter(id=name)
    if index == "*":
        return DeviceFilter(entry=entry)
    number, colon, partition = index.partition(":")
    return DeviceFilter(entry=entry, indices=(index_range(number),), partition=int(partition) if colon else None)


def _aim(model: schema.Select | None, entries: Collection[str]) -> DeviceSelection:
    if model is None:
        return DeviceSelection()
    common = DeviceFilter(
        entry=model.entry or "",
        indices=tuple(map(index_range, model.index)),
        id=model.id or "",
        resource=model.resource or "",
        profile=model.profile or "",
        numa=tuple(model.numa),
    )
    wants = tuple(wanted(name, entries) for name in model.names) or (common,)
    return DeviceSelection(filters=wants, count=model.count, pick=model.pick, share=model.share)


def _start(model: schema.FaultRule) -> Start:
    if model.on_allocate:
        return Start.ALLOCATE
    if model.on_file:
        return Start.FILE
    if model.manual:
        return Start.MANUAL
    return Start.START if model.since is schema.Since.START else Start.LOAD


def _health(model: schema.FaultRule, why: str) -> effects.SetHealth:
    healthy = model.health is schema.HealthWord.HEALTHY
    return effects.SetHealth(healthy=healthy, reason=model.reason or ("" if healthy else why))


def _api_spec(block: ApiFaults) -> effects.ApiFailure:
    after = None if block.retry_after is None else int(block.retry_after)
    verbs = [effects.ApiVerb.WATCH] if block.watch else block.verbs
    return effects.ApiFailure(block.status or 0, after, frozenset(verbs), frozenset(block.resources))


def _call_spec(model: schema.FaultRule) -> effects.Call:
    delay = effects.Delay(model.delay.p50, model.delay.max) if model.delay else None
    fail = effects.Fail(model.error.code, model.error.message) if model.error else None
    answer = _key(model.answer) if model.answer else ""
    return effects.Call(
        frozenset(model.rpc),
        delay,
        model.hang,
        fail,
        effects.FaultyAnswer(answer) if answer in set(effects.FaultyAnswer) else None,
        effects.FaultyClaims(answer) if answer in set(effects.FaultyClaims) else None,
        refuse=(model.answer and model.answer.claim_error) or "",
    )


def _key(block: Section) -> str:
    """The key that is given, or ""; that it must be exactly one is an error that `checks` reports."""
    return next(iter(block.given), "")


_EFFECTS: Mapping[str, Callable[[schema.FaultRule, Any], effects.Effect]] = {
    "xid": lambda rule, number: effects.Xid(
        number, None if rule.health is None and number in APPLICATION_ERRORS else _health(rule, described(number))
    ),
    "health": lambda rule, _: _health(rule, _TEXT),
    "flap": lambda rule, it: effects.Flap(up=it.up, down=it.down, reason=rule.reason or _TEXT),
    "remove": lambda rule, _: effects.Remove(drop_held=rule.drop),
    "drop": lambda _rule, _: effects.Remove(drop_held=True),
    "overheat": lambda _, it: effects.Overheat(float(it.to), it.within),
    "hardwareErrors": lambda _, it: effects.CountErrors(
        it.corrected_ecc, it.uncorrected_ecc, it.pcie_replays, it.remapped_rows
    ),
    "taint": lambda _, it: effects.SetTaint(it.key, it.value, it.effect.value),
    "rpc": lambda rule, _: _call_spec(rule),
    "register": lambda _, it: effects.Register(
        delay=it.delay or 0.0, never=it.never, version=it.version or "", twice=it.twice
    ),
    "stream": lambda _, it: effects.Stream(effects.StreamFault(_key(it) or "close"), rate=float(it.flood or 0)),
    "socket": lambda _, it: effects.Socket(effects.SocketFault(_key(it) or "delete")),
    "cdi": lambda _, it: effects.Cdi(effects.CdiFault(_key(it) or "missing"), it.late or 0.0),
    "podResources": lambda _rule, _: effects.PodResources(),
    "process": lambda _, it: effects.Process(it.exit),
    "event": lambda _, it: effects.NodeEvent(it.reason, it.message, warning=it.type is EventType.WARNING),
    "condition": lambda rule, it: effects.SetCondition(
        it.type, it.status, it.reason, it.message or f"the fault rule {rule.name!r} says so"
    ),
    "api": lambda _, it: _api_spec(it),
    "slices": lambda _, it: effects.Slices(effects.SliceFault(_key(it) or "withheld"), it.late or 0.0),
    "healthStream": lambda _, it: effects.HealthStream(effects.HealthStreamFault(_key(it) or "silent")),
}
"""What a key of a rule makes of its value; that a rule has one of them only is for `checks`, here the first counts."""
