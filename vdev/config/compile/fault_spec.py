"""Fault rules to the core's values."""

from collections.abc import Collection
from dataclasses import replace
from fnmatch import fnmatchcase

from ...core.model.faults import fault_effects as effects
from ...core.model.faults.fault_rules import (
    Chance,
    DeviceFilter,
    DeviceSelection,
    FaultRuleSpec,
    NodeSelection,
    Start,
    When,
)
from ...core.model.faults.xid import APPLICATION_ERRORS, described
from ...core.model.place import KeyPath
from ..document.loader import Document
from ..document.parser import Tree
from ..schema.faults import fault_section as schema
from ..schema.faults.node_faults import ApiFaults, EventType
from ..schema.scalars import index_range
from ..schema.section import Section

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
    effect = _effect(model)
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


def _effect(model: schema.FaultRule) -> effects.Effect | None:
    return _of_devices(model) or _of_the_plugin(model) or _of_the_node(model) or _of_drivers(model)


def _of_devices(model: schema.FaultRule) -> effects.Effect | None:  # noqa: PLR0911 - one return per kind
    if model.xid is not None:
        leaves = model.health is None and model.xid in APPLICATION_ERRORS
        return effects.Xid(model.xid, None if leaves else _health(model, described(model.xid)))
    if model.health is not None:
        return _health(model, _TEXT)
    if model.flap is not None:
        return effects.Flap(up=model.flap.up, down=model.flap.down, reason=model.reason or _TEXT)
    if model.remove or model.drop:
        return effects.Remove(drop_held=model.drop)
    if model.overheat is not None:
        return effects.Overheat(float(model.overheat.to), model.overheat.within)
    if (each := model.hardware_errors) is not None:
        return effects.CountErrors(each.corrected_ecc, each.uncorrected_ecc, each.pcie_replays, each.remapped_rows)
    if (taint := model.taint) is not None:
        return effects.SetTaint(taint.key, taint.value, taint.effect.value)
    return None


def _of_the_plugin(model: schema.FaultRule) -> effects.Effect | None:  # noqa: PLR0911 - one return per kind
    if model.rpc:
        return _call(model)
    if model.register_ is not None:
        each = model.register_
        return effects.Register(delay=each.delay or 0.0, never=each.never, version=each.version or "", twice=each.twice)
    if model.stream is not None:
        fault = effects.StreamFault(_key(model.stream) or "close")
        return effects.Stream(fault, rate=float(model.stream.flood or 0))
    if model.socket is not None:
        return effects.Socket(effects.SocketFault(_key(model.socket) or "delete"))
    if model.cdi is not None:
        return effects.Cdi(effects.CdiFault(_key(model.cdi) or "missing"), model.cdi.late or 0.0)
    if model.pod_resources is not None:
        return effects.PodResources()
    return effects.Process(model.process.exit) if model.process is not None else None


def _of_the_node(model: schema.FaultRule) -> effects.Effect | None:
    if model.event is not None:
        return effects.NodeEvent(model.event.reason, model.event.message, warning=model.event.type is EventType.WARNING)
    if model.condition is not None:
        it = model.condition
        message = it.message or f"the fault rule {model.name!r} says so"
        return effects.SetCondition(it.type, it.status, it.reason, message)
    return _api(model.api) if model.api is not None else None


def _of_drivers(model: schema.FaultRule) -> effects.Effect | None:
    if model.slices is not None:
        return effects.Slices(effects.SliceFault(_key(model.slices) or "withheld"), model.slices.late or 0.0)
    if model.health_stream is not None:
        return effects.HealthStream(effects.HealthStreamFault(_key(model.health_stream) or "silent"))
    return None


def _health(model: schema.FaultRule, why: str) -> effects.SetHealth:
    healthy = model.health is schema.HealthWord.HEALTHY
    return effects.SetHealth(healthy=healthy, reason=model.reason or ("" if healthy else why))


def _api(block: ApiFaults) -> effects.ApiFailure:
    after = None if block.retry_after is None else int(block.retry_after)
    verbs = [effects.ApiVerb.WATCH] if block.watch else block.verbs
    return effects.ApiFailure(block.status or 0, after, frozenset(verbs), frozenset(block.resources))


def _call(model: schema.FaultRule) -> effects.Call:
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
