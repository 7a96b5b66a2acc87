"""The node status: how much of each resource the node shows, as the API server would have it.

It outlives the kubelet process. A resource that plugins no longer offer stays, with zero devices.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from ..journal import Journal, NodeChanged
from ..objects.node_devices import Capacity
from ..objects.pod_manifest import quantity


class NodeStatus:
    """Capacity and allocatable of the node. `capacity` are the quantities of what no plugin offers, as pods and cpu."""

    def __init__(self, journal: Journal, capacity: Mapping[str, Any]) -> None:
        self.shown = Capacity({}, {})  # the plugins' resources alone
        self._journal = journal
        self._native = {name: quantity(amount, f"capacity[{name}]") for name, amount in capacity.items()}

    def allocatable(self) -> dict[str, Decimal]:
        """Everything that predicates count: plugins' resources and the others."""
        return {**self._native, **{r: Decimal(n) for r, n in self.shown.allocatable.items()}}

    def reset(self) -> None:
        """Show zero of every plugin resource, as a kubelet that starts without a checkpoint does."""
        zeros = dict.fromkeys(self.shown.capacity, 0)
        self._show(Capacity(zeros, zeros))

    def follow(self, seen: Capacity) -> bool:
        """Show what the device manager sees; returns whether it gave up resources, which the node shows as zero."""
        zeros = dict.fromkeys(seen.removed, 0)
        capacity = {**self.shown.capacity, **seen.capacity, **zeros}
        self._show(Capacity(capacity, {**self.shown.allocatable, **seen.allocatable, **zeros}))
        return bool(seen.removed)

    def _show(self, node: Capacity) -> None:
        if (node.capacity, node.allocatable) != (self.shown.capacity, self.shown.allocatable):
            self.shown = node
            self._journal.note(NodeChanged(node))
