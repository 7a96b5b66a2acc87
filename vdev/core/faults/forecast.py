"""What fault rules will do to a node, and when, for people who want to know it in advance."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

from ..inventory.resources import Inventory
from ..model.faults import fault_effects as effects
from ..model.faults.fault_rules import ALWAYS, Chance, FaultRuleSpec, FaultSpec, Start
from ..model.faults.xid import described
from .schedule import Dice, Firing, on_node, spans
from .targets import names, select

_MOST = 1000  # happenings of one rule
_OF_SLICES = {
    effects.SliceFault.WITHHELD: "changes are not written",
    effects.SliceFault.INCOMPLETE: "the pool has one less than it says",
    effects.SliceFault.OLD_GENERATION: "one of an older generation is left",
    effects.SliceFault.DUPLICATE_NAME: "one device is in two of them",
    effects.SliceFault.WIPED: "all are deleted",
}


@dataclass(frozen=True, slots=True, order=True)
class ForecastEvent:
    """One thing that happens, `at` seconds from the start: a rule `begins`, `ends`, or `strikes` for a moment."""

    at: float
    rule: str
    event: str
    kind: str
    what: str
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Forecast:
    """What happens in order of time; which rules wait, and for what; which are for other nodes, and which mean no
    device.
    """

    happenings: tuple[ForecastEvent, ...] = ()
    waiting: tuple[tuple[str, str], ...] = ()
    elsewhere: tuple[str, ...] = ()
    without_device: tuple[str, ...] = ()


def forecast(faults: FaultSpec, node: str, inventory: Inventory, until: float) -> Forecast:
    """The faults of a node that starts at time 0 and has these devices, up to that time in seconds."""
    dice = Dice(faults.seed, node)
    happenings: list[ForecastEvent] = []
    waiting, elsewhere, without = [], [], []
    for rule in faults.rules:
        devices = names(select(rule, inventory, dice)) if rule.kind is effects.FaultKind.DEVICE else ()
        if not on_node(rule.nodes, rule.name, dice):
            elsewhere.append(rule.name)
        elif rule.kind is effects.FaultKind.DEVICE and not devices:
            without.append(rule.name)
        elif rule.triggered:
            waiting.append((rule.name, f"{_trigger(rule)}, then {words(rule)}"))
        else:
            happenings += _happenings(rule, dice, devices, until)
    return Forecast(tuple(sorted(happenings)), tuple(waiting), tuple(elsewhere), tuple(without))


def _happenings(rule: FaultRuleSpec, dice: Dice, devices: tuple[str, ...], until: float) -> Iterator[ForecastEvent]:
    kind, what = rule.kind.value, words(rule)
    for number, span in enumerate(spans(rule, dice, Firing(0.0), -1.0)):
        if span.start > until or number >= _MOST:
            return
        if span.real:
            if rule.momentary:
                yield ForecastEvent(span.start, rule.name, "strikes", kind, what, devices)
                continue
            yield ForecastEvent(span.start, rule.name, "begins", kind, what, devices)
            if span.end <= until:
                yield ForecastEvent(span.end, rule.name, "ends", kind, what, devices)


def words(rule: FaultRuleSpec) -> str:
    """What a rule does, in a few words."""
    where = "" if rule.resource == "*" else f" of {rule.resource}"
    match rule.effect:
        case effects.SetHealth() as health:
            return _health(health)
        case effects.Xid() as error:
            return _xid(error)
        case effects.Flap(up=up, down=down, reason=reason):
            return f"Unhealthy, up {up:g} s and down {down:g} s in turns: {reason}"
        case effects.Remove(drop_held=drop):
            return "dropped from the list, held or not" if drop else "unplugged"
        case effects.Call() as call:
            calls = " and ".join(sorted(call.rpcs))
            return f"{_which(rule.chance)} {calls}{where} {_call(call)}"
        case effects.Register(never=True):
            return f"no registration{where}"
        case effects.Register(twice=True):
            return f"every registration{where} is made twice"
        case effects.Register(delay=delay, version=version):
            return (
                f"registrations{where} name version {version}"
                if version
                else f"registrations{where} come {delay:g} s late"
            )
        case effects.Stream(fault=fault, rate=rate):
            return f"device list{where}: {fault.value}{f' {rate:g} times a second' if rate else ''}"
        case effects.Socket(fault=fault):
            return f"socket{where}: {fault.value}d"
        case effects.Cdi(fault=fault, delay=delay):
            return f"CDI file{where}: {fault.value}{f' by {delay:g} s' if delay else ''}"
        case effects.PodResources():
            return "PodResources API does not answer"
        case effects.Process(exit=code):
            return f"the process ends with exit code {code}"
        case effects.NodeEvent(reason=reason, message=message, warning=bad):
            return f"{'Warning' if bad else 'Normal'} Event {reason}: {message}"
        case effects.SetCondition() as each:
            return f"condition {each.type} is {each.status}: {each.reason}: {each.message}"
        case effects.ApiFailure() as failure:
            return f"{_which(rule.chance)} the API server{_requests(failure)} {_answer(failure)}"
        case effects.SetTaint(key=key, value=value, effect=effect):
            return f"taint {key}{f'={value}' if value else ''}:{effect}"
        case effects.Overheat(to=to, within=within):
            return f"heated to {to:g} °C within {within:g} s"
        case effects.CountErrors() as errors:
            return f"counts {_errors(errors)} a minute"
        case effects.Slices(fault=effects.SliceFault.LATE, delay=delay):
            return f"ResourceSlices{where}: changes are written {delay:g} s late"
        case effects.Slices(fault=fault):
            return f"ResourceSlices{where}: {_OF_SLICES[fault]}"
        case effects.HealthStream(fault=fault):
            silent = fault is effects.HealthStreamFault.SILENT
            return f"health streams{where} {'say nothing more' if silent else 'end'}"
        case _:
            assert_never(rule.effect)


def _health(effect: effects.SetHealth) -> str:
    return f"{'Healthy' if effect.healthy else 'Unhealthy'}{f': {effect.reason}' if effect.reason else ''}"


def _errors(errors: effects.CountErrors) -> str:
    counts = {
        "corrected ECC errors": errors.corrected,
        "uncorrected ECC errors": errors.uncorrected,
        "PCIe replays": errors.replays,
        "remapped rows": errors.remapped,
    }
    return " and ".join(f"{number:g} {what}" for what, number in counts.items() if number)


def _xid(error: effects.Xid) -> str:
    what = described(error.number)
    if error.health is None:
        return f"{what}; the health stays as it is"
    return _health(error.health) if error.health.reason == what else f"{what}; {_health(error.health)}"


def _requests(failure: effects.ApiFailure) -> str:
    parts = (" or ".join(sorted(failure.verbs)), " or ".join(sorted(failure.resources)))
    named = " of ".join(filter(None, parts))
    return f" ({named})" if named else ""


def _answer(failure: effects.ApiFailure) -> str:
    wait = "" if failure.after is None else f", to try again after {failure.after} s"
    return f"gets the status {failure.status}{wait}" if failure.status else "gets no answer"


def _which(chance: Chance) -> str:
    if chance.nth:
        return f"call {', '.join(map(str, chance.nth))} to"
    if chance.every_nth > 1:
        return f"every {chance.every_nth}th call to"
    return "each call to" if chance.probability >= ALWAYS else f"{chance.probability:.0%} of the calls to"


def _call(call: effects.Call) -> str:
    parts = []
    if call.delay is not None:
        middle = f"about {call.delay.median:g} s, at most " if call.delay.median < call.delay.most else ""
        parts.append(f"waits {middle}{call.delay.most:g} s")
    if call.hang:
        parts.append("hangs")
    if call.fail is not None:
        parts.append(f"fails with {call.fail.code.value}: {call.fail.message}")
    if call.refuse:
        parts.append(f"refuses each claim: {call.refuse}")
    if wrong := call.faulty_answer or call.faulty_claims:
        parts.append(f"gets a wrong answer ({wrong.value})")
    return ", then ".join(parts)


def _trigger(rule: FaultRuleSpec) -> str:
    match rule.when.start:
        case Start.ALLOCATE:
            return "waits until a pod is given one of its devices"
        case Start.FILE:
            return f"waits for the file {rule.when.file}"
        case Start.MANUAL:
            return f"waits for vdev fault trigger {rule.name}"
        case Start.LOAD | Start.START:
            return "waits for nothing"
        case _:
            assert_never(rule.when.start)
