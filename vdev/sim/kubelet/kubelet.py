"""`Kubelet`, the embedded kubelet as tests and `vdev sim` use it.

Puts the parts together and keeps what outlives a kubelet process: pods, node status, journal. One life of the process
is in `kubelet_process`, the work on pods in `pod_workers`.
"""

import asyncio
import contextlib
import functools
import random
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from ...aio.clock import SYSTEM, Clock
from ...errors import UsageError, VdevError
from ..api.api_objects import ApiObjects
from ..device_manager.device_table import DeviceTable, DeviceVanishedError
from ..device_manager.registration_server import Compat
from ..dra.control_plane import Cluster
from ..dra.driver_registry import DriverStatus
from ..dra.dynamic_resources import DraSettings
from ..journal import Event, Journal, Metrics
from ..kubelet_life import Life, Timings
from ..lint import Finding, Overlaps, Severity
from ..objects import pod_manifest
from ..objects.node_devices import Capacity
from ..objects.pods import Phase, PodStatus
from .kubelet_directory import KubeletPaths
from .kubelet_process import KubeletProcess, KubeletSettings
from .node_status import NodeStatus
from .pod_records import PodRecord, PodStore
from .pod_scheduler import PodScheduler
from .pod_workers import PodWorkers

_POLL_SECONDS = 0.01
_ROOM = ("pod", "podDeleted", "node")  # events after which a pod that waits may fit
_CAPACITY: Mapping[str, str] = {"pods": "110"}


class KubeletPanic(VdevError):  # what it is, not an error of ours
    """The plugin did something that makes a real 1.36 kubelet panic. The embedded one is down until `start()`."""


