"""Which nodes of a cluster are a fleet's: those that it makes, and those of others that its file chooses."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..spec import NO_FLEET, Delays, FleetSpec
from .made import MADE, MAKER, TOLD, MadeNode, made_nodes

Metadata = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Scope:
    """The nodes of the fleet of this name; with a `selector` only those that have its labels."""

    name: str = MAKER
    selector: Mapping[str, str] = field(default_factory=dict)
    spec: FleetSpec = NO_FLEET
    made: Mapping[str, MadeNode] = field(default_factory=dict)

    def after(self, spec: FleetSpec) -> "Scope":
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
        return next((each.delays for each in self.spec.chosen if each.includes(labels)), None)


EVERY_NODE = Scope()
"""Of a fleet that has no name of its own, before it has read a file."""


def marked_by(metadata: Metadata) -> str:
    """The fleet that writes on a Node which it did not make; empty where there is none."""
    return str((metadata.get("annotations") or {}).get(TOLD) or "")


def _labels(metadata: Metadata) -> Mapping[str, str]:
    return metadata.get("labels") or {}
