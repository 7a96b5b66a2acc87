"""Which nodes of a cluster belong to a fleet: those that it creates, and those that a selector of its file chooses."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ..dra.published_devices import NO_POOLS
from ..faults.rules import DEVICE, OF_KUBELET, FaultRule
from ..model.fleet import Fleet, FleetNodes, NodeName, filled
from ..model.problem import Problem, warning
from ..model.spec import Spec
from ..planning.plan import DesiredState

MADE = "vdev.dev/made-by"
"""The label of Nodes that a fleet created, with its name. Only these are ever deleted."""
FLEET = "vdev.dev/fleet"
"""The annotation of other Nodes on which a fleet writes, with its name."""
TAINTS = "vdev.dev/taints"
"""The annotation of created Nodes with the taints of the fleet."""
HOSTNAME = "kubernetes.io/hostname"
MAKER = "vdev-fleet"
"""The default name of a fleet, and the field manager for what it writes to create Nodes."""


@dataclass(frozen=True)
class MadeNode:
    """A Node to create: its name, and the numbers in it, which its labels and annotations may contain."""

    name: str
    numbers: tuple[str, ...]
    of: FleetNodes
    fleet: str = MAKER

    @cached_property
    def metadata(self) -> Mapping[str, Any]:
        labels = {HOSTNAME: self.name, MADE: self.fleet, **self._filled(self.of.labels)}
        taints = json.dumps(self.taints(), separators=(",", ":"))
        return {"labels": labels, "annotations": {**self._filled(self.of.noted), TAINTS: taints}}

    def taints(self) -> list[dict[str, str]]:
        return [
            {"key": each.key, "effect": each.effect} | ({"value": each.value} if each.value else {})
            for each in self.of.taints
        ]

    def document(self) -> dict[str, Any]:
        return {"metadata": {"name": self.name, **self.metadata}, "spec": {"taints": self.taints()}}

    def _filled(self, values: Mapping[str, str]) -> dict[str, str]:
        known = NodeName(self.name, self.numbers).values
        return {key: filled(text, known) for key, text in values.items()}


Metadata = Mapping[str, Any]
NO_SELECTOR: Mapping[str, str] = {}


class Scope:
    """The nodes of the fleet of this name; with a `selector`, only those with its labels.

    `made` are the Nodes to create, by name.
    """

    def __init__(self, spec: Fleet, *, name: str = MAKER, selector: Mapping[str, str] = NO_SELECTOR) -> None:
        self.name = name
        self.made: dict[str, MadeNode] = {}
        self._spec = spec
        self._selector = selector
        for of in spec.made:
            for node, numbers in of.names:
                made = MadeNode(node, numbers, of, name)
                if not selector or self.covers(made.metadata):
                    self.made[node] = made

    def covers(self, metadata: Metadata) -> bool:
        """Whether a Node has the selector's labels. Other Nodes are never changed."""
        return self._selector.items() <= _labels(metadata).items()

    def is_made(self, metadata: Metadata) -> bool:
        """Whether this fleet created the Node and may change it."""
        return made_by(metadata) == self.name and self.covers(metadata)

    def is_marked(self, metadata: Metadata) -> bool:
        """Whether this fleet writes on a Node that it did not create, and may change it."""
        return marked_by(metadata) == self.name and self.covers(metadata)

    def item_chosen(self, metadata: Metadata) -> FleetNodes | None:
        """The item of the file that selects the Node, no matter which fleet writes on it; None if there is none."""
        labels = _labels(metadata)
        if not self.covers(metadata):
            return None
        return next((each for each in self._spec.nodes if each.includes(labels)), None)


def made_by(metadata: Metadata) -> str:
    """The fleet that created a Node; empty if none did."""
    return str(_labels(metadata).get(MADE) or "")


def marked_by(metadata: Metadata) -> str:
    """The fleet that writes on a Node without having created it; empty if none does."""
    return str((metadata.get("annotations") or {}).get(FLEET) or "")


def _labels(metadata: Metadata) -> Mapping[str, str]:
    return metadata.get("labels") or {}


def delayed(plan: DesiredState, item: FleetNodes, age: float | None) -> tuple[DesiredState, float | None]:
    """The plan without its delayed parts, on a node that has been Ready for `age` seconds (None: it is not).

    Also returns the seconds until the next delay ends; None if none is left, or the node is not Ready.
    """

    def is_early(delay: float) -> bool:
        return delay > 0 and (age is None or age < delay)

    labels, devices = item.labels_after, item.devices_after
    slices = devices if item.slices_after is None else item.slices_after
    due = replace(
        plan,
        labels={} if is_early(labels) else plan.labels,
        capacity={} if is_early(devices) else plan.capacity,
        conditions=() if is_early(devices) else plan.conditions,
        pools=NO_POOLS if is_early(slices) else plan.pools,
    )
    waits = [each - age for each in (labels, devices, slices) if age is not None and each > age]
    return due, min(waits, default=None)


_WRITES = frozenset({"create", "update", "patch", "delete"})


def without_effect(rule: FaultRule) -> str:
    """Why the rule has no effect on nodes without a kubelet; empty if it has one."""
    if rule.on_file:
        return "it waits for a file of its node, and a node without a kubelet has none"
    # Only writes about the nodes can fail. The status of claims is written by DRA drivers only.
    if (api := rule.api) is not None:
        has_writes = not api.of_verbs or not _WRITES.isdisjoint(api.of_verbs)
        if not has_writes or api.resources == ("resourceclaims/status",):
            return "one controller reads for all nodes, so only writes can fail for some of them"
    return "no kubelet, plugin or container runs there" if rule.kind in OF_KUBELET else ""


def warnings(spec: Spec) -> Iterator[Problem]:
    """Warnings about settings that have no effect in a fleet."""
    for entry in spec.entries:
        if entry.virtual is None:
            message = f"the devices of {entry.name} are real, and a node without a kubelet has no real devices"
            yield warning(entry.where, message)
    for rule in spec.faults.rules:
        if why := without_effect(rule):
            yield warning(rule.where, f"the fault rule {rule.name!r} does nothing in a fleet: {why}")
    if spec.faults.kernel_log and any(rule.kind == DEVICE for rule in spec.faults.rules):
        yield warning("faults.kernelLog", "nothing is written to it in a fleet: its nodes have no kernel")
