"""One life of the kubelet process, with its sockets, its tasks and the state of the device manager.

`kubelet` passes in the pods, the journal and the node status, which outlive the process. `pod_workers` works on pods.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import grpc.aio

from ...aio.clock import SYSTEM
from ...aio.tasks import TokenBucket
from ...errors import HostError, SocketError
from ...pb import deviceplugin_v1beta1_pb2_grpc as api_grpc
from ...pb.podresources_v1_pb2_grpc import add_PodResourcesListerServicer_to_server
from .. import lint
from ..device_manager import device_checkpoint
from ..device_manager.device_allocation import Allocator
from ..device_manager.device_table import DeviceTable
from ..device_manager.registration_server import Registry
from ..dra.dynamic_resources import DynamicResources
from ..kubelet_life import Life
from . import kubelet_directory
from .kubelet_directory import KubeletPaths
from .plugin_watcher import Handler, PluginWatcher
from .pod_records import PodStore
from .podresources_server import PodResources

_CALLS_PER_SECOND, _BURST = 100, 10  # the real kubelet's rate limit for PodResources


class KubeletProcess:
    """A running kubelet.

    Args:
        paths: its directories and sockets
        life: its settings and tasks
        pods: the pods of the node
        rng: for the choices that are random in the real kubelet
        changed: called after each change, with the UIDs of pods with a device whose health changed
    """

    def __init__(
        self,
        *,
        paths: KubeletPaths,
        life: Life,
        pods: PodStore,
        rng: random.Random,
        changed: Callable[[frozenset[str]], None],
    ) -> None:
        self.paths = paths
        self.life = life
        self.pods = pods
        self.rng = rng
        self.fresh = True  # there was no checkpoint
        self.sources_ready = False  # it knows its pods and has admitted them
        self.table = DeviceTable()
        self._servers: list[grpc.aio.Server] = []
        directory = str(paths.device_plugins)
        self._registry = Registry(
            self.table,
            life=life,
            directory=directory,
            held=self._held,
            changed=changed,
            save=self.save,
        )
        self.allocator = Allocator(
            self.table,
            rng=rng,
            journal=life.journal,
            client=self._registry.endpoint,
            save=self.save,
            active=self._active,
        )
        self.dra = DynamicResources(paths.root, life, changed=changed, active=self._active)
        handlers: dict[str, Handler] = {"DevicePlugin": self._registry, "DRAPlugin": self.dra.drivers}
        self._watcher = PluginWatcher(paths.plugins_registry, handlers, life)

    @property
    def alive(self) -> bool:
        return self.life.alive

    async def start(self) -> None:
        """Read the checkpoint, remove all sockets in the directory, and serve. Raises SocketError, HostError."""
        paths = self.paths
        found, problem = await asyncio.to_thread(self._prepare)
        if problem:
            self.life.journal.find([lint.warning("checkpoint-unreadable", "", problem)])
        self.fresh = found is None and not problem
        if found is not None:
            device_checkpoint.restore(self.table, found, now=self.life.clock.now())
        self.life.alive = True
        await asyncio.to_thread(kubelet_directory.remove_sockets, paths.device_plugins)
        if not self.fresh:
            await self.life.clock.sleep(self.life.timings.boot)
        registration, pod_resources = grpc.aio.server(), grpc.aio.server()
        api_grpc.add_RegistrationServicer_to_server(self._registry, registration)
        limit = (
            TokenBucket(SYSTEM, burst=_BURST, every=1 / _CALLS_PER_SECOND) if self.life.settings.rate_limit else None
        )
        answers = PodResources(self.table, self.pods, free=self.allocator.free, limit=limit, claimed=self.dra.prepared)
        add_PodResourcesListerServicer_to_server(answers, pod_resources)
        await self._serve(pod_resources, paths.pod_resources_socket)
        if not self.fresh:
            await self.life.clock.sleep(self.life.timings.lead)
        await self._serve(registration, paths.registration_socket)
        await self.dra.start()
        self.life.spawn(self._watcher.run(), "plugin watcher")

    async def kill(self) -> None:
        """End as with SIGKILL: connections break, sockets remain and refuse connections."""
        self.life.cancel()
        await asyncio.gather(*(server.stop(None) for server in self._servers))
        try:
            await self.life.end()
        finally:
            await self._registry.close()
            await self.dra.close()

    def save(self) -> None:
        """Write the checkpoint. No effect once the process has ended."""
        if not self.alive:
            return
        try:
            device_checkpoint.write(self.paths.device_plugins, device_checkpoint.dump(self.table))
        except HostError as error:  # the real kubelet only logs it
            self.life.journal.find([lint.error("checkpoint-write", "", str(error))])

    def _prepare(self) -> tuple[Mapping[str, Any] | None, str]:
        """Create the directories; returns the data of the checkpoint, or why it cannot be read. Blocks."""
        paths = self.paths
        sockets = paths.registration_socket, paths.pod_resources_socket
        for socket in sockets:
            kubelet_directory.check_path(socket)
            kubelet_directory.refuse_live(socket)
        checkpoint = device_checkpoint.read(paths.device_plugins)
        for socket in sockets:
            private = paths.private(socket)
            kubelet_directory.make_directories(socket.parent, private.parent)
            private.unlink(missing_ok=True)  # it exists if an earlier start was killed
        kubelet_directory.make_directories(paths.plugins_registry, mode=0o755)
        return checkpoint

    async def _serve(self, server: grpc.aio.Server, public: Path) -> None:
        private = self.paths.private(public)
        try:
            server.add_insecure_port(f"unix:{private}")
        except RuntimeError as error:
            raise SocketError(f"{private}: cannot listen: {error}") from error
        self._servers.append(server)  # before it runs, so that `kill` stops it if this is cancelled
        await server.start()
        await asyncio.to_thread(kubelet_directory.publish, private, public)

    def _held(self, resource: str) -> set[str]:
        """The ids that containers hold, or that are in an unanswered Allocate call.

        The table alone does not say: as in the kubelet, it keeps the devices of ended pods and init containers.
        """
        holders = self.table.holders_of(resource)
        used = {id_ for pod, container, ids in holders if self.pods.uses(pod, container) for id_ in ids}
        return used | self.allocator.in_flight.get(resource, set())

    def _active(self) -> set[str] | None:
        """The UIDs of active pods; None if not all pods are known yet."""
        return {pod.uid for pod in self.pods.active()} if self.sources_ready else None
