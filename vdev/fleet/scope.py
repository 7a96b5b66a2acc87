"""Which nodes of a cluster are a fleet's: those that it makes, and those of others that its file chooses."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..faults.effects import ApiFaults, ApiResource, ApiVerb
from ..faults.rules import DEVICE, FaultRule, Start
from ..model.entry import EntrySpec
from ..model.fleet import AT_ONCE, NO_FLEET, Delays, Fleet, FleetNodes
from ..model.names import filled
from ..model.problem import Problem, warning
from ..model.sources import VirtualSource
from ..model.spec import Spec
from ..planning.plan import NO_POOLS, DesiredState

MADE = "vdev.dev/made-by"
"""The label of Nodes that were made from a file, with the name of the fleet. Only these are ever removed."""
TOLD = "vdev.dev/fleet"
"""The annotation of Nodes that existed and on which a fleet writes, with its name. Only from these anything is taken
back.
"""
TAINTS = "vdev.dev/taints"
"""The annotation of Nodes that were made, with the taints that are ours."""
HOSTNAME = "kubernetes.io/hostname"
MAKER = "vdev-fleet"
"""What a fleet is called that has no other name, and the field manager of what is written to make Nodes."""


@dataclass(frozen=True, slots=True)
class MadeNode:
    """A Node to make: its name, and the numbers of it that its values may name."""

    name: str
    numbers: tuple[str, ...]
    of: FleetNodes
    fleet: str = MAKER

    def metadata(self) -> dict[str, Any]:
        """Its labels and annotations."""
        labels = {HOSTNAME: self.name, MADE: self.fleet, **self._filled(self.of.labels)}
        return {"labels": labels, "annotations": self._filled(self.of.noted)}

    def taints(self) -> list[dict[str, str]]:
        """Its taints."""
        return [
            {"key": each.key, "effect": each.effect} | ({"value": each.value} if each.value else {})
            for each in self.of.taints
        ]

    def document(self) -> dict[str, Any]:
        """The object to create."""
        return {"metadata": {"name": self.name, **self.metadata()}, "spec": {"taints": self.taints()}}

    def status(self) -> dict[str, Any]:
        """The part of its status that no device is of: all of the capacity is allocatable."""
        return {"capacity": dict(self.of.capacity), "allocatable": dict(self.of.capacity)} if self.of.capacity else {}

    def _filled(self, values: Mapping[str, str]) -> dict[str, str]:
        return {key: filled(text, self.name, self.numbers) for key, text in values.items()}


def made_nodes(spec: Fleet, fleet: str = MAKER) -> Iterator[MadeNode]:
    """All Nodes to make by the fleet of this name."""
    return (MadeNode(name, numbers, group, fleet) for group in spec.made for name, numbers in group.names)


Metadata = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Scope:
    """The nodes of the fleet of this name; with a `selector` only those that have its labels."""

    name: str = MAKER
    selector: Mapping[str, str] = field(default_factory=dict)
    spec: Fleet = NO_FLEET
    made: Mapping[str, MadeNode] = field(default_factory=dict)

    def after(self, spec: Fleet) -> "Scope":
        """The nodes that another file has."""
        made = {each.name: each for each in made_nodes(spec, self.name)}
        if self.selector:
            made = {name: each for name, each in made.items() if self.covers(each.metadata())}
        return Scope(self.name, self.selector, spec, made)

    def covers(self, metadata: Metadata) -> bool:
        """Whether a Node has the selector's labels: of others nothing is touched."""
        return self.selector.items() <= _labels(metadata).items()

    def is_made(self, metadata: Metadata) -> bool:
        """Whether this fleet made the Node."""
        return bool(_labels(metadata).get(MADE) == self.name)

    def is_marked(self, metadata: Metadata) -> bool:
        """Whether there is something of this fleet on a Node that it did not make."""
        return marked_by(metadata) == self.name

    def chooses(self, metadata: Metadata) -> bool:
        """Whether it is a Node of others that the file means, no matter who else writes on it."""
        return self.covers(metadata) and self._chosen(metadata) is not None

    def delays(self, name: str, metadata: Metadata) -> Delays | None:
        """When the node is told what; None where it is none of the fleet's."""
        if not self.covers(metadata):
            return None
        if (made := self.made.get(name)) is not None:
            return made.of.delays if self.is_made(metadata) else None
        return self._chosen(metadata) if marked_by(metadata) in {"", self.name} else None

    def _chosen(self, metadata: Metadata) -> Delays | None:
        labels = _labels(metadata)
        return next((each.delays for each in self.spec.nodes if each.includes(labels)), None)


EVERY_NODE = Scope()
"""Of a fleet that has no name of its own, before it has read a file."""


def marked_by(metadata: Metadata) -> str:
    """The fleet that writes on a Node which it did not make; empty where there is none."""
    return str((metadata.get("annotations") or {}).get(TOLD) or "")


def _labels(metadata: Metadata) -> Mapping[str, str]:
    return metadata.get("labels") or {}


def delayed(plan: DesiredState, delays: Delays, age: float | None) -> DesiredState:
    """The plan without what comes later on a node that has been Ready for `age` seconds; None: it is not Ready yet."""
    if delays == AT_ONCE:
        return plan
    return replace(
        plan,
        labels={} if is_early(delays.labels, age) else plan.labels,
        capacity={} if is_early(delays.devices, age) else plan.capacity,
        conditions=() if is_early(delays.devices, age) else plan.conditions,
        pools=NO_POOLS if is_early(delays.slices, age) else plan.pools,
    )


def next_age(delays: Delays, age: float | None) -> float | None:
    """The age at which more is told; None where nothing is left, or as long as the node is not Ready."""
    if age is None:
        return None
    return min((each for each in (delays.labels, delays.devices, delays.slices) if each > age), default=None)


def is_early(delay: float, age: float | None) -> bool:
    """Whether it is too early for something with this delay."""
    return delay > 0 and (age is None or age < delay)


_OF_A_KUBELET = frozenset({"rpc", "register", "stream", "socket", "process", "podResources", "cdi", "healthStream"})
_WRITES = frozenset({ApiVerb.CREATE, ApiVerb.UPDATE, ApiVerb.PATCH, ApiVerb.DELETE})


def without_effect(rule: FaultRule) -> str:
    """Why the rule does nothing on nodes without a kubelet; empty where it does something."""
    if rule.start is Start.FILE:
        return "it waits for a file of its node, and a node without a kubelet has none"
    if rule.api is not None and not _concerns_writes(rule.api):
        return "one controller reads for all nodes, so only writes can fail for some of them"
    return "no kubelet, plugin or container runs there" if rule.kind in _OF_A_KUBELET else ""


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
    if spec.faults.kernel_log and any(rule.kind == DEVICE for rule in spec.faults.rules):
        yield warning("faults.kernelLog", "nothing is written to it in a fleet: its nodes have no kernel")


def _concerns_writes(failure: ApiFaults) -> bool:
    """Of what is told of a node; claims are left to those who prepare them."""
    writes = not failure.of_verbs or not _WRITES.isdisjoint(failure.of_verbs)
    return writes and failure.resources != (ApiResource.RESOURCE_CLAIMS_STATUS,)
