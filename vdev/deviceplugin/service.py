"""Keeping one resource served and registered, whatever the kubelet does.

    serve ──► register ──► streaming ──┬─ the kubelet ended the stream ─────────────► register again
      ▲                                ├─ the socket is gone, the kubelet is new ───► serve anew
      └── backoff ◄── nobody answers ──┘

A resource is never registered while one of its streams is open: on 1.36 each registration opens another stream, and the
end of an old one takes the new one down. So the streams are ended first, by stopping the server.
"""

import asyncio
import contextlib
import functools
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

import structlog

from ..aio.clock import PRODUCTION_TIMING, Timing
from ..aio.tasks import Backoff, Interrupted, Interruption, raise_if_cancelled
from ..errors import RegistrationRefused, SocketError, SocketUnreachable
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


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):  # a file that stays behind does no harm
            path.unlink(missing_ok=True)


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
        self._spoilt: set[Path] = set()  # sockets that a fault spoilt; their files go when another one is registered
        self._server: SocketServer[Servicer] | None = None
        self._wake = asyncio.Event()
        self._stopping = False
        self._registering = Interruption()
        self._renew = False  # the next registration must be made with a new server
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
        server = self._server  # `run` may change servers while the file is spoilt
        if server is None:
            return
        self._spoilt.add(server.path)
        await asyncio.to_thread(_spoil, server.path, replace=replace)
        if self._server is not server and self.state in (ServiceState.REGISTERED, ServiceState.STOPPED):
            await self._clear_spoilt()
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
                self._meet()
                self._poked = False
                try:
                    server = await self._serving()
                    opened = server.servicer.streams_opened
                    if server.servicer.streams:  # a Register that seemed to fail had arrived all the same
                        opened -= 1
                        self._become(ServiceState.REGISTERED)
                    else:
                        await self._register(server)
                    since = self._clock.now()
                    ended = await self._until_dropped(server, opened)
                    short = self._clock.now() - since < self._intervals.steady
                    self._attempt = self._attempt + 1 if ended and short else 0
                    if ended:  # a kubelet that ends streams again and again is asked less and less often
                        pause = self._backoff.pause(self._attempt)
                        await self._sleep(min(pause, self._intervals.end_of_stream), for_all=True)
                        await self._sleep(pause - self._intervals.end_of_stream)
                except _Held as held:
                    self._become(ServiceState.WAITING, str(held))
                    await self._sleep(None)
                except RegistrationRefused as refused:
                    self._become(ServiceState.REFUSED, str(refused))
                    await self._sleep(None)
                except Interrupted:
                    break
                except SocketError as failed:
                    if self._stopping:
                        break
                    self._renew |= isinstance(failed, SocketUnreachable)
                    self._become(ServiceState.WAITING, str(failed))
                    await self._back_off()
                except Exception as failed:
                    log.debug("the service of a resource failed", resource=self.name, exc_info=failed)
                    self._become(ServiceState.WAITING, f"vdev failed to serve it: {failed!r}")
                    await self._close()
                    await self._back_off()
        finally:
            await self._close()
            await self._clear_spoilt()
            self._link.unsubscribe(self._wake)
            self._become(ServiceState.STOPPED)

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

    async def _serving(self) -> SocketServer[Servicer]:
        if self._server is not None and not self._renew and await asyncio.to_thread(self._server.owns_socket):
            return self._server
        await self._close()
        self._renew = False
        servicer = Servicer(
            self.resource,
            self._encoded,
            self._requests,
            on_stream=self._wake.set,
            faults=self._faults,
            clock=self._clock,
        )
        server = SocketServer(
            servicer,
            self._link.new_socket_path(self.name),
            timing=self._timing,
        )
        await server.start()
        servicer.update(self.resource, self._encoded)
        self._server = server
        return server

    @contextlib.asynccontextmanager
    async def _reachable(self, server: SocketServer[Servicer]) -> AsyncIterator[None]:
        """Make the socket's file again if it vanishes while a kubelet that accepted the registration still dials it.

        The kubelet dials one name for up to ten seconds. Another name must not be registered meanwhile: when the first
        registration fails, a 1.36 kubelet drops the connection of the second.
        """
        failure: Exception | None = None
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._restore(server, over), name=f"keep {self.name} reachable")
            try:
                yield
            except Exception as error:  # the caller's own, which must not come out as a group
                failure = error
            over.set()
            self._wake.set()
        if failure is not None:
            raise failure

    async def _restore(self, server: SocketServer[Servicer], over: asyncio.Event) -> None:
        servicer = server.servicer
        asked = servicer.options_calls
        while servicer.options_calls == asked and not over.is_set():
            self._wake.clear()
            if (
                not await asyncio.to_thread(server.owns_socket)
                and servicer.options_calls == asked
                and not over.is_set()
            ):
                log.warning("the socket vanished during its registration; making it again", resource=self.name)
                with contextlib.suppress(SocketError):  # the registration's failure says more
                    await server.restore()
            if not over.is_set():
                await self._wake.wait()

    async def _register(self, server: SocketServer[Servicer]) -> None:
        if self._link.socket is None:
            self._become(ServiceState.SERVING)
            return
        rule, fault = self._faults.on_register(self.name) or ("", _AS_IT_SHOULD_BE)
        if fault.never:
            raise _Held(f"held back by the fault {rule!r}")
        for _ in range(2 if fault.twice else 1):
            async with self._registering, self._reachable(server):
                await registration.register(
                    self._link.socket,
                    endpoint=server.path.name,
                    resource=self.name,
                    options=server.servicer.options(),
                    served=functools.partial(self._is_served, server),
                    version=fault.version or registration.VERSION,
                )
        await self._clear_spoilt()
        self.registrations += 1
        self._become(ServiceState.REGISTERED)

    async def _until_dropped(self, server: SocketServer[Servicer], opened: int) -> bool:
        """Return when it is time to register again; the server is closed where it cannot be used any more.

        True when the kubelet ended the stream, false for everything else.
        """
        servicer = server.servicer
        patience = self._intervals.first_stream
        deadline = self._clock.now() + patience
        while not self._stopping:
            self._wake.clear()
            if self._renew:
                log.info("options changed; serving and registering anew", resource=self.name)
                await self._close()
                await self._sleep(self._intervals.end_of_stream, for_all=True)
                return False
            if self._link.generation != self._generation or not await asyncio.to_thread(server.owns_socket):
                log.info("socket or kubelet is another one; serving and registering anew", resource=self.name)
                await self._close()
                await self._sleep(self._intervals.end_of_stream, for_all=True)
                return False
            if self.state is ServiceState.REGISTERED and servicer.streams == 0 and servicer.streams_opened > opened:
                log.warning("the kubelet ended the stream; registering again", resource=self.name)
                return True
            left = deadline - self._clock.now()
            if self.state is ServiceState.REGISTERED and servicer.streams_opened == opened and left <= 0:
                raise SocketError(f"the kubelet accepted {self.name} but opened no stream within {patience:g} s")
            waits_for_stream = self.state is ServiceState.REGISTERED and servicer.streams_opened == opened
            await self._clock.wait(self._wake, left if waits_for_stream else None)
        return False

    def _meet(self) -> None:
        """Deal with the kubelet that is there now; what failed with an earlier one is no reason to let it wait."""
        if self._generation != self._link.generation:
            self._generation, self._attempt = self._link.generation, 0

    async def _is_served(self, server: SocketServer[Servicer]) -> bool:
        """Whether the socket is there for the kubelet that answers, which may be one that nobody has noticed yet.

        It is met before it is registered with: noticed later, it would be taken for yet another one.
        """
        stands = await self._link.catch_up(server.owns_socket)
        self._meet()
        return stands

    async def _back_off(self) -> None:
        await self._sleep(self._backoff.pause(self._attempt))
        self._attempt += 1

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

    async def _clear_spoilt(self) -> None:
        """Remove the spoilt files of sockets that nobody uses any more."""
        current = self._server.path if self._server is not None else None
        unused = {path for path in self._spoilt if path != current}
        self._spoilt -= unused
        if unused:
            await asyncio.to_thread(_remove, unused)

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
