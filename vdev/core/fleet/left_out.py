"""What a file has that means nothing on nodes without a kubelet, and why: real devices, and some fault rules."""

from collections.abc import Iterator

from ..model.faults.fault_effects import ApiFailure, ApiResource, ApiVerb, FaultKind
from ..model.faults.fault_rules import FaultRuleSpec, Start
from ..model.problem import Problem, warning
from ..spec import EntrySpec, Spec, VirtualSource

_NO_PLUGIN = "no device plugin runs on a node without a kubelet"
_NO_KUBELET = "no kubelet calls anything on such a node"
_WITHOUT = {
    FaultKind.RPC: _NO_KUBELET,
    FaultKind.REGISTER: _NO_PLUGIN,
    FaultKind.STREAM: _NO_PLUGIN,
    FaultKind.SOCKET: _NO_PLUGIN,
    FaultKind.PROCESS: _NO_PLUGIN,
    FaultKind.POD_RESOURCES: "no kubelet answers on such a node, and pods tell who holds what",
    FaultKind.CDI: "no container starts on a node without a kubelet, so no CDI file is written",
    FaultKind.HEALTH_STREAM: _NO_KUBELET,
}
_WRITES = frozenset({ApiVerb.CREATE, ApiVerb.UPDATE, ApiVerb.PATCH, ApiVerb.DELETE})


def without_effect(rule: FaultRuleSpec) -> str:
    """Why the rule does nothing on nodes without a kubelet; empty where it does something."""
    if rule.when.start is Start.FILE:
        return "it waits for a file of its node, and a node without a kubelet has none"
    if isinstance(rule.effect, ApiFailure) and not _concerns_writes(rule.effect):
        return "one controller reads for all nodes, so only writes can fail for some of them"
    return _WITHOUT.get(rule.kind, "")


def is_real(entry: EntrySpec) -> bool:
    """Whether its devices are those of a host."""
    return not isinstance(entry.source, VirtualSource)


def warnings(spec: Spec) -> Iterator[Problem]:
    """A warning for each thing that does nothing in a fleet."""
    for entry in filter(is_real, spec.entries):
        message = f"the devices of {entry.name} are real, and a node without a kubelet has none of them"
        yield warning(entry.where, message)
    for rule in spec.faults.rules:
        if why := without_effect(rule):
            yield warning(rule.where, f"the fault rule {rule.name!r} does nothing in a fleet: {why}")
    if spec.faults.kernel_log and any(rule.kind is FaultKind.DEVICE for rule in spec.faults.rules):
        yield warning("faults.kernelLog", "nothing is written to it in a fleet: its nodes have no kernel")


def _concerns_writes(failure: ApiFailure) -> bool:
    """Of what is told of a node; claims are left to those who prepare them."""
    return any(verb in _WRITES and of is not ApiResource.RESOURCE_CLAIMS_STATUS for verb, of in failure.requests)
