"""TCP in memory: what an event loop connects and listens with, so that what speaks HTTP needs no seam for it.

A loop that is a `MemoryTcp` has a network of its own, whose ports nobody else sees. Above it everything is as on
sockets: the client's library with its pool of connections, the bytes of HTTP, the server. What travels takes as long as
the network draws, and comes in its order. A network that is `cut` delivers nothing until that is over, as a
broken link does; what was sent meanwhile comes then.
"""

import asyncio
import contextvars
import errno
import functools
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

_MARGIN = 1e-6  # seconds between what arrives in one direction, so that it stays in its order
_Sent = bytes | OSError | None
"""What travels: bytes, the end of them, or a connection's end by force."""


class MemoryNetwork:
    """Who listens at which port, and what is under way. `delay` draws the seconds that something travels."""

    def __init__(self, delay: Callable[[], float] = lambda: 0.0) -> None:
        self.delay = delay
        self.listening: dict[int, MemoryListener] = {}
        self.opened = 0
        self.on_open: Callable[[MemoryEnd], None] = lambda _end: None  # told of the end of each that connects
        self._cut: list[MemoryEnd] | None = None  # those for whom something waits
        self._waiting: list[asyncio.Future[None]] = []  # who connects meanwhile
        self._context = contextvars.copy_context()  # of nobody: what was sent arrives though its sender be gone

    @property
    def is_cut(self) -> bool:
        """Whether nothing gets through."""
        return self._cut is not None

    def cut(self) -> None:
        """Deliver nothing for now."""
        if self._cut is None:
            self._cut = []

    def mend(self) -> None:
        """Deliver again, and what was sent meanwhile."""
        held, self._cut = self._cut or [], None
        for end in dict.fromkeys(held):
            end.deliver()
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    async def connected(self) -> None:
        """Wait until something gets through."""
        while self.is_cut:
            self._waiting.append(asyncio.get_running_loop().create_future())
            await self._waiting[-1]

    def hold(self, end: "MemoryEnd") -> bool:
        """Whether something for this end has to wait."""
        if self._cut is None:
            return False
        self._cut.append(end)
        return True

    def later(self, moment: float, action: Callable[[], object]) -> None:
        """Do something then."""
        asyncio.get_running_loop().call_at(moment, action, context=self._context)


class MemoryTcp(asyncio.SelectorEventLoop):
    """A loop whose connections and servers are those of `network`, for addresses alone and without certificates."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.network = MemoryNetwork()

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str = "", port: int = 0, *, ssl: Any = None, **_options: Any
    ) -> tuple[Any, Any]:
        """Connect. Raises ConnectionRefusedError."""
        assert not ssl, "there are no certificates in memory"
        await asyncio.sleep(self.network.delay())
        await self.network.connected()
        listener = self.network.listening.get(port)
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed ({host!r}, {port})")
        self.network.opened += 1
        protocol = protocol_factory()
        end = MemoryEnd(self, protocol, (host, 30_000 + self.network.opened), (host, port))
        listener.accept(end)
        self.network.on_open(end)
        protocol.connection_made(end)
        return end, protocol

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str = "", port: int = 0, *, ssl: Any = None, **_options: Any
    ) -> "MemoryListener":
        """Listen. Raises OSError."""
        assert not ssl, "there are no certificates in memory"
        network = self.network
        port = port or next(each for each in range(20_000, 30_000) if each not in network.listening)
        if port in network.listening:
            raise OSError(errno.EADDRINUSE, f"address {(host, port)!r}: already in use")
        made = network.listening[port] = MemoryListener(self, protocol_factory, host, port)
        return made


class MemoryListener(asyncio.AbstractServer):
    """Somebody listens at a port."""

    def __init__(self, loop: MemoryTcp, factory: Callable[[], Any], host: str, port: int) -> None:
        self._loop = loop
        self._factory = factory
        self._name = host, port
        self._context = contextvars.copy_context()

    @property
    def sockets(self) -> "tuple[_Socket, ...]":
        """What it listens at."""
        return (_Socket(self._name, ("", 0), readable=lambda: False),)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Its loop."""
        return self._loop

    def is_serving(self) -> bool:
        """Whether it accepts."""
        return self._loop.network.listening.get(self._name[1]) is self

    async def start_serving(self) -> None:
        """It does from the start."""

    async def serve_forever(self) -> None:
        """Not used."""
        raise NotImplementedError

    def accept(self, other: "MemoryEnd") -> None:
        """Somebody connects."""
        protocol = self._context.run(self._factory)
        end = self._context.run(MemoryEnd, self._loop, protocol, self._name, other.name)
        end.other, other.other = other, end
        self._context.run(protocol.connection_made, end)

    def close(self) -> None:
        """Accept nobody from now on."""
        if self.is_serving():
            del self._loop.network.listening[self._name[1]]

    async def wait_closed(self) -> None:
        """Nothing is left to wait for."""


