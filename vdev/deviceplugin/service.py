"""Keeping one resource served and registered, whatever the kubelet does.

    serve ──► register ──► streaming ──► the stream ended, the socket is gone, the kubelet is new, options changed
      ▲            │                                                       │
      └── pause ◄──┴── nobody answers, or no stream ──────── close ◄───────┘

A resource is never registered while one of its streams is open: on 1.36 each registration opens another stream, and the
end of an old one takes the new one down. So the streams are ended first, by stopping the server.
"""

import asyncio
import functools
import socket
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

import structlog

from ..aio.clock import PRODUCTION_TIMING, Timing
from ..aio.tasks import Backoff, Interrupted, Interruption, raise_if_cancelled
from ..errors import RegistrationRefused, SocketError
from ..faults.effects import RegisterFaults
from ..faults.engine import Engine
from ..planning.resources import Resource
from . import registration
from .registration import KubeletSocket
from .requests import Requests
from .servicer import Servicer
from .socket_server import SocketServer

log = structlog.get_logger(__name__)

_AS_IT_SHOULD_BE = RegisterFaults()


class ServiceState(StrEnum):
    """What a resource's service is doing."""

    STARTING = "starting"
    WAITING = "waiting for the kubelet"
    REGISTERED = "registered"
    SERVING = "serving without a kubelet"
    REFUSED = "refused by the kubelet"
    STOPPED = "stopped"


class _Held(Exception):
    """A fault holds the registration back."""


def _spoil(path: Path, *, replace: bool) -> None:
    if not replace:
        path.unlink(missing_ok=True)
        return
    other = path.with_suffix(".new")  # beside it: while nothing stands there, a server may be making it again
    other.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as nobody:
        nobody.bind(str(other))  # never listens: a client that connects is refused
    other.replace(path)


