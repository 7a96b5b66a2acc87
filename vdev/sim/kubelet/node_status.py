"""The node status: capacity and allocatable of each resource; and the checks whether a pod fits it.

The status outlives the kubelet process. A resource without a plugin stays, with zero devices. The scheduler asks
`shortages` before it binds a pod, and the kubelet asks `shortage` after Allocate, so a plugin may be called for a pod
that is rejected.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from ..device_manager.device_table import Capacity
from ..journal import Journal
from ..objects.pod_manifest import quantity


class NodeStatus:
    """Capacity and allocatable of the node. `capacity` has the quantities of other resources, such as pods and cpu."""

    def __init__(self, journal: Journal, capacity: Mapping[str, Any]) -> None:
        self.shown = Capacity({}, {})  # of the plugins' resources
        self._journal = journal
        self._native = {name: quantity(amount, f"capacity[{name}]") for name, amount in capacity.items()}

    def allocatable(self) -> dict[str, Fraction]:
        """The allocatable of all resources."""
        return {**self._native, **{r: Fraction(n) for r, n in self.shown.allocatable.items()}}

    def reset(self) -> None:
        """Set all plugin resources to zero, as a kubelet that starts without a checkpoint does."""
        self.update(Capacity({}, {}, frozenset(self.shown.capacity)))

    def update(self, seen: Capacity) -> bool:
        """Show the device manager's numbers; returns whether resources were removed, which are shown as zero."""
        zeros, before = dict.fromkeys(seen.removed, 0), self.shown
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
        return bool(seen.removed)

    def shortage(
        self, requested: Mapping[str, Fraction], others: Iterable[Mapping[str, Fraction]], *, held: Mapping[str, int]
    ) -> tuple[str, str] | None:
        """Reason and message for the first resource that is not enough for a pod beside other pods, or None.

        `held` is the number of allocated devices. Allocatable counts as at least that, so that a restarted pod is
        admitted without its plugin. A resource that is not in the node status is not checked.
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
    """The resources among `allocatable` that are not enough for a pod, with its request and that of the other pods."""
    rows = list(others)
    for resource, wanted in requested.items():
        used = sum((row.get(resource, Fraction(0)) for row in rows), Fraction(0))
        if wanted and wanted + used > allocatable.get(resource, math.inf):
            yield resource, wanted, used
