"""Keeps one resource served and registered, even if the kubelet restarts or fails.

    serve ──► register ──► streaming ──► the stream ended, the socket is gone, the kubelet is new, options changed
      ▲            │                                                       │
      └── pause ◄──┴── no answer, or no stream ───────────── close ◄───────┘

A resource is never registered while one of its streams is open: on 1.36 each registration opens another stream, and the
end of an old stream closes the new one. So the server is stopped first, which ends the streams.
"""

import asyncio
import functools
import socket
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from ..aio.tasks import Backoff, raise_if_cancelled
from ..errors import SocketError
from ..faults.effects import RegisterFaults
from ..pb import deviceplugin_v1beta1_pb2 as pb
from ..pb import deviceplugin_v1beta1_pb2_grpc as rpc
from ..planning.resources import Resource
from . import registration
from .servicer import Servicer, list_response
from .socket_server import SocketServer

if TYPE_CHECKING:
    from ..agent.agent import Agent

log = structlog.get_logger(__name__)

_NO_FAULT = RegisterFaults()


class ServiceState(StrEnum):
    STARTING = "starting"
    WAITING = "waiting for the kubelet"
    REGISTERED = "registered"
    SERVING = "serving without a kubelet"
    STOPPED = "stopped"


def _spoil(path: Path, *, replace: bool) -> None:
    if not replace:
        path.unlink(missing_ok=True)
        return
    other = path.with_suffix(".new")  # then renamed: if the path were free, a server might make its socket again
    other.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as nobody:
        nobody.bind(str(other))  # never listens: a client that connects is refused
    other.replace(path)


