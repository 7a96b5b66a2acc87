"""`Kubelet`, the interface of the embedded kubelet for tests and `vdev sim`.

It owns the state that survives restarts: the pods, the scheduler, the node status and the journal. `kubelet_process` is
a running kubelet process, and `pod_workers` syncs its pods.
"""

import asyncio
import contextlib
import random
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from ...aio.clock import SYSTEM, Clock
from ...errors import UsageError
from .. import lint
from ..api.store import ApiObjects
from ..device_manager.device_table import Capacity, DeviceTable, KubeletPanic
from ..dra.driver_registry import DriverStatus
from ..journal import Event, Journal
from ..kubelet_life import Compat, Timings
from ..lint import Finding, Overlaps, Severity
from ..objects import pod_manifest
from ..objects.pods import Phase, PodStatus
from .kubelet_directory import KubeletPaths
from .kubelet_process import KubeletProcess
from .node_state import NodeStatus, PodRecord, PodStore
from .pod_scheduler import PodScheduler

_POLL_SECONDS = 0.01
_CAPACITY: Mapping[str, str] = {"pods": "110"}


class Kubelet:
    """A kubelet with real sockets, as an async context manager.

    Args:
        root: the kubelet's directory; None for a temporary directory
        node_name: the name of the node
        clock: drives the node status and the grace period of five minutes for lost plugins
        compat: the Kubernetes version whose behavior at re-registration is reproduced
        seed: the seed for random choices of devices
        status_on_change: update the node status at every change, not only every 10 s like the real kubelet
        capacity: quantities of other resources, such as `pods`, `cpu` and `memory`; missing resources are unlimited
        timings: the kubelet's time limits and periods
        rate_limit: limit calls to PodResources, like the real kubelet
        host_root: report device nodes that do not exist below this directory; None disables the check
        overlaps: whether two device ids are the same hardware; a finding is reported if two pods hold such ids
        objects: the API server's objects, for DRA; None for objects in memory
        cdi_dir: the directory of CDI specifications; None disables the resolution of CDI names
        strict: call DRA drivers twice and compare the responses
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
        self.capacity = capacity
        self.clock = clock or SYSTEM
        self.timings = timings or Timings()
        self.compat = Compat(compat)
        self.version = f"v{self.compat.value}.0+vdev"  # in the Node's status
        self.status_on_change = status_on_change
        self.rate_limit = rate_limit
        self.host_root = None if host_root is None else Path(host_root)
        self.overlaps = overlaps
        self.objects = objects or ApiObjects()
        self.cdi_dir = None if cdi_dir is None else Path(cdi_dir)
        self.strict = strict
        self._open = contextlib.ExitStack()
        if root is None:
            temporary = tempfile.TemporaryDirectory(prefix="kubelet-", ignore_cleanup_errors=True)
            root = self._open.enter_context(temporary)
        self.paths = KubeletPaths(Path(root).absolute())
        self.root = self.paths.root  # for `vdev run --kubelet-dir`
        self.device_plugin_dir = self.paths.device_plugins  # contains the plugins' sockets and kubelet.sock
        self.socket = self.paths.registration_socket  # kubelet.sock, the registration service
        self.pod_resources_socket = self.paths.pod_resources_socket
        self.journal = Journal()
        self.metrics = self.journal.metrics
        self.store = PodStore(self.journal)
        self.status = NodeStatus(self.journal, capacity)
        self.rng = random.Random(seed)  # for choices that the real kubelet makes at random
        self._process: KubeletProcess | None = None
        self._sources: asyncio.Task[None] | None = None
        self._scheduler = PodScheduler(self)
        self.objects.listen(self._scheduler.wake)
        self.journal.listen(lambda _entry: self._scheduler.wake())

    # --- life ----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            self._open.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        self._open.close()

    async def start(self, *, readmit: bool = True, wait: bool = True) -> None:
        """Start the kubelet: remove all sockets in its directory, read the checkpoint, and readmit the pods.

        It reads its pods some time after plugins can register (`Timings.sources`), or immediately on a new node without
        pods. Before that, it admits no pods, and PodResources lists none. This method returns when the pods are
        admitted, or with `wait=False` when plugins can register. With `readmit=False`, the pods wait for `readmit()`,
        as if the API server were unreachable.

        Raises SocketError if another kubelet uses the directory or a path is too long, and HostError if the
        directory cannot be used.
        """
        if self._process is not None:
            raise UsageError("the kubelet is running; stop or crash it first")
        process = KubeletProcess(self, self._scheduler)
        for record in self.store.records.values():
            record.known = False
        try:
            await process.start()
        except BaseException:
            await process.kill()
            raise
        self._process = process
        socket = str(self.socket)
        self.journal.note("kubelet", "kubelet", f"started; plugins register at {socket}", what="started", detail=socket)
        process.every(process.timings.tick, process.tick)
        process.every(process.timings.tick, self._scheduler.report_incomplete_pools)
        process.tick()
        # A bound pod is synced in a task, so that the scheduler does not wait for plugins and drivers.
        process.spawn(self._scheduler.run(lambda pod: process.spawn(self._sync(pod), "work on a pod")), "the scheduler")
        self._scheduler.wake()
        if readmit:
            self._sources = process.spawn(self._learn_of_pods(process), "the kubelet's sources")
            if wait:
                try:
                    await self._pods_known()
                except BaseException:
                    await self.stop()
                    raise

    async def readmit(self) -> None:
        """Admit all pods that have not ended, in order of creation, like a kubelet that reads its pods."""
        process = self._up()
        while process.alive and (unknown := [each for each in self.store.records.values() if each.is_new]):
            await self._work(unknown[0])
        process.pods_known = True
        for record in [each for each in self.store.records.values() if each.ended]:
            await self._sync(record)

    async def crash(self) -> None:
        """Kill the kubelet (SIGKILL): sockets remain and refuse connections, and containers keep running."""
        await self._end("crashed")

    async def stop(self) -> None:
        """Stop the kubelet (SIGTERM). The sockets remain, as after a crash. No effect if the kubelet is down."""
        if self._process is not None:
            await self._end("stopped")

    async def restart(self, *, wait: bool = True) -> None:
        """Restart the kubelet. Running containers keep their devices without a call to the plugin."""
        await self.stop()
        await self.start(wait=wait)

    async def reboot(self, *, readmit: bool = True, wait: bool = True) -> None:
        """Reboot the node: all containers stop, and pods are admitted even if their plugin is missing.

        With `readmit=False`, the pods wait for `readmit()`, so the plugin can start first.
        """
        await self.power_off()
        await self.start(readmit=readmit, wait=wait)

    async def power_off(self) -> None:
        """Shut down the node: stop the kubelet and all containers."""
        await self.stop()
        for record in self.store.records.values():
            record.sandbox = False
            for container in record.containers:
                container.running = container.done = False

    # --- time ----------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Update the node status, and remove plugins whose grace period is over. The kubelet does this every 10 s."""
        if self._process is not None:
            self._process.tick()

    # --- pods ----------------------------------------------------------------------------------------------------

    async def run_pod(
        self,
        manifest: Mapping[str, Any],
        *,
        numa_affinity: Iterable[int] | None = None,
        wait_for_devices: bool = False,
    ) -> PodStatus:
        """Create a pod, admit it and start its containers. Returns its status.

        A rejected pod has the phase Failed; there is no exception. If the kubelet is down, the pod stays Pending.

        Args:
            manifest: a v1 Pod
            numa_affinity: NUMA nodes for the topology manager to align with; None for policy `none`
            wait_for_devices: keep the pod Pending until the node has enough devices; no effect with `spec.nodeName`

        Raises ManifestError, and KubeletPanic if the real kubelet would panic.
        """
        affinity = None if numa_affinity is None else frozenset(numa_affinity)
        spec = pod_manifest.parse(manifest)
        record = self.store.add(spec, affinity, waits_for_devices=wait_for_devices)
        await self._scheduler.bind(record)
        await self._pods_known()
        await self._sync(record)
        return record.status()

    async def delete_pod(self, name: str, *, namespace: str = "default", force: bool = False) -> None:
        """Delete a pod. The next admission or PodResources call frees its devices. Plugins are not notified.

        A pod with claims is Terminating until they are unprepared. With `force`, it is deleted immediately.
        """
        record = self.store.record(name, namespace)
        claims = bool(record.claim_names) or not record.bound
        if force or not claims:
            self.store.remove(record)
            await self._scheduler.release(record.spec)
        if claims:
            record.terminating = True
            record.stop_containers()
            self.store.note(record)
            await self._sync(record)

    async def finish_pod(self, name: str, *, namespace: str = "default", phase: Phase = Phase.SUCCEEDED) -> PodStatus:
        """End all containers of a pod. `phase` is Succeeded or Failed."""
        record = self.store.record(name, namespace)
        record.phase = phase
        record.stop_containers()
        self.store.note(record)
        await self._sync(record)
        return record.status()

    async def kill_container(self, pod: str, container: str | None = None, *, namespace: str = "default") -> PodStatus:
        """Kill a container. It stays down until `restart_container` or the next sync of the pod."""
        record = self.store.record(pod, namespace)
        record.container(container).running = False
        self.store.note(record)
        return record.status()

    async def restart_container(
        self, pod: str, container: str | None = None, *, namespace: str = "default"
    ) -> PodStatus:
        """Restart a container, by default the first app container, even if an earlier start failed.

        This also starts other containers of the pod that are down.
        """
        record = self.store.record(pod, namespace)
        await self._pods_known()
        self._up()
        status = record.container(container)
        status.running = status.done = False
        await self._sync(record)
        return record.status()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.alive

    @property
    def ready(self) -> bool:
        """Whether the running kubelet has read and admitted its pods."""
        return self._process is not None and self._process.pods_known

    # --- state ---------------------------------------------------------------------------------------------------

    def node(self) -> Capacity:
        """Return capacity and allocatable of plugin resources in the node status, as of the last tick."""
        return self.status.shown

    def devices(self) -> Capacity:
        """Return the current capacity and allocatable in the device manager; empty if the kubelet is down."""
        return Capacity({}, {}) if self._process is None else self._process.table.view()

    def drivers(self) -> dict[str, list[DriverStatus]]:
        """Return the registered instances of DRA drivers by name, oldest first; empty if the kubelet is down."""
        return {} if self._process is None else self._process.dra.drivers.status()

    def listed(self) -> dict[str, dict[str, str]]:
        """Return the health of each device that connected plugins list, by resource and id."""
        table = DeviceTable() if self._process is None else self._process.table
        return {
            resource: {id_: each.health for id_, each in devices.items()}
            for resource, devices in table.devices.items()
            if table.lists_now(resource)
        }

    @property
    def findings(self) -> list[Finding]:
        """Mistakes of plugins and drivers, oldest first."""
        return list(self.journal.findings)

    @property
    def errors(self) -> list[Finding]:
        """Findings with severity ERROR. Tests should end with `assert not kubelet.errors`."""
        return [finding for finding in self.journal.findings if finding.severity is Severity.ERROR]

    @property
    def events(self) -> list[Event]:
        """The Warning events on pods, oldest first."""
        return list(self.journal.events)

    async def wait_until(self, condition: Callable[[], object], *, timeout: float = 30.0, what: str = "") -> None:
        """Wait until `condition()` is true. It is called at every change. The TimeoutError describes the node."""
        try:
            async with asyncio.timeout(timeout):
                while not condition():
                    await self.journal.next_change(at_most=_POLL_SECONDS)  # it may also depend on other things
        except TimeoutError:
            node = self.node()
            pods = [f"{pod.spec.key}: {pod.phase.value} {pod.message}".rstrip() for pod in self.pods()]
            raise TimeoutError(
                f"waited {timeout:g} s for {what or 'a condition'}; "
                f"node {dict(node.capacity)} capacity, {dict(node.allocatable)} allocatable; "
                f"pods {pods}; findings {[str(f) for f in self.findings]}"
            ) from None

    def pod(self, name: str, *, namespace: str = "default") -> PodStatus:
        """Return the current status of a pod. Raises KeyError if it does not exist."""
        return self.store.record(name, namespace).status()

    def pods(self) -> list[PodStatus]:
        """Return the status of all pods, in order of creation."""
        return [record.status() for record in self.store.records.values()]

    # --- internals -----------------------------------------------------------------------------------------------

    async def _sync(self, record: PodRecord) -> None:
        """Sync a pod if it is bound to this node and the kubelet has read its pods."""
        if (record.bound or record.ended) and self.ready:
            await self._work(record)

    async def _learn_of_pods(self, process: KubeletProcess) -> None:
        """Wait until the pod sources are ready, then admit the pods."""
        if not process.fresh or self.store.records:
            await self.clock.sleep(self.timings.sources)
        await self.readmit()

    async def _pods_known(self) -> None:
        """Wait until the kubelet has read its pods or ended. Returns immediately after `start(readmit=False)`."""
        if (sources := self._sources) is not None:
            await asyncio.wait([sources])
            if not sources.cancelled():
                sources.result()  # raises KubeletPanic

    async def _end(self, how: str) -> None:
        process = self._up()
        self._process = self._sources = None
        try:
            await process.kill()
        finally:
            self.journal.note("kubelet", "kubelet", how, what=how, detail="")

    async def _work(self, record: PodRecord) -> None:
        """Sync a pod in a task of the process. If the process ends, the next process continues."""
        process = self._up()
        task = process.spawn(process.workers.sync(record), "work on a pod")
        await asyncio.wait([task])  # unlike `await task`, not cancelled when the process ends
        try:
            if not task.cancelled():
                task.result()
        except KubeletPanic as panic:
            self.journal.find([lint.error("panic", "", str(panic))])
            await self._end("panicked")
            raise

    def _up(self) -> KubeletProcess:
        if self._process is None:
            raise UsageError("the kubelet is down; start it first")
        return self._process
