"""What fault rules do, in words for people."""

from typing import assert_never

from ..model.faults import fault_effects as effects
from ..model.faults.fault_rules import ALWAYS, Chance, FaultRuleSpec
from ..model.faults.xid import described

_OF_SLICES = {
    effects.SliceFault.WITHHELD: "changes are not written",
    effects.SliceFault.INCOMPLETE: "the pool has one less than it says",
    effects.SliceFault.OLD_GENERATION: "one of an older generation is left",
    effects.SliceFault.DUPLICATE_NAME: "one device is in two of them",
    effects.SliceFault.WIPED: "all are deleted",
}


def words(rule: FaultRuleSpec) -> str:
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
