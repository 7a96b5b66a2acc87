"""The scheduler's work: it binds pods to the node once their claims are allocated and the node has enough devices."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from ..api.api_objects import ApiObjectError
from ..dra.allocator import UnschedulableError
from ..dra.control_plane import Bound, Cluster
from ..journal import Event, Journal
from ..lint import Finding
from ..objects.pods import PodSpec
from .node_status import NodeStatus, lacking
from .pod_records import PodRecord, PodStore


class PodScheduler:
    """Binds pods that wait for claims or devices to the node."""

    def __init__(
        self,
        cluster: Cluster,
        store: PodStore,
        node: NodeStatus,
        journal: Journal,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._journal = journal
        self._node = node
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
            return await self._cluster.concerns(pod, self._node.allocatable())
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
                self._give(pod, await self._place(pod))
            except UnschedulableError as error:
                self._refused(pod, error)
            except ApiObjectError as error:
                self._refused(pod, UnschedulableError(str(error)))

    async def _place(self, pod: PodRecord) -> Bound:
        """The claims of a pod that can be bound now. Raises UnschedulableError."""
        if pod.spec.node:
            return Bound(await self._cluster.claims(pod.spec))
        allocatable = self._node.allocatable()
        if pod.waits_for_devices:
            served = await self._cluster.served(pod.spec, allocatable)
            others = [
                each.spec.requested() for each in self._store.records.values() if each.bound and not each.phase.terminal
            ]
            if short := lacking(pod.spec.requested(), others, free=self._node.shown.allocatable, served=served):
                raise UnschedulableError(", ".join(f"1 Insufficient {resource}" for resource in short))
        return await self._cluster.schedule(pod.spec, allocatable)

    def _refused(self, pod: PodRecord, error: UnschedulableError) -> None:
        if pod.message != error.message:
            self._journal.events.append(Event(pod.spec.key, "FailedScheduling", error.message))
        pod.reason, pod.message = "Unschedulable", error.message
        pod.tell(self._journal)

    def _give(self, pod: PodRecord, bound: Bound) -> None:
        if not self._store.waits(pod):
            return  # it was deleted meanwhile, and what was made for it is about to be released
        pod.claims, pod.bound, pod.reason, pod.message = bound if bound.names else None, True, "", ""
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
