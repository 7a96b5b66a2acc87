"""uvicorn as a guest in the agent's loop, within bounds: connections, time, descriptors, lines in the log.

uvicorn has no time-out for the head of a request, and asyncio's own accept loop takes every connection there is and,
once no descriptor is left, fails for each place in the backlog. So connections are accepted here, one at a time:

- There are at most `Limits.connections`. A new one is never refused for those that only wait: the one that has waited
  longest for a request makes room. Probes therefore get through a crowd of half requests.
- A quarter of the descriptors that the process may have is left for everything else, the kubelet's side first.
- Each phase of a connection has a deadline, after which it is cut off.
"""

import asyncio
import contextlib
import errno
import logging
import resource
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import h11
import structlog
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import reason_of
from .log import Seldom

log = structlog.get_logger(__name__)

_GONE = (errno.ECONNABORTED, errno.EPROTO, errno.ENETDOWN, errno.EHOSTUNREACH)  # of the connection, not of the listener
_MUTE = logging.getLogger(f"{__name__}.uvicorn")  # it would write a line for each bad request
_MUTE.disabled = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much the HTTP side may take; times are in seconds.

    `head`: from the connection's begin, or from the last answer, to the end of the next request's head. `answer`: from
    there until the client has taken the whole answer. `idle`: without a byte of the next request. `retry`: until the
    next attempt to get an address that is taken. `accept`: until connections are accepted again where that
    failed. `end`: for open requests, when the server stops.
    """

    connections: int = 64
    head: float = 10.0
    answer: float = 60.0
    idle: int = 5
    retry: float = 5.0
    accept: float = 1.0
    end: int = 2


class Server(uvicorn.Server):
    """Serves an ASGI application on a listening socket until `should_exit`; signals stay the agent's."""

    def __init__(self, application: Any, listener: socket.socket, limits: Limits) -> None:
        config = uvicorn.Config(
            application,
            http=H11Protocol,
            ws="none",
            loop="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=limits.idle,
            timeout_graceful_shutdown=limits.end,
        )
        config.load()  # it imports modules, for which no descriptor may be left later
        super().__init__(config)
        self.limits = limits
        self.waiting: dict[_Connection, None] = {}  # without a whole request; the one that waits longest is the first
        self._listener = listener
        self._share = limits.connections
        self._crowded, self._failed = Seldom(log), Seldom(log)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them alone."""
        yield

    async def run_until_exit(self) -> None:
        """Serve until told to end; then the listener is closed and open requests get a moment."""
        self._listener.setblocking(False)
        with self._listener:
            async with asyncio.TaskGroup() as group:
                self._accepting = group.create_task(self._accept(), name="accept HTTP connections")
                await self.serve(sockets=[])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, then end the connections."""
        self._accepting.cancel()
        await asyncio.wait((self._accepting,))
        self._listener.close()
        await super().shutdown(sockets)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except OSError as failed:
                if failed.errno not in _GONE:
                    self._failed.warning("cannot accept HTTP connections", reason=reason_of(failed))
                    self._cut_longest_waiting()
                    await asyncio.sleep(self.limits.accept)
                continue
            if not self._has_room(connection) and not self._cut_longest_waiting():
                connection.close()
                continue
            try:
                await loop.connect_accepted_socket(lambda: _Connection(self), connection)
            except OSError:  # the client is gone already
                connection.close()

    def _has_room(self, connection: socket.socket) -> bool:
        """Whether one more connection is within the bounds."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        count = len(self.server_state.connections)
        if connection.fileno() >= soft - soft // 4:  # the lowest free number: all below are taken
            self._share = count
        elif not count:
            self._share = self.limits.connections
        return count < self._share

    def _cut_longest_waiting(self) -> bool:
        """Make room; False when every connection has a request that is being answered."""
        longest = next(iter(self.waiting), None)
        self._crowded.warning("too many HTTP connections; closing those that wait longest for a request")
        if longest is not None:
            longest.cut()
        return longest is not None


class _Connection(H11Protocol):
    """uvicorn's protocol under a deadline at every moment of its life."""

    def __init__(self, server: Server) -> None:
        super().__init__(config=server.config, server_state=server.server_state, app_state={})
        self.logger = _MUTE
        self._limits, self._waiting = server.limits, server.waiting
        self._deadline: asyncio.TimerHandle | None = None
        self._answering: object = None  # the request that the deadline is about; None: the next one

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_request()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._follow()

    def handle_events(self) -> None:
        try:
            super().handle_events()
        except h11.ProtocolError:  # nonsense after the answer, which can have no other one
            self.cut()

    def send_400_response(self, msg: str) -> None:
        if self._current is None:
            super().send_400_response(msg)
        else:  # the answer is on its way
            self.cut()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._follow()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._waiting.pop(self, None)
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def cut(self) -> None:
        """Close at once, whatever is not sent."""
        self._waiting.pop(self, None)
        if self.cycle is not None:
            self.cycle.disconnected = True
        self.transport.abort()

    @property
    def _current(self) -> object:
        """The request that has no whole answer yet."""
        return None if self.cycle is None or self.cycle.response_complete else self.cycle

    def _follow(self) -> None:
        """Give a request that came, or the wait for the next one, its own deadline."""
        current = self._current
        if current is self._answering or self.transport.is_closing():
            return
        if current is None:
            self._wait_for_request()
        else:
            self._waiting.pop(self, None)
            self._expect(self._limits.answer)
        self._answering = current

    def _wait_for_request(self) -> None:
        self._waiting[self] = None
        self._expect(self._limits.head)

    def _expect(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(seconds, self.cut)
