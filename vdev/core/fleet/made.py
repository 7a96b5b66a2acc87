"""The objects of Nodes that a file makes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..model.syntax.name_range import filled
from ..spec import FleetSpec, MadeNodes

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
    of: MadeNodes
    fleet: str = MAKER

    def metadata(self) -> dict[str, Any]:
        """Its labels and annotations."""
        labels = {HOSTNAME: self.name, MADE: self.fleet, **self._filled(self.of.labels)}
        return {"labels": labels, "annotations": self._filled(self.of.annotations)}

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


def made_nodes(spec: FleetSpec, fleet: str = MAKER) -> Iterator[MadeNode]:
    """All Nodes to make by the fleet of this name."""
    return (MadeNode(name, numbers, group, fleet) for group in spec.made for name, numbers in group.names)