class Kubelet:
    """A kubelet's device manager with real sockets, as an async context manager.

    `root` is the kubelet's directory (default: a temporary one). `clock` drives the node-status tick and the grace of
    five minutes for lost plugins. With `status_on_change` the node status is updated at every change, without it every
    10 s, as in the real kubelet. `compat` selects the version whose re-registration behaviour is shown, `seed` the
    random choices of devices. `capacity` are quantities of other resources that pods can request (`pods`, `cpu`,
    `memory`; absent: unlimited). Device nodes must exist below `host_root` (None: not checked). `overlaps` tells
    whether two device ids are the same hardware; two pods that hold such ids are a finding.

    `objects` are those of an API server (default: in memory), `cdi_dir` is where CDI names are
    resolved (None: not at all). With `strict` DRA drivers are asked everything twice, as a kubelet may.
    """

    def __init__(
        self,
        root: Path | str | None = None,
        *,
        node_name: str = "sim-node",
        clock: Clock | None = None,
        compat: Compat | str = Compat.V1_36,
        seed: int = 0,
        status_on_change: bool = True,
        capacity: Mapping[str, Any] = _CAPACITY,
        timings: Timings | None = None,
        rate_limit: bool = True,
        host_root: Path | str | None = None,
        overlaps: Overlaps = lambda _one, _other: False,
        objects: ApiObjects | None = None,
        cdi_dir: Path | str | None = None,
        strict: bool = False,
    ) -> None:
        self.node_name = node_name
        self.version = f"v{Compat(compat).value}.0+vdev"  # as the Node shows it
        self.journal = Journal()
        self._temporary = root is None
        self._root = None if root is None else Path(root).absolute()
        self._timings = timings or Timings()
        self._clock: Clock = clock or SYSTEM
        self._dice = random.Random(seed)  # a choice that tests can repeat, no secret
        self.objects = objects or ApiObjects()
        dra = DraSettings(self.objects, node_name, None if cdi_dir is None else Path(cdi_dir), strict)
        self._settings = KubeletSettings(
            Compat(compat),
            rate_limit,
            overlaps,
            None if host_root is None else Path(host_root),
            dra,
        )
        self._status_on_change = status_on_change
        self._store = PodStore()
        self._serial = 0
        self._node = NodeStatus(self.journal, capacity)
        self._process: KubeletProcess | None = None
        self._workers: PodWorkers | None = None
        self._stop_listening: Callable[[], None] = lambda: None
        self._sources: asyncio.Task[KubeletPanic | None] | None = None
        self._cluster = Cluster(self.objects, node_name, self.journal)
        self._scheduling = PodScheduler(self._cluster, self._store, self._node, self.journal)
        self.journal.listen(lambda entry: self._scheduling.wake() if entry.event in _ROOM else None)

    # --- life ----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self._tidy()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        await self._tidy()

    async def _tidy(self) -> None:
        if self._temporary and self._root is not None:
            await asyncio.to_thread(shutil.rmtree, self._root, ignore_errors=True)

    async def start(self, *, readmit: bool = True, wait: bool = True) -> None:
        """Start the kubelet: remove all sockets in its directory, read the checkpoint, admit the pods again.

        Like the real one it learns of its pods some time after plugins can register (`Timings.sources`; at once on a
        new node without pods). Until then it admits no pod, and PodResources names none. Returns once the pods are
        admitted, or with `wait=False` once plugins can register. With `readmit=False` the pods wait for `readmit()`, as
        if the API server could not be reached. Raises SocketError if another kubelet is running there or a path is too
        long, HostError if the directory cannot be used.
        """
        if self._process is not None:
            raise UsageError("the kubelet is running; stop or crash it first")
        if self._root is None:
            self._root = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="kubelet-"))
        process = KubeletProcess(
            paths=KubeletPaths(self._root),
            settings=self._settings,
            life=Life(self._clock, self._timings, self.journal),
            pods=self._store,
            dice=self._dice,
            changed=self._devices_changed,
        )
        self._store.forget()
        try:
            await process.start()
        except BaseException:
            await process.kill()
            raise
        self._process = process
        self._workers = PodWorkers(process, self._cluster, allocatable=self._node.allocatable)
        if process.fresh:  # A node without a checkpoint counts as new: what it showed of extended resources is void.
            self._node.reset()
        socket = str(process.paths.registration_socket)
        self.journal.note("kubelet", "kubelet", f"started; plugins register at {socket}", what="started", detail=socket)
        process.life.every(self._timings.tick, self._tick)
        self.tick()
        self._stop_listening = self.objects.listen(self._scheduling.wake)
        process.life.spawn(self._schedule(process), "the scheduler")
        self._scheduling.wake()
        if readmit:
            self._sources = process.life.spawn(self._hear_of_pods(process), "the kubelet's sources")
            if wait:
                try:
                    await self._heard()
                except BaseException:
                    await self.stop()  # nobody else would
                    raise

    async def readmit(self) -> None:
        """Admit every pod that has not ended, in order of creation, as a kubelet does once it learns of its pods."""
        process, workers = self._up()
        while process.alive and (record := self._store.unknown()) is not None:
            await self._work(functools.partial(workers.add, record))
        process.sources_ready = True
        for record in [each for each in self._store.records.values() if each.terminating or each.phase.terminal]:
            await workers.end(record)

    async def crash(self) -> None:
        """End as with kill -9: connections break, sockets stay behind and refuse, containers keep running."""
        await self._end("crashed")

    async def stop(self) -> None:
        """End as with SIGTERM. The files look as after a crash, as with the real kubelet. No effect if it is down."""
        if self._process is not None:
            await self._end("stopped")

    async def restart(self, *, wait: bool = True) -> None:
        """Stop and start. Running containers keep their devices without any call to the plugin."""
        await self.stop()
        await self.start(wait=wait)

    async def reboot(self, *, readmit: bool = True, wait: bool = True) -> None:
        """Reboot the node: no container runs, and pods are admitted whether their plugin is there or not.

        With `readmit=False` they wait for `readmit()`, as on a boot where plugins are faster.
        """
        await self.power_off()
        await self.start(readmit=readmit, wait=wait)

    async def power_off(self) -> None:
        """Shut down the node, that is the kubelet and all containers."""
        await self.stop()
        for record in self._store.records.values():
            record.sandbox = False
            for container in record.containers:
                container.running = container.done = False

    # --- time ----------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Update the node status and drop plugins that have been gone for too long; called every 10 s."""
        if self._process is None or not self._process.alive:
            return
        if self._node.follow(self._process.table.capacity(now=self._clock.now())):
            self._process.save()

    def _tick(self) -> None:
        self.tick()
        if self._process is not None and self._process.alive:
            self._process.life.spawn(self._scheduling.look_again(), "look at slices")

    # --- pods ----------------------------------------------------------------------------------------------------

    async def run_pod(
        self,
        manifest: Mapping[str, Any],
        *,
        numa_affinity: Iterable[int] | None = None,
        wait_for_devices: bool = False,
    ) -> PodStatus:
        """Create a pod, admit it and start its containers; returns its status after that.

        `manifest` is a v1 Pod. `numa_affinity` are the NUMA nodes that the topology manager aligns with (None: policy
        `none`). With `wait_for_devices` a pod for which the node has too few devices stays Pending until it has enough,
        unless it names its node. A rejected pod raises nothing; its phase is Failed. While the kubelet is down the pod
        stays Pending.
        Raises ManifestError, and KubeletPanic where the real kubelet would panic.
        """
        self._serial += 1
        affinity = None if numa_affinity is None else frozenset(numa_affinity)
        spec = pod_manifest.parse(manifest, serial=self._serial)
        wait_for_devices = wait_for_devices and not spec.node
        waits = wait_for_devices or await self._scheduling.concerns(spec)
        record = self._store.add(spec, affinity, bound=not waits, waits_for_devices=wait_for_devices)
        try:
            await self._heard()
            if waits and self.alive:
                await self._scheduling.bind(record)
        finally:
            record.queued = True
            self._scheduling.wake()
        await self._admit(record)
        return record.status()

    async def delete_pod(self, name: str, *, namespace: str = "default", force: bool = False) -> None:
        """Delete a pod. The next admission or PodResources call frees its devices; plugins are not notified.

        A pod with claims is Terminating until they are unprepared; with `force` it is gone at once, whatever becomes
        of them.
        """
        record = self._store.record(name, namespace)
        claims = record.claims is not None or not record.bound
        if claims and not force:
            record.terminating = True
            for container in record.containers:
                container.running = False
            record.tell(self.journal)
            if self._workers is not None and self.ready:
                await self._workers.end(record)
            return
        del self._store.records[record.spec.key]
        record.tell_deleted(self.journal)
        if claims and self._workers is not None:
            await self._workers.forced(record)
        elif claims:
            await self._cluster.release(record.spec)

    async def finish_pod(self, name: str, *, namespace: str = "default", phase: Phase = Phase.SUCCEEDED) -> PodStatus:
        """End all containers of the pod; `phase` is Succeeded or Failed."""
        record = self._store.record(name, namespace)
        record.phase = phase
        for container in record.containers:
            container.running = False
        self._update(record)
        if self._workers is not None:
            await self._workers.end(record)
        return record.status()

    async def kill_container(self, pod: str, container: str | None = None, *, namespace: str = "default") -> PodStatus:
        """Kill a container. It stays down until `restart_container` or the next start of the kubelet."""
        record = self._store.record(pod, namespace)
        record.container(container).running = False
        self._update(record)
        return record.status()

    async def restart_container(
        self, pod: str, container: str | None = None, *, namespace: str = "default"
    ) -> PodStatus:
        """Restart a container (default: the first app container), or try again one that could not be started."""
        record = self._store.record(pod, namespace)
        await self._heard()
        _, workers = self._up()
        await self._work(functools.partial(workers.restart, record, record.container(container)))
        return record.status()

    @property
    def alive(self) -> bool:
        """Whether the kubelet process runs."""
        return self._process is not None and self._process.alive

    @property
    def ready(self) -> bool:
        """Whether the kubelet has learned of its pods since its start, and admitted them."""
        return self._process is not None and self._process.sources_ready

    # --- places --------------------------------------------------------------------------------------------------

    @property
    def root(self) -> Path:
        """The kubelet's directory, for `vdev run --kubelet-dir`. Without `root=`, it exists after the first start."""
        if self._root is None:
            raise UsageError("the kubelet has no directory before its first start; start it, or pass root")
        return self._root

    @property
    def device_plugin_dir(self) -> Path:
        """Where plugins put their sockets."""
        return KubeletPaths(self.root).device_plugins

    @property
    def socket(self) -> Path:
        """Where plugins register."""
        return KubeletPaths(self.root).registration_socket

    @property
    def pod_resources_socket(self) -> Path:
        """Where the PodResources API is served."""
        return KubeletPaths(self.root).pod_resources_socket

    # --- what it shows -------------------------------------------------------------------------------------------

    def node(self) -> Capacity:
        """Capacity and allocatable of plugin resources in the node status, as of the last tick."""
        return self._node.shown

    def devices(self) -> Capacity:
        """The same in the device manager, now; empty while the kubelet is down."""
        return Capacity({}, {}) if self._process is None else self._process.table.view()

    def drivers(self) -> dict[str, list[DriverStatus]]:
        """The registered instances of DRA drivers by name, oldest first; empty while the kubelet is down."""
        registry = None if self._process is None else self._process.dra.drivers
        return {} if registry is None else {name: registry.instances(name) for name in registry.names()}

    def listed(self) -> dict[str, dict[str, str]]:
        """The current lists of connected plugins: by resource, health by device id."""
        table = DeviceTable() if self._process is None else self._process.table
        return {
            resource: {id_: each.health for id_, each in devices.items()}
            for resource, devices in table.devices.items()
            if table.lists_now(resource)
        }

    @property
    def findings(self) -> list[Finding]:
        """Mistakes that the real kubelet would not have reported, oldest first."""
        return list(self.journal.findings)

    @property
    def errors(self) -> list[Finding]:
        """The findings that break something; a test that ends with `assert not kubelet.errors` is a good test."""
        return [finding for finding in self.journal.findings if finding.severity is Severity.ERROR]

    @property
    def events(self) -> list[Event]:
        """The Warning events on pods, oldest first."""
        return list(self.journal.events)

    @property
    def metrics(self) -> Metrics:
        """The kubelet's counters."""
        return self.journal.metrics

    async def wait_until(self, condition: Callable[[], object], *, timeout: float = 30.0, what: str = "") -> None:
        """Return once `condition()` is true; it is called at every change. TimeoutError describes the whole node."""
        try:
            async with asyncio.timeout(timeout):
                while not condition():
                    await self.journal.next_change(at_most=_POLL_SECONDS)  # it may be about other things, too
        except TimeoutError:
            raise TimeoutError(f"waited {timeout:g} s for {what or 'a condition'}; {self._in_words()}") from None

    def pod(self, name: str, *, namespace: str = "default") -> PodStatus:
        """A pod as it is now. KeyError if there is none."""
        return self._store.record(name, namespace).status()

    def pods(self) -> list[PodStatus]:
        """All pods, in the order of their creation."""
        return [record.status() for record in self._store.records.values()]

    def _in_words(self) -> str:
        node = self._node.shown
        shown = [f"{pod.spec.key}: {pod.phase.value} {pod.message}".rstrip() for pod in self.pods()]
        return (
            f"node {dict(node.capacity)} capacity, {dict(node.allocatable)} allocatable; "
            f"pods {shown}; findings {[str(f) for f in self.findings]}"
        )

    # --- inside --------------------------------------------------------------------------------------------------

    async def _admit(self, record: PodRecord) -> None:
        if record.bound and self.ready and self._workers is not None:
            await self._work(functools.partial(self._workers.add, record))

    async def _schedule(self, process: KubeletProcess) -> None:
        """Bind the pods that wait, whenever something changed. None waits for what another one's driver does."""
        async for record in self._scheduling.bound():
            process.life.spawn(self._admit_bound(record), f"admit {record.spec.key}")

    async def _admit_bound(self, record: PodRecord) -> None:
        with contextlib.suppress(KubeletPanic):  # the journal has it
            await self._admit(record)

    async def _hear_of_pods(self, process: KubeletProcess) -> "KubeletPanic | None":
        """Wait as long as the pod sources take, then admit the pods. Returns a panic, for those who wait."""
        if not process.fresh or self._store.records:
            await self._clock.sleep(self._timings.sources)
        try:
            await self.readmit()
        except KubeletPanic as panic:
            return panic
        return None

    async def _heard(self) -> None:
        """Return once the kubelet has learned of its pods or ended; at once if it was told not to wait for them."""
        if (sources := self._sources) is not None:
            await asyncio.wait([sources])
            if not sources.cancelled() and (panic := sources.result()):
                raise panic

    async def _end(self, how: str) -> None:
        process, _ = self._up()
        self._process = self._workers = self._sources = None
        self._stop_listening()
        try:
            await process.kill()
        finally:
            self.journal.note("kubelet", "kubelet", how, what=how, detail="")

    async def _work(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Let the process work on a pod. If it ends meanwhile, the next start takes the pod up again."""
        process, _ = self._up()
        task = process.life.spawn(_panic_of(work), "work on a pod")
        await asyncio.wait([task])
        if not task.cancelled() and (panic := task.result()):
            self.journal.find([Finding("panic", Severity.ERROR, "", str(panic))])
            await self._end("panicked")
            raise panic

    def _devices_changed(self, uids: frozenset[str]) -> None:
        if self._workers is not None:
            self._workers.push(uids)
        if self._status_on_change:
            self.tick()
        self.journal.changed()

    def _up(self) -> tuple[KubeletProcess, PodWorkers]:
        if self._process is None or self._workers is None:
            raise UsageError("the kubelet is down; start it first")
        return self._process, self._workers

    def _update(self, record: PodRecord) -> None:
        if self._workers is not None:
            self._workers.update(record)
        self.journal.changed()


async def _panic_of(work: Callable[[], Coroutine[Any, Any, None]]) -> KubeletPanic | None:
    try:
        await work()
    except DeviceVanishedError as error:
        return KubeletPanic(f"{error}: the kubelet panics with 'invalid memory address or nil pointer dereference'")
    return None
