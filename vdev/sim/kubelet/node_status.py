"""The node status (capacity and allocatable of each resource), and checks whether a pod fits the node.

The status survives the kubelet process. A resource without a plugin remains, with zero devices. The scheduler calls
`shortages` before it binds a pod, and the kubelet calls `shortage` after Allocate, so a plugin may be called for a pod
that is then rejected.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from ..device_manager.device_table import Capacity
from ..journal import Journal
from ..objects.pod_manifest import quantity


class NodeStatus:
    """Capacity and allocatable of the node. `capacity` has the quantities of native resources, such as pods and cpu."""

    def __init__(self, journal: Journal, capacity: Mapping[str, Any]) -> None:
        self.shown = Capacity({}, {})  # the numbers of plugin resources
        self._journal = journal
        self._native = {name: quantity(amount, f"capacity[{name}]") for name, amount in capacity.items()}

    def allocatable(self) -> dict[str, Fraction]:
        """Return the allocatable of all resources, including native ones."""
        return {**self._native, **{r: Fraction(n) for r, n in self.shown.allocatable.items()}}

    def reset(self) -> None:
        """Set all plugin resources to zero, like a kubelet that starts without a checkpoint."""
        self.update(Capacity({}, {}), removed=self.shown.capacity)

    def update(self, seen: Capacity, *, removed: Iterable[str]) -> None:
        """Take the device manager's numbers. Removed resources become zero."""
        zeros, before = dict.fromkeys(removed, 0), self.shown
        self.shown = node = Capacity(
            {**before.capacity, **seen.capacity, **zeros}, {**before.allocatable, **seen.allocatable, **zeros}
        )
        rows = []
        capacity, allocatable = {}, {}
        for resource, count in sorted(node.capacity.items()):
            free = node.allocatable.get(resource, 0)
            old = before.capacity.get(resource), before.allocatable.get(resource, 0)
            if (count, free) != old:
                capacity[resource], allocatable[resource] = count, free
                was = f" (was {old[0]} and {old[1]})" if resource in before.capacity else ""
                rows.append(f"{resource}  capacity {count}, allocatable {free}{was}")
        if rows:
            self._journal.note("node", "node", "\n".join(rows), capacity=capacity, allocatable=allocatable)

    def shortage(
        self, requested: Mapping[str, Fraction], others: Iterable[Mapping[str, Fraction]], *, held: Mapping[str, int]
    ) -> tuple[str, str] | None:
        """Return reason and message for the first resource that is insufficient for a pod beside others, or None.

        `held` has the numbers of allocated devices. Allocatable counts as at least this number, so that a restarted pod
        is admitted without its plugin. A resource that is not in the node status is not checked.
        """
        allocatable = {name: max(amount, Fraction(held.get(name, 0))) for name, amount in self.allocatable().items()}
        for resource, wanted, used in shortages(requested, others, allocatable):
            scale = 1000 if resource == "cpu" else 1
            request, use, capacity = (round(each * scale) for each in (wanted, used, allocatable[resource]))
            text = f"{resource}, requested: {request}, used: {use}, capacity: {capacity}"
            return f"OutOf{resource}", f"Node didn't have enough resource: {text}"
        return None


def shortages(
    requested: Mapping[str, Fraction], others: Iterable[Mapping[str, Fraction]], allocatable: Mapping[str, Fraction]
) -> Iterator[tuple[str, Fraction, Fraction]]:
    """Yield the resources that are insufficient for a pod, with its request and the sum of the other pods' requests."""
    rows = list(others)
    for resource, wanted in requested.items():
        used = sum((row.get(resource, Fraction(0)) for row in rows), Fraction(0))
        if wanted and wanted + used > allocatable.get(resource, math.inf):
            yield resource, wanted, used
