"""Rules whose effect the node's side of the configuration does not let anybody see."""

from ..model.faults.fault_effects import ApiFailure, CountErrors, NodeEvent, Overheat, SetCondition
from ..model.faults.fault_rules import FaultRuleSpec
from ..spec import NO_FLEET, LabelOutput, Spec


def unheard(rule: FaultRuleSpec, spec: Spec) -> tuple[str, str]:
    """Why nobody sees what the rule does, and what to do about it; empty where it is seen."""
    if rule.of_claims_alone and not _claims(spec):
        return "no claim can get a device, so the rule has no effect", "add dra to advertise of an entry"
    match rule.effect:
        case NodeEvent() if not spec.node.events:
            return "no Events are written, so the rule has no effect", "set node.events to true"
        case SetCondition() if not spec.node.conditions:
            return "no conditions are written, so the rule has no effect", "set node.conditions to true"
        case Overheat() | CountErrors() if not spec.telemetry.on:
            return "nothing shows what devices measure, so the rule has no effect", "give telemetry, such as {}"
        case ApiFailure() if not _asks(spec):
            hint = "set one of node.labels, events, conditions and status to true, or advertise devices by dra"
            return "nothing but the choice of a file by the node's label asks the API server", hint
    return "", ""


def _asks(spec: Spec) -> bool:
    """Whether the configuration lets anything be asked of the API server."""
    node = spec.node
    if spec.fleet != NO_FLEET or node.labels is LabelOutput.NODE or node.events or node.conditions or node.status:
        return True
    return any(entry.choice for entry in spec.entries) or _claims(spec)


def _claims(spec: Spec) -> bool:
    """Whether claims can get devices."""
    return any(entry.dra for entry in spec.entries)