class MemoryEnd(asyncio.Transport):
    """One end of a connection, in the context in which it was made."""

    other: "MemoryEnd"

    def __init__(self, loop: MemoryTcp, protocol: Any, name: tuple[str, int], peer: tuple[str, int]) -> None:
        super().__init__({"peername": peer, "sockname": name, "socket": _Socket(name, peer, self._is_readable)})
        self.name = name
        self._loop = loop
        self._protocol = protocol
        self._context = contextvars.copy_context()
        self._arriving: deque[tuple[float, _Sent]] = deque()
        self._arrived: deque[_Sent] = deque()
        self._last = 0.0  # when what was sent to this end last arrives
        self._reading = True
        self._closing = self._ended = self._handing = self._muted = False

    # --- what is sent -------------------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send."""
        if data and not (self._closing or self._ended or self._muted):
            self.other.send(bytes(data))

    def can_write_eof(self) -> bool:
        """It can be closed in one direction."""
        return True

    def write_eof(self) -> None:
        """Send no more."""
        if not self._ended and not self._closing:
            self._ended = True
            self.other.send(None)

    def close(self) -> None:
        """Hang up, once what was written is sent."""
        if not self._closing:
            self.write_eof()
            self._lost(None)

    def abort(self) -> None:
        """Hang up; what was written is on its way already."""
        self.close()

    def mute(self) -> None:
        """What is written from now on gets lost."""
        self._muted = True

    def reset(self) -> None:
        """Break the connection by force, for both ends."""
        if not self._closing:
            self._ended = True
            why = ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
            self.other.send(why)
            self._lost(why)

    def die(self) -> None:
        """Its process is killed: the system hangs up, and nobody is told on this side."""
        if not self._closing:
            self.write_eof()
            self._closing = True

    def is_closing(self) -> bool:
        """Whether it is closed."""
        return self._closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever buffered."""

    # --- what arrives -------------------------------------------------------------------------------------------------

    def send(self, what: _Sent) -> None:
        """Something is on its way to this end."""
        moment = max(self._loop.time() + self._loop.network.delay(), self._last + _MARGIN)
        self._last = moment
        self._arriving.append((moment, what))
        self._loop.network.later(moment, self.deliver)

    def deliver(self) -> None:
        """Take what has come by now."""
        if self._arriving and self._loop.network.hold(self):
            return
        now = self._loop.time() + _MARGIN / 2
        while self._arriving and self._arriving[0][0] <= now:
            self._arrived.append(self._arriving.popleft()[1])
        self._hand_over()

    def _is_readable(self) -> bool:
        return bool(self._arrived) or self._closing

    def is_reading(self) -> bool:
        """Whether what comes is taken."""
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        """Take nothing for now."""
        self._reading = False

    def resume_reading(self) -> None:
        """Take what comes."""
        self._reading = True
        self._hand_over()

    def get_protocol(self) -> Any:
        """Who is told."""
        return self._protocol

    def _hand_over(self) -> None:
        if self._arrived and not self._handing:
            self._handing = True
            self._loop.call_soon(self._take, context=self._context)

    def _take(self) -> None:
        self._handing = False
        while self._arrived and self._reading and not self._closing:
            what = self._arrived.popleft()
            if isinstance(what, bytes):
                self._protocol.data_received(what)
            elif what is not None:
                self._lost(what)
            elif not self._protocol.eof_received():
                self.close()

    def _lost(self, why: Exception | None) -> None:
        self._closing = True
        self._loop.call_soon(self._protocol.connection_lost, why, context=self._context)


class _Socket:
    """What is asked of a connection's socket: whether it is readable, which poll says of a file that is or is not."""

    family = socket.AF_INET

    def __init__(self, name: tuple[str, int], peer: tuple[str, int], readable: Callable[[], bool]) -> None:
        self._name = name
        self._peer = peer
        self._readable = readable

    def getsockname(self) -> tuple[str, int]:
        """Its own address."""
        return self._name

    def getpeername(self) -> tuple[str, int]:
        """That of the other end."""
        return self._peer

    def setsockopt(self, *_option: Any) -> None:
        """It has none."""

    def fileno(self) -> int:
        """A file as readable as the connection is at this moment."""
        return _file(readable=self._readable())


@functools.cache
def _file(*, readable: bool) -> int:
    return os.eventfd(int(readable), os.EFD_CLOEXEC)
