"""The scheduler: binds a pod to the node when its claims are allocated and the node has enough devices."""

import asyncio
from collections.abc import Callable
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
        self._lock = asyncio.Lock()  # one pod at a time, so that two pods never get the same devices
        self._changed = asyncio.Event()
        self._incomplete: list[Finding] = []  # at the last look
        self.wake: Callable[[], None] = self._changed.set

    async def run(self, bound: Callable[[PodRecord], None]) -> None:
        """Bind waiting pods at every change of an object or of the node, and call `bound` with each. Check slices."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._cluster.check_slices()
            for pod in self._store.waiting():
                await self.bind(pod)
                if pod.bound:
                    bound(pod)

    async def report_incomplete_pools(self) -> None:
        """Report pools that are incomplete, and were so at the last call."""
        found = await self._cluster.incomplete_pools()
        self._journal.find(each for each in found if each in self._incomplete)
        self._incomplete = found

    async def needs_claims(self, pod: PodSpec) -> bool:
        """Whether a pod has to wait for claims."""
        return await self._cluster.concerns(pod, self._node.allocatable())

    async def bind(self, pod: PodRecord) -> None:
        """Bind a pod if it still waits, and if its claims can be allocated now.

        For a pod that names its node, claims are created from templates, but nothing is allocated.
        """
        async with self._lock:
            if not self._store.waits(pod):
                return
            try:
                self._assign(pod, await self._allocated(pod))
            except UnschedulableError as error:
                self._refuse(pod, error.message)
            except ApiObjectError as error:
                self._refuse(pod, str(error))

    async def _allocated(self, pod: PodRecord) -> Bound:
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

    def _refuse(self, pod: PodRecord, why: str) -> None:
        if pod.message != why:
            self._journal.events.append(Event(pod.spec.key, "FailedScheduling", why))
        pod.reason, pod.message = "Unschedulable", why
        self._store.note(pod)

    def _assign(self, pod: PodRecord, bound: Bound) -> None:
        if not self._store.waits(pod):
            return  # it was deleted during the allocation, and its claims will be released
        pod.claims, pod.bound, pod.reason, pod.message = bound if bound.names else None, True, "", ""
        if bound.extended is not None:
            served = {(container, resource) for container, resource, _ in bound.extended.mappings}
            pod.spec = _without(pod.spec, served)


def _without(spec: PodSpec, served: set[tuple[str, str]]) -> PodSpec:
    """The pod without the extended resources that claims serve, which the device manager ignores."""
    containers = tuple(
        replace(
            each,
            limits={r: n for r, n in each.limits.items() if (each.name, r) not in served},
            requests={r: n for r, n in each.requests.items() if (each.name, r) not in served},
        )
        for each in spec.containers
    )
    return replace(spec, containers=containers)
