"""A running kubelet process: its parts, its sockets and its checkpoint."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import grpc.aio

from ...errors import SocketError
from ...pb import deviceplugin_v1beta1_pb2_grpc as api_grpc
from ...pb.podresources_v1_pb2_grpc import add_PodResourcesListerServicer_to_server
from .. import lint
from ..device_manager import device_checkpoint
from ..device_manager.device_allocation import Allocator
from ..device_manager.device_table import Capacity
from ..device_manager.registration_server import Registry
from ..dra.dynamic_resources import DynamicResources
from ..kubelet_life import Life
from . import kubelet_directory
from .plugin_watcher import Handler, PluginWatcher
from .pod_scheduler import PodScheduler
from .pod_workers import PodWorkers
from .podresources_server import PodResources

if TYPE_CHECKING:
    from .kubelet import Kubelet


class KubeletProcess(Life):
    """A running kubelet process. The pods, the scheduler and the node status survive it."""

    def __init__(self, kubelet: "Kubelet", scheduler: PodScheduler) -> None:
        super().__init__(kubelet)
        self.fresh = True  # there was no checkpoint
        self.dra = DynamicResources(self)
        self._servers: list[grpc.aio.Server] = []
        self._registry = Registry(self)
        self._allocator = Allocator(self)
        self.workers = PodWorkers(self, self._allocator, self.dra, scheduler)
        handlers: dict[str, Handler] = {"DevicePlugin": self._registry, "DRAPlugin": self.dra.drivers}
        self._watcher = PluginWatcher(handlers, self)

    async def start(self) -> None:
        """Read the checkpoint, remove all sockets in the directory, and serve. Raises SocketError, HostError."""
        paths = self.kubelet.paths
        found, problem = await asyncio.to_thread(device_checkpoint.read, paths.device_plugins)
        await asyncio.to_thread(paths.create)
        if problem:
            self.journal.find([lint.warning("checkpoint-unreadable", "", problem)])
        self.fresh = found is None and not problem
        if self.fresh:  # like the kubelet, treat a node without a checkpoint as new, and set all resources to zero
            status = self.kubelet.status
            status.update(Capacity({}, {}), removed=status.shown.capacity)
        if found is not None:
            device_checkpoint.restore(self.table, found, now=self.clock.now())
        self.alive = True
        await asyncio.to_thread(kubelet_directory.remove_sockets, paths.device_plugins)
        if not self.fresh:
            await self.clock.sleep(self.timings.boot)
        registration, pod_resources = grpc.aio.server(), grpc.aio.server()
        api_grpc.add_RegistrationServicer_to_server(self._registry, registration)
        answers = PodResources(self, self._allocator, self.dra)
        add_PodResourcesListerServicer_to_server(answers, pod_resources)
        await self._serve(pod_resources, paths.pod_resources_socket)
        if not self.fresh:
            await self.clock.sleep(self.timings.lead)
        await self._serve(registration, paths.registration_socket)
        await self.dra.start()
        self.spawn(self._watcher.run(), "plugin watcher")

    async def kill(self) -> None:
        """Kill the process (SIGKILL): connections break, sockets remain and refuse connections."""
        self.cancel()
        await asyncio.gather(*(server.stop(None) for server in self._servers))
        try:
            for result in await asyncio.gather(*self.cancel(), return_exceptions=True):
                if isinstance(result, Exception):
                    raise result
        finally:
            await self._registry.close()
            await self.dra.drivers.close()

    def tick(self) -> None:
        """Update the node status, and remove plugins whose grace period is over."""
        if self.alive:
            removed = self.table.expire(now=self.clock.now())
            self.kubelet.status.update(self.table.view(), removed=removed)
            if removed:
                self.save()

    def changed(self) -> None:
        if self.alive:
            for pod in self.pods.active():
                if pod.admitted:
                    self.workers.update(pod)
        if self.kubelet.status_on_change:
            self.tick()
        self.journal.changed()

    async def _serve(self, server: grpc.aio.Server, public: Path) -> None:
        private = self.kubelet.paths.private(public)
        try:
            server.add_insecure_port(f"unix:{private}")
        except RuntimeError as error:
            raise SocketError(f"{private}: cannot listen: {error}") from error
        self._servers.append(server)  # first, so that `kill` stops it after a cancellation
        await server.start()
        await asyncio.to_thread(kubelet_directory.publish, private, public)
