"""The pods of the node, with their state in the API server and in the container runtime.

Records survive the kubelet process. Only `known` is reset when a process starts.
"""

import asyncio
from dataclasses import dataclass, field, fields, replace

from ..journal import Journal
from ..objects.pod_manifest import ManifestError
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
        """Whether the pod waits for the scheduler."""
        return not (self.bound or self.ended or self.deleted)

    @property
    def is_new(self) -> bool:
        """Whether the pod is bound and the current kubelet process has not tried to admit it."""
        return self.bound and not self.known and not self.ended

    def stop_containers(self) -> None:
        for container in self.containers:
            container.running = False

    def container_claims(self, name: str) -> list[ContainerClaim]:
        """Return the claims that a container uses."""
        uses = self.spec.container(name).claims
        found = [ContainerClaim(each, self.claims[each], request) for each, request in uses if each in self.claims]
        return found + (self.extended.uses(name) if self.extended else [])

    @property
    def claim_names(self) -> tuple[str, ...]:
        """The names of all claims of the pod."""
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
        """Remove a deleted pod."""
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

    def uses(self, uid: str, container: str) -> bool:
        """Whether a container uses its devices or will use them: neither it nor its pod has ended."""
        pod = next((each for each in self.records.values() if each.uid == uid), None)
        if pod is None or pod.phase.terminal:
            return False
        return not any(each.done for each in pod.containers if each.name == container)