class ResourceService:
    """One resource's life: `run()` until `stop()`; `update()` at any time in between."""

    def __init__(
        self,
        resource: Resource,
        encoded: bytes,
        link: KubeletSocket,
        requests: Requests,
        *,
        on_state: Callable[[str, ServiceState], None],
        faults: Engine,
        timing: Timing = PRODUCTION_TIMING,
    ) -> None:
        self.resource = resource
        self.state = ServiceState.STARTING
        self.trouble = ""
        self.registrations = 0
        self._link = link
        self._requests = requests
        self._on_state = on_state
        self._timing = timing
        self._intervals, self._clock = timing
        self._encoded = encoded  # the list of the resource, as it is sent
        self._backoff = Backoff(timing.intervals.retry_first, timing.intervals.retry_most)
        self._faults = faults
        self._poked = False  # what faults do may have changed since the last registration
        self._server: SocketServer[Servicer] | None = None
        self._wake = asyncio.Event()
        self._stopping = False
        self._registering = Interruption()
        self._renew = False  # the options changed since the registration
        self._generation = link.generation  # of the kubelet that it deals with
        self._attempt = 0  # the failures with that kubelet, for the next pause

    @property
    def name(self) -> str:
        return self.resource.name

    @property
    def streams(self) -> int:
        return self._server.servicer.streams if self._server else 0

    @property
    def ready(self) -> bool:
        """Registered, and the kubelet listens."""
        return self.state is ServiceState.REGISTERED and self.streams > 0

    @property
    def socket(self) -> str:
        """The path of its socket, empty when it has none."""
        return str(self._server.path) if self._server else ""

    def update(self, resource: Resource, encoded: bytes) -> None:
        """Serve this state from now on. Options are read once per registration, so a change of them starts anew."""
        if resource.pre_start_required != self.resource.pre_start_required:
            self._renew = True
            self._wake.set()
        self.resource, self._encoded = resource, encoded
        if self._server is not None:
            self._server.servicer.update(resource, encoded)

    def list_again(self) -> None:
        """Send the list once more: the kubelet then writes its checkpoint."""
        if self._server is not None:
            self._server.servicer.list_again()

    def poke(self) -> None:
        """Ask the fault rules again: what they do to this resource may have changed."""
        self._poked = True
        self._wake.set()
        if self._server is not None:
            self._server.servicer.poke()

    def close_streams(self) -> None:
        """End the streams, as a fault rule says."""
        if self._server is not None:
            self._server.servicer.close_streams()

    async def spoil_socket(self, *, replace: bool) -> None:
        """Delete the socket's file, or replace it by one that nobody listens on, as a fault rule says."""
        server = self._server
        if server is None:
            return
        await asyncio.to_thread(_spoil, server.path, replace=replace)
        if self._server is not server:  # `run` has closed it meanwhile, and with it what stood at its path
            await asyncio.to_thread(server.path.unlink, missing_ok=True)
        self._wake.set()

    def stop(self) -> None:
        """Make `run` end soon, also while the kubelet thinks about a registration."""
        self._stopping = True
        self._wake.set()
        self._registering.interrupt()

    async def run(self) -> None:
        """Serve and register until stopped. Nothing that goes wrong with this resource is raised."""
        self._link.subscribe(self._wake, self._stands)
        try:
            while not self._stopping:
                raise_if_cancelled()
                await self._live()
        finally:
            await self._close()
            self._link.unsubscribe(self._wake)
            self._become(ServiceState.STOPPED)

    async def _live(self) -> None:
        """The life of one server: it is registered once, and serves for as long as the kubelet listens."""
        self._meet()
        self._poked = self._renew = False
        try:
            server = await self._serve()
            await self._register(server)
            since = self._clock.now()
            await self._until_dropped(server)
            if self._clock.now() - since >= self._intervals.steady:
                self._attempt = 0
        except _Held as held:
            self._become(ServiceState.WAITING, str(held))
            self._attempt = 0
            await self._sleep(None)
        except RegistrationRefused as refused:
            self._become(ServiceState.REFUSED, str(refused))
            self._attempt = 0
            await self._sleep(None)
        except Interrupted:
            return
        except SocketError as failed:
            if not self._stopping:
                self._become(ServiceState.WAITING, str(failed))
        except Exception as failed:
            log.debug("the service of a resource failed", resource=self.name, exc_info=failed)
            self._become(ServiceState.WAITING, f"vdev failed to serve it: {failed!r}")
        await self._end_streams()
        # A kubelet that fails or ends streams again and again is asked less and less often. Without a stream the socket
        # stays in this pause: what starts the kubelet may wait for it.
        await self._sleep(self._backoff.pause(self._attempt))
        self._attempt += 1
        await self._end_streams()
        await self._close()

    async def _end_streams(self) -> None:
        """Close a server to which the kubelet listened, and give the kubelet time to see that the stream has ended."""
        if self._server is not None and self._server.servicer.streams_opened:
            await self._close()
            await self._sleep(self._intervals.end_of_stream, for_all=True)

    async def retire(self) -> None:
        """Take the resource off the node: send an empty list, so that its capacity becomes 0, then stop."""
        listened = self.streams > 0
        try:
            self.update(replace(self.resource, slots=()), b"")  # also for a kubelet that restarts in the meantime
            if listened:
                await self._clock.sleep(self._intervals.empty_list)
        finally:
            self.stop()

    def _stands(self) -> bool:
        """Whether the socket's file is still there, where there should be one. Blocks briefly."""
        server = self._server
        return server is None or server.owns_socket()

    async def _serve(self) -> SocketServer[Servicer]:
        servicer = Servicer(
            self.resource,
            self._encoded,
            self._requests,
            on_stream=self._wake.set,
            faults=self._faults,
            clock=self._clock,
        )
        server = SocketServer(servicer, self._link.new_socket_path(self.name), timing=self._timing)
        await server.start()
        servicer.update(self.resource, self._encoded)
        self._server = server
        return server

    async def _register(self, server: SocketServer[Servicer]) -> None:
        if self._link.socket is None:
            self._become(ServiceState.SERVING)
            return
        rule, fault = self._faults.on_register(self.name) or ("", _AS_IT_SHOULD_BE)
        if fault.never:
            raise _Held(f"held back by the fault {rule!r}")
        for _ in range(2 if fault.twice else 1):
            async with self._registering:
                await registration.register(
                    self._link.socket,
                    endpoint=server.path.name,
                    resource=self.name,
                    options=server.servicer.options(),
                    served=functools.partial(self._is_served, server),
                    version=fault.version or registration.VERSION,
                )
        self.registrations += 1
        self._become(ServiceState.REGISTERED)

    async def _until_dropped(self, server: SocketServer[Servicer]) -> None:
        """Return when it is time to register again. Raises SocketError when the kubelet never listens."""
        servicer = server.servicer
        patience = self._intervals.first_stream
        deadline = self._clock.now() + patience
        while not self._stopping:
            self._wake.clear()
            is_other_kubelet = self._link.generation != self._generation
            if self._renew or is_other_kubelet or not await asyncio.to_thread(server.owns_socket):
                log.info("options, socket or kubelet changed; serving and registering anew", resource=self.name)
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

    def _meet(self) -> None:
        """Deal with the kubelet that is there now; what failed with an earlier one is no reason to let it wait."""
        if self._generation != self._link.generation:
            self._generation, self._attempt = self._link.generation, 0

    async def _is_served(self, server: SocketServer[Servicer]) -> bool:
        """Whether the socket is there for the kubelet that answers, which may be one that nobody has noticed yet.

        It is met before it is registered with: noticed later, it would be taken for yet another one.
        """
        await self._link.look()
        self._meet()
        return await asyncio.to_thread(lambda: server.owns_socket() and self._link.is_ours())

    async def _sleep(self, seconds: float | None, *, for_all: bool = False) -> None:
        """Pause, but only until there is a new kubelet or this resource must stop.

        What faults do ends it as well, but for a pause that is `for_all`: it is the kubelet's, to see that a stream has
        ended. A new kubelet has no streams.
        """
        end = None if seconds is None else self._clock.now() + seconds
        raise_if_cancelled()
        while not self._stopping and (for_all or not self._poked) and self._link.generation == self._generation:
            left = None if end is None else end - self._clock.now()
            if left is not None and left <= 0:
                return
            self._wake.clear()
            await self._clock.wait(self._wake, left)

    async def _close(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop()

    def _become(self, state: ServiceState, trouble: str = "") -> None:
        if (state, trouble) == (self.state, self.trouble) and state is not ServiceState.REGISTERED:
            return  # each registration is logged, each trouble once
        self.state, self.trouble = state, trouble
        match state:
            case ServiceState.REGISTERED:
                healthy, total = self.resource.healthy, len(self.resource.slots)
                log.info("registered", resource=self.name, devices=total, healthy=healthy, socket=self.socket)
            case ServiceState.WAITING:
                log.warning("not registered; trying again", resource=self.name, reason=trouble)
            case ServiceState.REFUSED:
                log.error("refused for good", resource=self.name, reason=trouble)
            case ServiceState.STOPPED:
                log.info("stopped", resource=self.name)
            case ServiceState.SERVING:
                log.info("serving", resource=self.name, socket=self.socket)
            case ServiceState.STARTING:
                pass
        self._on_state(self.name, state)
