"""Claims in the life of a pod: the scheduler's work before the kubelet's, prepare before its containers, and the end.

What fails is tried again by the kubelet's clock: a pod whose claims cannot be prepared waits, one whose claims cannot
be unprepared stays Terminating.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from decimal import Decimal

from ..dra.allocator import UnschedulableError
from ..dra.api_objects import ApiObjectError
from ..dra.claim_manager import ClaimsError, PodClaims
from ..dra.control_plane import Bound, Cluster
from ..dra.dynamic_resources import DynamicResources
from ..journal import Event, Journal
from ..lint import Finding
from ..objects.pods import Kind, PodSpec
from .pod_records import ContainerRecord, PodRecord, PodStore

WAITING_REASON = "ContainerCreating"


class Scheduling:
    """Binds pods that need claims to the node. `allocatable` is the node status."""

    def __init__(
        self,
        cluster: Cluster,
        store: PodStore,
        *,
        journal: Journal,
        allocatable: Callable[[], Mapping[str, Decimal]],
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._journal = journal
        self._allocatable = allocatable
        self._lock = asyncio.Lock()
        self._changed = asyncio.Event()
        self._seen: list[Finding] = []
        self.wake: Callable[[], None] = self._changed.set

    async def bound(self) -> AsyncIterator[PodRecord]:
        """The pods that waited, each when it was bound; looks at slices on the way, at every change of an object."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            with contextlib.suppress(ApiObjectError):
                await self._cluster.look()
            for pod in self._store.waiting():
                await self.bind(pod)
                if pod.bound:
                    yield pod

    async def look_again(self) -> None:
        """Report what was wrong with pools at the last of these looks, and still is."""
        try:
            found = await self._cluster.incomplete()
        except ApiObjectError:
            return
        self._journal.find(each for each in found if each in self._seen)
        self._seen = found

    async def concerns(self, pod: PodSpec) -> bool:
        """Whether a pod has to wait for claims."""
        try:
            return await self._cluster.concerns(pod, self._allocatable())
        except ApiObjectError:
            return False  # it has none itself, and nobody says that a class serves its resources

    async def bind(self, pod: PodRecord) -> None:
        """Give a pod its claims and bind it, if it still waits and that can be done now.

        For one that names its node the claims of templates are made, and nothing is allocated.
        """
        async with self._lock:
            if not self._store.waits(pod):
                return
            try:
                if pod.spec.node:
                    self._give(pod, Bound(await self._cluster.claims(pod.spec)))
                else:
                    self._give(pod, await self._cluster.schedule(pod.spec, self._allocatable()))
            except UnschedulableError as error:
                self._refused(pod, error)
            except ApiObjectError as error:
                self._refused(pod, UnschedulableError(str(error)))

    def _refused(self, pod: PodRecord, error: UnschedulableError) -> None:
        if pod.message != error.message:
            self._journal.events.append(Event(pod.spec.key, "FailedScheduling", error.message))
        pod.reason, pod.message = "Unschedulable", error.message
        pod.tell(self._journal)

    def _give(self, pod: PodRecord, bound: Bound) -> None:
        if not self._store.waits(pod):
            return  # it was deleted meanwhile, and what was made for it is about to be released
        pod.claims, pod.bound, pod.reason, pod.message = bound, True, "", ""
        if bound.extended is not None:
            served = {(container, resource) for container, resource, _ in bound.extended.mappings}
            pod.spec = _without(pod.spec, served)
            for container, spec in zip(pod.containers, pod.spec.containers, strict=True):
                container.spec = spec


class PodClaimWork:
    """Prepares and unprepares the claims of pods with one kubelet process."""

    def __init__(self, dra: DynamicResources, cluster: Cluster, store: PodStore, *, journal: Journal) -> None:
        self._dra = dra
        self._cluster = cluster
        self._store = store
        self._journal = journal

    async def prepare(self, pod: PodRecord) -> bool:
        """Prepare a pod's claims; False if it has to wait, with an event that says why."""
        claims = _of(pod)
        if pod.spec.claims and pod.claims is None:
            text = f'prepare dynamic resources: pod "{pod.spec.key}": ResourceClaim not created yet'
            return self._refused(pod, text)
        if not claims.claims:
            return True
        try:
            await self._dra.prepare(claims)
        except ClaimsError as error:
            return self._refused(pod, str(error))
        for container in pod.containers:
            if container.waiting == WAITING_REASON:
                container.waiting = container.message = ""
        return True

    def _refused(self, pod: PodRecord, text: str) -> bool:
        self._journal.events.append(
            Event(pod.spec.key, "FailedPrepareDynamicResources", f"Failed to prepare dynamic resources: {text}")
        )
        for container in pod.containers:
            container.waiting, container.message = WAITING_REASON, text
        return False

    async def end(self, pod: PodRecord) -> bool:
        """Unprepare and release the claims of a pod that has ended, and forget a deleted one; False to try again."""
        if pod.claims is None and not pod.terminating:
            return True
        try:
            await self._dra.unprepare(pod.spec.uid, [(pod.spec.namespace, name) for name in _of(pod).claims])
            await self._cluster.release(pod.spec)
        except (ClaimsError, ApiObjectError) as error:
            if pod.terminating:
                pod.message = str(error)
            pod.tell(self._journal)
            return False
        pod.claims = None
        if pod.terminating and self._store.records.get(pod.spec.key) is pod:
            del self._store.records[pod.spec.key]
            pod.tell_deleted(self._journal)
        return True

    async def forced(self, pod: PodRecord) -> None:
        """A pod that is gone from the API server: its claims are released at once, and unprepared if that works."""
        try:
            await self._cluster.release(pod.spec)
            await self._dra.unprepare(pod.spec.uid, [(pod.spec.namespace, name) for name in _of(pod).claims])
        except (ClaimsError, ApiObjectError):
            self._journal.changed()  # the next look for pods that are gone tries again

    def show(self, pod: PodRecord, container: ContainerRecord) -> None:
        """Put what is prepared for a container, and its health, into its record."""
        shown: dict[str, tuple[str, ...]] = {}
        container.health_messages = {}
        for claim in pod.container_claims(container.spec.name):
            devices = self._dra.devices(pod.spec.namespace, claim)
            ids = tuple(f"{driver}/{each.pool}/{each.device}" for driver, each in devices)
            name = claim.name or claim.claim
            shown[name] = tuple(dict.fromkeys((*shown.get(name, ()), *ids)))
            # Those of extended resources are not shown before 1.38, those of init containers and sidecars never.
            if claim.name and devices and container.spec.kind is Kind.APP:
                health = self._dra.health_of(pod.spec.namespace, claim)
                container.health = {
                    **container.health,
                    claim.resource: {id_: state for id_, (state, _) in health.items()},
                }
                messages = {id_: text for id_, (_, text) in health.items() if text}
                container.health_messages = {**container.health_messages, claim.resource: messages}
        container.claims = shown


def _of(pod: PodRecord) -> PodClaims:
    names = pod.claims.names if pod.claims is not None else ()
    return PodClaims(pod.spec.name, pod.spec.namespace, pod.spec.uid, tuple(dict.fromkeys(names)))


def _without(spec: PodSpec, served: set[tuple[str, str]]) -> PodSpec:
    """The pod without the extended resources that claims serve: the device manager and admission pass over them."""
    containers = tuple(
        replace(
            each,
            limits={r: n for r, n in each.limits.items() if (each.name, r) not in served},
            requests={r: n for r, n in each.requests.items() if (each.name, r) not in served},
        )
        for each in spec.containers
    )
    return replace(spec, containers=containers)
