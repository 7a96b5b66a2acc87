"""The pods of the node as records that change: what the API server and the container runtime know of them.

Records outlive the kubelet process, as the real ones do; `known` is reset when a process starts.
"""

from dataclasses import dataclass, field, replace

from ..dra.control_plane import Bound
from ..journal import Journal
from ..objects.pod_manifest import ManifestError
from ..objects.pods import ContainerClaim, ContainerStatus, Phase, PodSpec, PodStatus
from ..render import pod_json, render_pod


@dataclass(slots=True)
class PodRecord:
    """One pod as the API server knows it. `known` once the current kubelet process has learned of it, `admitted`
    once that or an earlier one has taken it on. `bound` says that the pod has its node, `claims` what claims it has
    then, and `terminating` that it was deleted and waits for its claims to be unprepared. `sandbox`: its claims were
    prepared since the node booted.
    `waits_for_devices`: it is not bound before the node has enough devices for it. `queued`: the scheduler may try it,
    since the caller that made it has tried it.
    """

    spec: PodSpec
    affinity: frozenset[int] | None
    containers: list[ContainerStatus]
    phase: Phase = Phase.PENDING
    reason: str = ""
    message: str = ""
    known: bool = False
    admitted: bool = False
    bound: bool = True
    claims: Bound | None = None
    terminating: bool = False
    sandbox: bool = False
    waits_for_devices: bool = False
    queued: bool = False
    gone: bool = False
    told: PodStatus | None = None

    def container_claims(self, name: str) -> list[ContainerClaim]:
        """What a container uses of the pod's claims."""
        if self.claims is None:
            return []
        uses = self.spec.container(name).claims
        found = [ContainerClaim(claim, self.claims.claims[claim], request) for claim, request in uses]
        return found + (self.claims.extended.uses(name) if self.claims.extended else [])

    def container(self, name: str | None) -> ContainerStatus:
        """The container of that name, or the first app container. KeyError with the names there are."""
        wanted = self.status().container(name).name
        return next(container for container in self.containers if container.name == wanted)

    def tell(self, journal: Journal) -> None:
        """Record the pod's status if it has changed; after its end there is nothing to record."""
        status = self.status()
        if status != self.told and not self.gone:
            self.told = status
            journal.note("pod", "pod", render_pod(status), **pod_json(status))

    def tell_deleted(self, journal: Journal) -> None:
        """Record that the pod is gone."""
        self.gone = True
        name, namespace = self.spec.name, self.spec.namespace
        journal.note("podDeleted", "pod", f"{self.spec.key} deleted", name=name, namespace=namespace)

    def status(self) -> PodStatus:
        """As a frozen value."""
        claims = self.claims or Bound({})
        return PodStatus(
            self.spec,
            self.phase,
            self.reason,
            self.message,
            tuple(replace(container) for container in self.containers),
            self.terminating,
            bound=self.bound,
            claims=claims.claims,
            extended=claims.extended,
            admitted=self.admitted,
        )


@dataclass(slots=True)
class PodStore:
    """All pods of the node, by `namespace/name`, in the order of their creation."""

    records: dict[str, PodRecord] = field(default_factory=dict)

    def record(self, name: str, namespace: str) -> PodRecord:
        """The pod of that name. KeyError with the pods there are."""
        key = f"{namespace}/{name}"
        if key not in self.records:
            raise KeyError(f"no pod {key}; there are {sorted(self.records)}")
        return self.records[key]

    def active(self) -> list[PodSpec]:
        """Pods that the kubelet process knows and that have not ended, including the one being admitted."""
        return [r.spec for r in self.records.values() if r.known and not r.phase.terminal]

    def add(
        self, spec: PodSpec, affinity: frozenset[int] | None, *, bound: bool = True, waits_for_devices: bool = False
    ) -> PodRecord:
        """Create a pod, which waits for the scheduler if not `bound`. Raises ManifestError if the name is taken."""
        if spec.key in self.records:
            raise ManifestError(f"pod {spec.key} exists already")
        containers = [ContainerStatus(container.name, container.kind) for container in spec.containers]
        record = PodRecord(spec, affinity, containers, bound=bound, waits_for_devices=waits_for_devices)
        self.records[spec.key] = record
        return record

    def forget(self) -> None:
        """Mark all pods as unknown to a kubelet process that starts."""
        for record in self.records.values():
            record.known = False

    def unknown(self) -> PodRecord | None:
        """The oldest pod of this node that has not ended and that the kubelet process does not know."""
        waits = (r for r in self.records.values() if r.bound and not r.known and not r.phase.terminal)
        return next((record for record in waits if not record.terminating), None)

    def waiting(self) -> list[PodRecord]:
        """The pods that wait for the scheduler."""
        return [record for record in self.records.values() if record.queued and self.waits(record)]

    def waits(self, pod: PodRecord) -> bool:
        """Whether a pod waits for the scheduler; one that was deleted does not."""
        is_there = self.records.get(pod.spec.key) is pod
        return is_there and not pod.bound and not pod.phase.terminal and not pod.terminating

    def container_claims(self, uid: str, container: str) -> list[ContainerClaim]:
        """What a container uses of its pod's claims."""
        pod = self.of_uid(uid)
        return [] if pod is None else pod.container_claims(container)

    def uses(self, uid: str, container: str) -> bool:
        """Whether this container uses its devices or still may: its pod has not ended, nor has it as an init container.

        The pod need not be admitted yet.
        """
        pod = self.of_uid(uid)
        if pod is None or pod.phase.terminal:
            return False
        return not any(each.done for each in pod.containers if each.name == container)

    def of_uid(self, uid: str) -> PodRecord | None:
        """The record of a pod by its UID."""
        return next((record for record in self.records.values() if record.spec.uid == uid), None)