class ResourceService:
    """One resource: `run()` until cancelled, `update()` at any time in between.

    `servicer` answers the calls on the current socket.
    """

    def __init__(self, resource: Resource, agent: "Agent") -> None:
        self.name = resource.name
        self.state = ServiceState.STARTING
        self.trouble = ""
        self.registrations = 0
        self._agent = agent
        self._kubelet = agent.link
        self._intervals, self._clock = agent.options.timing
        self._backoff = Backoff(self._intervals.retry_first, self._intervals.retry_most)
        self._faults_changed = False  # faults may have changed since the last registration
        self._server: SocketServer | None = None
        self._wake = asyncio.Event()
        self.servicer = Servicer(resource, list_response(resource.slots), agent, on_stream=self._wake.set)
        self._renew = False  # the options changed since the registration
        self._generation = self._kubelet.generation  # of the kubelet of the current or next registration
        self._attempt = 0  # failed attempts with that kubelet

    @property
    def ready(self) -> bool:
        """Whether it is registered and the kubelet has opened a stream."""
        return self.state is ServiceState.REGISTERED and self.servicer.streams > 0

    @property
    def socket(self) -> str:
        """The path of its socket, empty if it has none."""
        return str(self._server.path) if self._server else ""

    def update(self, resource: Resource) -> None:
        """Serve this state from now on. The kubelet reads options once per registration: new ones need another."""
        before = self.servicer.resource
        self.servicer.update(resource)
        if resource.pre_start_required != before.pre_start_required:
            self._renew = True
            self._wake.set()

    def recheck_faults(self) -> None:
        """Evaluate the fault rules for this resource again, because they may have changed."""
        self._faults_changed = True
        self._wake.set()
        self.servicer.calls.wake()

    async def spoil_socket(self, *, replace: bool) -> None:
        """Delete the socket's file, or replace it by one on which no process listens, because of a fault rule."""
        if self._server is not None:
            await asyncio.to_thread(_spoil, self._server.path, replace=replace)
            self._wake.set()

    async def run(self) -> None:
        """Serve and register until cancelled. Failures of this resource are never raised."""
        self._kubelet.subscribers.add(self._wake)
        try:
            while True:
                raise_if_cancelled()
                await self._live()
        finally:
            await self._close()
            self._kubelet.subscribers.discard(self._wake)
            self._become(ServiceState.STOPPED)

    async def _live(self) -> None:
        """Start a server, register it once, and serve for as long as the kubelet listens."""
        self._notice_kubelet()
        self._faults_changed = self._renew = False
        try:
            server = await self._serve()
            await self._register(server)
            since = self._clock.now()
            await self._until_dropped(server)
            if self._clock.now() - since >= self._intervals.steady:
                self._attempt = 0
        except SocketError as failed:
            raise_if_cancelled()
            self._become(ServiceState.WAITING, str(failed))
        except Exception as failed:
            log.debug("the service of a resource failed", resource=self.name, exc_info=failed)
            self._become(ServiceState.WAITING, f"vdev failed to serve it: {failed!r}")
        await self._end_streams()
        # The pause grows while the kubelet fails or ends streams repeatedly. A server without a stream is kept during
        # the pause, because a starting kubelet may wait for its socket.
        await self._sleep(self._backoff.pause(self._attempt))
        self._attempt += 1
        await self._end_streams()
        await self._close()

    async def _end_streams(self) -> None:
        """Close a server with an open stream, and give the kubelet time to notice the end of the stream."""
        if self._server is not None and self.servicer.streams_opened:
            await self._close()
            await self._clock.sleep(self._intervals.end_of_stream)

    async def retire(self) -> None:
        """Send an empty list, so that the resource's capacity becomes 0; to be called before the end.

        A kubelet keeps the ids of the last list for five minutes after the stream has ended. If it has no stream open
        at this moment, the empty list is sent on the one that it opens after the next registration.
        """
        self.update(replace(self.servicer.resource, slots=()))  # also for a kubelet that restarts in the meantime
        generation, deadline = self._kubelet.generation, self._clock.now() + self._intervals.first_stream
        while not self.servicer.streams:
            has_list = self.registrations and self._kubelet.generation == generation
            if not has_list or self.state is ServiceState.STOPPED or self._clock.now() >= deadline:
                return
            await self._clock.sleep(self._intervals.look_for_stream)
        await self._clock.sleep(self._intervals.empty_list)

    async def _serve(self) -> SocketServer:
        path, last = self._kubelet.new_socket_path(self.name), self.servicer
        # Each server has its own, so that no stream of a server that did not stop in time is counted.
        self.servicer = Servicer(last.resource, last.response, self._agent, on_stream=self._wake.set)
        add_services = functools.partial(rpc.add_DevicePluginServicer_to_server, self.servicer)
        server = SocketServer(add_services, path, self._agent.options.timing)
        await server.start()
        self._server = server
        return server

    async def _register(self, server: SocketServer) -> None:
        if self._kubelet.socket is None:
            self._become(ServiceState.SERVING)
            return
        rule, fault = self._agent.faults.engine.on_register(self.name) or ("", _NO_FAULT)
        if fault.never:
            self._become(ServiceState.WAITING, f"the fault rule {rule!r} prevents the registration")
            return
        request = pb.RegisterRequest(
            version=fault.version or registration.VERSION,
            endpoint=server.path.name,
            resource_name=self.name,
            options=self.servicer.options(),
        )
        async with registration.connection(self._kubelet.socket) as channel:
            # The socket is checked only now, because a starting kubelet removes all sockets before it listens, and it
            # would dial a missing one for ten seconds. It may be a new kubelet: if that were noticed after the
            # registration, the resource would be registered twice.
            await self._kubelet.check()
            self._notice_kubelet()
            if not await asyncio.to_thread(lambda: server.owns_socket() and self._agent.lock.is_ours()):
                raise SocketError(f"the socket of {self.name} was removed before its registration; a new one is made")
            for _ in range(2 if fault.twice else 1):
                await registration.register(channel, request)
        self.registrations += 1
        self._become(ServiceState.REGISTERED)

    async def _until_dropped(self, server: SocketServer) -> None:
        """Return when it is time to register again. Raises SocketError if the kubelet never opens a stream."""
        servicer = self.servicer
        patience = self._intervals.first_stream
        deadline = self._clock.now() + patience
        while True:
            self._wake.clear()
            is_other_kubelet = self._kubelet.generation != self._generation
            may_register_now = self.state is ServiceState.WAITING and self._faults_changed
            if self._renew or is_other_kubelet or may_register_now or not server.owns_socket():
                log.info("options, socket, faults or kubelet changed; registering again", resource=self.name)
                return
            left = None
            if self.state is ServiceState.REGISTERED and not servicer.streams_opened:
                left = deadline - self._clock.now()
                if left <= 0:
                    raise SocketError(f"the kubelet accepted {self.name} but opened no stream within {patience:g} s")
            elif self.state is ServiceState.REGISTERED and not servicer.streams:
                log.warning("the kubelet ended the stream; registering again", resource=self.name)
                return
            await self._clock.wait(self._wake, left)

    def _notice_kubelet(self) -> None:
        """Count failures from 0 for a new kubelet."""
        if self._generation != self._kubelet.generation:
            self._generation, self._attempt = self._kubelet.generation, 0

    async def _sleep(self, seconds: float) -> None:
        """Pause, at most until there is a new kubelet, or fault rules change."""
        end = self._clock.now() + seconds
        raise_if_cancelled()
        while not self._faults_changed and self._kubelet.generation == self._generation:
            if (left := end - self._clock.now()) <= 0:
                return
            self._wake.clear()
            await self._clock.wait(self._wake, left)

    async def _close(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            self.servicer.calls.close()
            try:
                await server.stop()
            except asyncio.CancelledError:  # no other code knows this server
                await server.stop()
                raise

    def _become(self, state: ServiceState, trouble: str = "") -> None:
        if (state, trouble) == (self.state, self.trouble) and state is not ServiceState.REGISTERED:
            return  # each registration is logged, each trouble only once
        self.state, self.trouble = state, trouble
        match state:
            case ServiceState.REGISTERED:
                healthy, total = self.servicer.resource.healthy, len(self.servicer.resource.slots)
                log.info("registered", resource=self.name, devices=total, healthy=healthy, socket=self.socket)
            case ServiceState.WAITING:
                log.warning("not registered; trying again", resource=self.name, reason=trouble)
            case ServiceState.STOPPED:
                log.info("stopped", resource=self.name)
            case ServiceState.SERVING:
                log.info("serving", resource=self.name, socket=self.socket)
        self._agent.on_state(self.name, state)
