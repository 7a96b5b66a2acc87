"""The scheduler's work for pods with claims: it allocates the claims and binds the pod to the node."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from decimal import Decimal

from ..dra.allocator import UnschedulableError
from ..dra.api_objects import ApiObjectError
from ..dra.control_plane import Bound, Cluster
from ..journal import Event, Journal
from ..lint import Finding
from ..objects.pods import PodSpec
from .pod_records import PodRecord, PodStore


class PodScheduler:
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
