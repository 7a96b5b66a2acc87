"""The state of the node that survives the kubelet process: its pods, and the numbers in its status.

Only `PodRecord.known` is reset when a process starts. The node status has capacity and allocatable of each resource. A
resource without a plugin remains, with zero devices. The scheduler calls `shortages` before it binds a pod, and the
kubelet calls `shortage` after Allocate, so a plugin may be called for a pod that is then rejected.
"""

import asyncio
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import Any

from ..device_manager.device_table import Capacity
from ..journal import Journal
from ..objects.pod_manifest import ManifestError, quantity
from ..objects.pods import ContainerClaim, ContainerStatus, Phase, PodSpec, PodStatus, pod_json, render_pod


@dataclass(slots=True, eq=False)
class PodRecord(PodStatus):
    """The mutable status of a pod, with internal state."""

    affinity: frozenset[int] | None = None  # the NUMA nodes to align with
    waits_for_devices: bool = False  # bind it only when the node has enough devices
    known: bool = False  # the current kubelet process knows it
    deleted: bool = False  # another pod may have its name
    sandbox: bool = False  # its claims have been prepared since the node booted
    noted: PodStatus | None = None  # the last status in the journal
    work: asyncio.Lock = field(default_factory=asyncio.Lock)  # held while the kubelet works on it

    @property
    def ended(self) -> bool:
        """Whether the pod has ended or is being deleted, so that its containers do not run."""
        return self.terminating or self.phase.terminal

    @property
    def waits(self) -> bool:
        return not (self.bound or self.ended or self.deleted)

    @property
    def is_new(self) -> bool:
        """Whether the pod is bound and the current kubelet process has not tried to admit it."""
        return self.bound and not self.known and not self.ended

    def stop_containers(self) -> None:
        for container in self.containers:
            container.running = False

    def container_claims(self, name: str) -> list[ContainerClaim]:
        uses = self.spec.container(name).claims
        found = [ContainerClaim(each, self.claims[each], request) for each, request in uses if each in self.claims]
        return found + (self.extended.uses(name) if self.extended else [])

    @property
    def claim_names(self) -> tuple[str, ...]:
        names = [*self.claims.values(), *([self.extended.name] if self.extended else [])]
        return tuple(dict.fromkeys(names))

    def status(self) -> PodStatus:
        """Return a copy of the pod's status."""
        shown = {each.name: getattr(self, each.name) for each in fields(PodStatus)}
        return PodStatus(**shown | {"containers": tuple(map(replace, self.containers))})


@dataclass(slots=True)
class PodStore:
    """All pods of the node by `namespace/name`, in order of creation."""

    journal: Journal
    records: dict[str, PodRecord] = field(default_factory=dict)

    def record(self, name: str, namespace: str) -> PodRecord:
        """Return a pod by name. Raises KeyError."""
        key = f"{namespace}/{name}"
        if key not in self.records:
            raise KeyError(f"no pod {key}; there are {sorted(self.records)}")
        return self.records[key]

    def active(self) -> list[PodRecord]:
        """Return the pods that the kubelet process knows and that have not ended. It may still be admitting one."""
        return [each for each in self.records.values() if each.known and not each.phase.terminal]

    def add(self, spec: PodSpec, affinity: frozenset[int] | None, *, waits_for_devices: bool) -> PodRecord:
        """Create a pod that waits for the scheduler. Raises ManifestError if the name exists."""
        if spec.key in self.records:
            raise ManifestError(f"pod {spec.key} exists already")
        record = PodRecord(
            spec,
            Phase.PENDING,
            containers=tuple(ContainerStatus(each.name, each.kind) for each in spec.containers),
            bound=False,
            affinity=affinity,
            waits_for_devices=waits_for_devices,
        )
        self.records[spec.key] = record
        return record

    def remove(self, pod: PodRecord) -> None:
        pod.deleted = True
        del self.records[pod.spec.key]
        name, namespace = pod.spec.name, pod.spec.namespace
        self.journal.note("podDeleted", "pod", f"{pod.spec.key} deleted", name=name, namespace=namespace)

    def note(self, pod: PodRecord) -> None:
        """Record a pod's status in the journal if it has changed. A deleted pod is not recorded."""
        status = pod.status()
        if status != pod.noted and not pod.deleted:
            pod.noted = status
            self.journal.note("pod", "pod", render_pod(status), **pod_json(status))


class NodeStatus:
    """Capacity and allocatable of the node. `capacity` has the quantities of native resources, such as pods and cpu."""

    def __init__(self, journal: Journal, capacity: Mapping[str, Any]) -> None:
        self.shown = Capacity({}, {})  # the numbers of plugin resources
        self._journal = journal
        self._native = {name: quantity(amount, f"capacity[{name}]") for name, amount in capacity.items()}

    def allocatable(self) -> dict[str, Fraction]:
        """Return the allocatable of all resources, including native ones."""
        return {**self._native, **{r: Fraction(n) for r, n in self.shown.allocatable.items()}}

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
