"""Syncs the pods of a kubelet process: admission, claims, container starts and restarts, and status.

Pods are stored in `node_state`. The device manager chooses the devices of a container.
"""

import asyncio
import os

from ...pb import deviceplugin_v1beta1_pb2 as api
from .. import lint
from ..connection import CallError
from ..device_manager.device_allocation import AdmissionError, Allocator, merge
from ..dra.dynamic_resources import ClaimsError, DynamicResources, UnresolvedError
from ..journal import Event
from ..kubelet_life import Life
from ..objects.pods import ContainerStatus, Edits, Kind, Phase
from .node_state import PodRecord
from .pod_scheduler import PodScheduler

WAITING_REASON = "CreateContainerConfigError"
RUNTIME_REASON = "CreateContainerError"
CLAIMS_REASON = "ContainerCreating"


class PodWorkers:
    """Syncs pods in one kubelet process.

    A sync is a task of the process and is cancelled when the process ends. The next process continues. Failures are
    retried: a pod waits until its claims are prepared, and is Terminating until they are unprepared.
    """

    def __init__(self, life: Life, allocator: Allocator, dra: DynamicResources, scheduler: PodScheduler) -> None:
        self._life = life
        self._table = life.table
        self._allocator = allocator
        self._dra = dra
        self._scheduler = scheduler
        self._store = life.pods
        self._journal = life.journal
        self._admission = asyncio.Lock()  # held to admit one pod at a time
        self._retries: set[str] = set()  # UIDs of pods with a scheduled retry

    async def sync(self, pod: PodRecord) -> None:
        """Sync a pod: admit it, start its containers, or end it. A failure is retried. Raises KubeletPanic."""
        async with pod.work:
            if not pod.known:
                await self._admit_or_reject(pod)
            if pod.ended:
                succeeded = await self._end(pod)
            else:
                succeeded = pod.deleted or await self._run(pod)

        def again() -> None:
            self._retries.discard(pod.uid)
            self._life.spawn(self.sync(pod), f"work on pod {pod.spec.key} again")

        if not succeeded and pod.uid not in self._retries:
            self._retries.add(pod.uid)
            self._life.later(self._life.timings.retry, again)

    # --- admission ----------------------------------------------------------------------------------------------------

    async def _admit_or_reject(self, pod: PodRecord) -> None:
        async with self._admission:
            if pod.ended or pod.deleted:
                return  # deleted while other pods were admitted
            pod.known = True
            try:
                for container in pod.containers:
                    await self._allocator.admit(pod, container)
            except (AdmissionError, CallError) as error:
                self._reject(pod, "UnexpectedAdmissionError", f"Allocate failed due to {error}, which is unexpected")
                return
            self._check_hardware(pod)
            holds = any(each.pod == pod.uid for each in self._table.holders.values())
            held = {resource: len(ids) for resource, ids in self._table.allocated.items()} if holds else {}
            others = [each.spec.requested() for each in self._store.active() if each is not pod]
            if shortage := self._life.kubelet.status.shortage(pod.spec.requested(), others, held=held):
                self._reject(pod, *shortage)
                return
        pod.admitted = True

    def _reject(self, pod: PodRecord, reason: str, text: str) -> None:
        pod.phase, pod.reason, pod.message = Phase.FAILED, reason, f"Pod was rejected: {text}"
        for container in pod.containers:
            container.running, container.waiting = False, ""
        self._journal.events.append(Event(pod.spec.key, reason, text))
        self._store.note(pod)

    def _check_hardware(self, pod: PodRecord) -> None:
        """Report hardware that both this pod and another pod hold."""
        held = [(each.spec.key, held.resource, id_) for each, held in self._life.used() for id_ in sorted(held.ids)]
        self._journal.find(lint.shared_hardware(pod.spec.key, held, self._life.kubelet.overlaps))

    # --- containers ---------------------------------------------------------------------------------------------------

    async def _run(self, pod: PodRecord) -> bool:
        """Start the containers that should run; init containers one after the other. Returns False after a failure.

        First, claims are prepared once for the pod's sandbox, which survives the kubelet process but not a reboot.
        """
        pod.sandbox = pod.sandbox or await self._prepare(pod)
        for container in pod.containers if pod.sandbox else ():
            if container.running or container.done or pod.phase.terminal:
                continue
            await self._start(pod, container)
            if not container.running and not container.done and container.kind is not Kind.APP:
                break
        self.update(pod)
        return not any(container.waiting for container in pod.containers)

    async def _prepare(self, pod: PodRecord) -> bool:
        """Prepare a pod's claims. If this fails, record an event and return False."""
        if not pod.spec.claims and not pod.claim_names:
            return True
        try:
            await self._dra.prepare(pod)
        except ClaimsError as error:
            text = f"Failed to prepare dynamic resources: {error}"
            self._journal.events.append(Event(pod.spec.key, "FailedPrepareDynamicResources", text))
            for container in pod.containers:
                container.waiting, container.message = CLAIMS_REASON, str(error)
            return False
        for container in pod.containers:
            if container.waiting == CLAIMS_REASON:
                container.waiting = container.message = ""
        return True

    async def _start(self, pod: PodRecord, container: ContainerStatus) -> None:
        try:
            container.edits = await self._run_options(pod, container)
        except (AdmissionError, CallError, UnresolvedError) as error:
            container.waiting = RUNTIME_REASON if isinstance(error, UnresolvedError) else WAITING_REASON
            container.message = str(error)
            self._journal.events.append(Event(pod.spec.key, "Failed", f"Error: {error}"))
            return
        container.waiting = container.message = ""
        container.restarts += container.started
        container.started = True
        container.running = container.kind is not Kind.INIT
        container.done = container.kind is Kind.INIT

    async def _run_options(self, pod: PodRecord, container: ContainerStatus) -> Edits:
        """Call PreStartContainer and merge the Allocate responses, as the kubelet does before each container start."""
        table, spec = self._table, pod.spec.container(container.name)
        wanted = [r for r, count in spec.limits.items() if count and table.is_plugin_resource(r)]
        for resource in wanted:
            await self._allocator.pre_start(pod, container, resource)
        if any(table.held(pod.spec.uid, spec.name, resource) is None for resource in wanted):
            await self._allocator.allocate(pod, container)
            self._check_hardware(pod)
        held = {each.resource: each.response for each in table.held_by(pod.spec.uid, spec.name)}
        resources = self._life.rng.sample(sorted(held), len(held))
        edits, conflicts = merge((r, api.ContainerAllocateResponse.FromString(held[r])) for r in resources)
        self._journal.find(
            lint.error("conflict", "", f"pod {pod.spec.key}, container {spec.name}: {text}") for text in conflicts
        )
        claims = pod.container_claims(spec.name)
        edits = await self._dra.edits(pod.spec.namespace, claims, edits)
        if (host_root := self._life.kubelet.host_root) is not None:
            # The kubelet does not check device nodes, but the runtime cannot start the container without them.
            for path in [node.host_path for node in edits.devices]:
                if not await asyncio.to_thread(os.path.lexists, host_root / path.lstrip("/")):
                    self._journal.find(
                        [lint.warning("device-missing", "", f"device {path} does not exist on the host")]
                    )
        return edits

    # --- the end ------------------------------------------------------------------------------------------------------

    async def _end(self, pod: PodRecord) -> bool:
        """Unprepare and release an ended pod's claims. A Terminating pod is then deleted. Returns False on failure."""
        if not pod.claim_names and not pod.terminating:
            return True
        try:
            await self._dra.unprepare(pod.uid, [(pod.namespace, name) for name in pod.claim_names])
            await self._scheduler.release(pod.spec)
        except ClaimsError as error:
            if pod.terminating:
                pod.message = str(error)
            self._store.note(pod)
            return False
        pod.claims, pod.extended = {}, None
        if pod.terminating and not pod.deleted:
            self._store.remove(pod)
        return True

    # --- status -------------------------------------------------------------------------------------------------------

    def update(self, pod: PodRecord) -> None:
        """Update the pod's status, including the health of its devices."""
        apps = [container for container in pod.containers if container.kind is Kind.APP]
        if not pod.phase.terminal and pod.admitted:
            # A pod becomes Running when all its containers run, and stays Running.
            started = all(container.running for container in apps)
            pod.phase = Phase.RUNNING if started or pod.phase is Phase.RUNNING else Phase.PENDING
        if not pod.phase.terminal:
            for container in pod.containers:
                self._update_container(pod, container)
        self._store.note(pod)

    def _update_container(self, pod: PodRecord, container: ContainerStatus) -> None:
        """Update the devices and claims in a container's status, and their health."""
        table, is_app = self._table, container.kind is Kind.APP
        held = table.held_by(pod.spec.uid, container.name)
        container.devices = devices = {each.resource: tuple(sorted(each.ids)) for each in held}
        health = {r: {id_: table.health_of(r, id_) for id_ in ids} for r, ids in devices.items() if is_app}
        messages: dict[tuple[str, str], str] = {}
        claims: dict[str, tuple[str, ...]] = {}
        for claim in pod.container_claims(container.name):
            prepared = self._dra.prepared(pod.spec.namespace, claim.claim, claim.request)
            ids = [each.id for each in prepared]
            name = claim.name or claim.claim
            claims[name] = tuple(dict.fromkeys((*claims.get(name, ()), *ids)))
            # Kubernetes does not show health for extended resources before 1.38, or for init containers and sidecars.
            for device in prepared if claim.name and is_app else ():
                id_ = device.cdi[0] if device.cdi else device.id
                state, messages[claim.resource, id_] = self._dra.drivers.health_of(device)
                health.setdefault(claim.resource, {})[id_] = state
        container.health, container.health_messages, container.claims = health, messages, claims
