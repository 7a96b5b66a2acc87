"""A transport in memory: what gRPC does on unix sockets, in one process and by the time of the running loop.

Sockets are real files, bound and listened to, so whoever looks at them sees what gRPC leaves on the disk. Who
connects is led by the file to its server, and stays connected though the file be gone. Messages are bytes; those of a
call come in their order, each after a delay that the network draws. Deadlines, cancellation, status codes and texts are
gRPC's, as `tests/unit/worlds/test_transport_contract.py` compares. A transport belongs to one process: `kill` is its
SIGKILL.
"""

import asyncio
import contextlib
import contextvars
import os
import socket as sockets
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import grpc
import grpc.aio

from ..transport import Parameters, address
from .memory_calls import Answering, Calling, Ending, Streaming, serialized

_State = grpc.ChannelConnectivity
_BACKLOG = 4096  # nobody accepts: who connects for real only wants to know whether somebody listens
_RECEIVED = 4 * 1024 * 1024  # bytes; gRPC's limit where none is set


def _at_once(_by: str) -> float:
    return 0.0


def _ignored(*_: object) -> None:
    pass


class Network:
    """What the processes of one machine share: who listens where. `delay` draws how many seconds something of a process
    takes; `note` is told of each message.
    """

    def __init__(
        self, delay: Callable[[str], float] = _at_once, note: Callable[[Answering, str, bytes], None] = _ignored
    ) -> None:
        self.delay = delay
        self.note = note
        self.listening: dict[tuple[int, int], MemoryServer] = {}  # by device and inode
        self._context = contextvars.copy_context()  # of no process: what was sent arrives though its sender be dead

    def later(self, seconds: float, action: Callable[..., object], *args: Any) -> asyncio.Handle:
        """Do something after so long, whatever becomes of the process that asks for it."""
        loop = asyncio.get_running_loop()
        if seconds <= 0:
            return loop.call_soon(action, *args, context=self._context)
        return loop.call_later(seconds, action, *args, context=self._context)


class MemoryTransport:
    """The transport of one process."""

    def __init__(self, network: Network, process: str = "") -> None:
        self.network = network
        self.process = process
        self._servers: list[MemoryServer] = []
        self._channels: list[MemoryChannel] = []

    def server(self, parameters: Parameters = ()) -> "MemoryServer":
        """A server that listens nowhere yet."""
        del parameters  # of size, and of how sockets are shared: none of them is shared
        server = MemoryServer(self.network, self.process)
        self._servers.append(server)
        return server

    def channel(self, socket: Path | str, parameters: Parameters = ()) -> "MemoryChannel":
        """A channel to whoever listens at this socket."""
        channel = MemoryChannel(self.network, self.process, str(socket), dict(parameters))
        self._channels = [each for each in self._channels if not each.closed]
        self._channels.append(channel)
        return channel

    @contextlib.contextmanager
    def engine(self) -> Iterator[None]:
        """Nothing is needed."""
        yield

    def kill(self) -> None:
        """End as a process that is killed: connections break, sockets stay behind and refuse."""
        for server in self._servers:
            server.kill()
        for channel in self._channels:
            channel.kill()
        self._servers.clear()
        self._channels.clear()


class Connection:
    """Between a channel and a server, with the calls that are under way. Broken for good when either end goes."""

    def __init__(self, channel: "MemoryChannel", server: "MemoryServer") -> None:
        self.channel = channel
        self.server = server
        self.calls: dict[Calling, Answering] = {}
        self.broken = False

    def call(self, calling: Calling, method: str, request: bytes) -> None:
        """Send a request."""
        network = self.channel.network
        server = self.server
        ends = server.process, self.channel.process
        answering = Answering(network, calling, method, request, server=server, ends=ends, over=self._end)
        self.calls[calling] = answering
        network.note(answering, "request", request)
        network.later(network.delay(server.process), self._arrive, answering)

    def cancel(self, calling: Calling) -> None:
        """The caller waits no longer."""
        answering = self.calls.pop(calling, None)
        if answering is not None:
            network = self.channel.network
            network.later(network.delay(self.server.process), answering.cancel)

    def end(self, text: str, code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE) -> None:
        """Break it from the server's side: calls fail with this text."""
        if self.broken:
            return
        self.broken = True
        network = self.channel.network
        for calling, answering in list(self.calls.items()):
            answering.cancel()
            answering.tell(calling.fail, code, text)
        self.calls.clear()
        network.later(network.delay(self.channel.process), self.channel.lost, self)
        self.server.forget(self)

    def hang_up(self) -> None:
        """Break it from the client's side."""
        if self.broken:
            return
        self.broken = True
        for answering in list(self.calls.values()):
            self.channel.network.later(self.channel.network.delay(self.server.process), answering.cancel)
        self.calls.clear()
        self.server.forget(self)

    def _arrive(self, answering: Answering) -> None:
        if not self.broken and answering.calling in self.calls:
            self.server.answer(answering)

    def _end(self, calling: Calling) -> None:
        self.calls.pop(calling, None)
        self.server.settled()


class MemoryServer(grpc.aio.Server):
    """What is used of gRPC's server."""

    def __init__(self, network: Network, process: str) -> None:
        self.process = process
        self._network = network
        self._context = contextvars.copy_context()  # of the process: its handlers end with it
        self._handlers: list[grpc.GenericRpcHandler] = []
        self._sockets: dict[tuple[int, int], tuple[sockets.socket, str]] = {}
        self._connections: dict[Connection, None] = {}
        self._waiting: list[MemoryChannel] = []  # connected before it serves
        self._serves = self._stopped = False
        self._idle: asyncio.Event = asyncio.Event()

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Serve these as well."""
        self._handlers += generic_rpc_handlers

    def add_registered_method_handlers(self, service_name: str, method_handlers: Any) -> None:
        """Nothing: what is registered is among the generic handlers as well."""

    def add_insecure_port(self, address: str) -> int:
        """Bind a socket, which takes the place of another one. Raises RuntimeError."""
        path = address.removeprefix("unix:")
        _remove_socket(path)
        made = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
        try:
            made.bind(path)
            made.listen(_BACKLOG)
        except OSError as failed:
            made.close()
            text = "set GRPC_VERBOSITY=debug environment variable to see detailed error message."
            raise RuntimeError(f"Failed to bind to address {address}; {text}") from failed
        seen = Path(path).stat()
        self._sockets[seen.st_dev, seen.st_ino] = made, path
        self._network.listening[seen.st_dev, seen.st_ino] = self
        return 1

    def add_secure_port(self, address: str, server_credentials: Any) -> int:
        """Not used."""
        raise NotImplementedError

    async def start(self) -> None:
        """Serve; who connected before is served now."""
        self._serves = True
        waiting, self._waiting = self._waiting, []
        for channel in waiting:
            channel.connect_to(self)

    async def stop(self, grace: float | None) -> None:
        """Let go of the sockets at once, and of the calls after so many seconds or when they are over."""
        already, self._stopped = self._stopped, True
        if not already:
            for made, path in self._let_go():
                _remove_socket(path)
                made.close()
        if any(each.calls for each in self._connections) and grace:
            self._idle.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await self._idle.wait()
        for connection in list(self._connections):
            connection.end("Cancelling all calls")

    async def wait_for_termination(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - gRPC's own
        """Not used."""
        raise NotImplementedError

    def accept(self, channel: "MemoryChannel") -> Connection | None:
        """A connection to this channel; None while it does not serve yet: it will connect by itself."""
        if not self._serves:
            self._waiting.append(channel)
            return None
        made = Connection(channel, self)
        self._connections[made] = None
        return made

    def answer(self, answering: Answering) -> None:
        """Let the handler of the method answer."""
        details = _Details(answering.method)
        handler = next((found for each in self._handlers if (found := each.service(details))), None)
        answering.begin(handler, self._context)

    def forget(self, connection: Connection) -> None:
        """A connection is over."""
        self._connections.pop(connection, None)
        self.settled()

    def settled(self) -> None:
        """A call is over."""
        if not any(each.calls for each in self._connections):
            self._idle.set()

    def kill(self) -> None:
        """End as its process does."""
        self._stopped = True
        for made, _ in self._let_go():
            made.close()
        for connection in list(self._connections):
            connection.end("Socket closed")

    def _let_go(self) -> list[tuple[sockets.socket, str]]:
        mine, self._sockets = self._sockets, {}
        for identity in mine:
            self._network.listening.pop(identity, None)
        for channel in self._waiting:
            channel.refuse("Connection reset by peer")
        self._waiting.clear()
        return list(mine.values())


class _Details(grpc.HandlerCallDetails):
    """What a generic handler is asked with."""

    def __init__(self, method: str) -> None:
        self.method = method
        self.invocation_metadata = ()


class MemoryChannel(grpc.aio.Channel):
    """What is used of gRPC's channel."""

    def __init__(self, network: Network, process: str, path: str, parameters: dict[str, Any]) -> None:
        self.network = network
        self.process = process
        self.limit: int = parameters.get("grpc.max_receive_message_length", _RECEIVED)
        self._path = path
        self._first = parameters.get("grpc.initial_reconnect_backoff_ms", 1000) / 1000
        self._most = parameters.get("grpc.max_reconnect_backoff_ms", 120_000) / 1000
        self._pause = self._first
        self._state = _State.IDLE
        self._trouble = ""
        self._dialling = False
        self._changed: asyncio.Event = asyncio.Event()
        self._connection: Connection | None = None
        self._calls: dict[Calling, tuple[str, bytes]] = {}  # that wait for a connection
        self._running: dict[Calling, Connection] = {}

    # --- what is asked of it ------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether it is closed for good."""
        return self._state is _State.SHUTDOWN

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close(None)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:  # noqa: FBT001, FBT002 - gRPC's own
        """What it is doing."""
        state = self._state
        if try_to_connect and state is _State.IDLE:
            self._dial()
        return state

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Return once it is in another state."""
        while self._state is last_observed_state:
            if self.closed:
                raise grpc.aio.UsageError("Channel is closed.")
            await self._changed.wait()

    async def channel_ready(self) -> None:
        """Return once it is connected."""
        while (state := self.get_state(try_to_connect=True)) is not _State.READY:
            await self.wait_for_state_change(state)

    async def close(self, grace: float | None = None) -> None:
        """Hang up: what is under way is cancelled."""
        del grace
        if self.closed:
            return
        for calling in [*self._calls, *self._running]:
            calling.abandon()
        self._end()

    def unary_unary(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None, **_: object
    ) -> Any:
        """Makes calls of a method that answers once."""
        return self._method(Ending, method, request_serializer or bytes, response_deserializer or bytes)

    def unary_stream(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None, **_: object
    ) -> Any:
        """Makes calls of a method that answers with a stream."""
        return self._method(Streaming, method, request_serializer or bytes, response_deserializer or bytes)

    def stream_unary(self, *_: Any, **__: Any) -> Any:
        """Not used."""
        raise NotImplementedError

    def stream_stream(self, *_: Any, **__: Any) -> Any:
        """Not used."""
        raise NotImplementedError

    # --- calls --------------------------------------------------------------------------------------------------------

    def _method(
        self, kind: type[Calling], method: str, serialize: Callable[[Any], bytes], deserialize: Callable[[bytes], Any]
    ) -> Callable[..., Calling]:
        def call(request: Any, *, timeout: float | None = None) -> Calling:
            if self.closed:
                raise grpc.aio.UsageError("Channel is closed.")
            calling = kind(self.network, deserialize, limit=self.limit, over=self._over)
            calling.expire_after(timeout)
            self._begin(calling, method, serialized(request, by=serialize))
            return calling

        return call

    def _begin(self, calling: Calling, method: str, request: bytes) -> None:
        if self._connection is not None and self._connection.broken:
            self.lost(self._connection)  # a call that never reached the server goes to the next one
        if self._connection is not None:
            self._send(self._connection, calling, method, request)
        elif self._state is _State.TRANSIENT_FAILURE:
            self._fail(calling)
        else:
            self._calls[calling] = method, request
            self._dial()

    def _send(self, connection: Connection, calling: Calling, method: str, request: bytes) -> None:
        self._running[calling] = connection
        connection.call(calling, method, request)

    def _over(self, calling: Calling) -> None:
        """A call is over on this side: answered, failed, cancelled, or too late."""
        self._calls.pop(calling, None)
        connection = self._running.pop(calling, None)
        if connection is not None:
            connection.cancel(calling)

    def _fail(self, calling: Calling) -> None:
        text = f"failed to connect to all addresses; last error: FAILED_PRECONDITION: {self._trouble}"
        self.network.later(0, calling.fail, grpc.StatusCode.UNAVAILABLE, text)

    # --- the connection -----------------------------------------------------------------------------------------------

    def _dial(self) -> None:
        if not self._dialling:
            self._dialling = True
            if self._state is _State.IDLE:
                self._become(_State.CONNECTING)
            self.network.later(self.network.delay(self.process), self._look)

    def _look(self) -> None:
        if self.closed:
            return
        try:
            seen = os.stat(self._path)  # noqa: PTH116 - a path made of it would cost more than looking
        except OSError as failed:
            self.refuse(os.strerror(failed.errno or 0))
            return
        server = self.network.listening.get((seen.st_dev, seen.st_ino))
        if server is None:
            self.refuse("Connection refused")
        else:
            self.connect_to(server)

    def connect_to(self, server: MemoryServer) -> None:
        """The server was found, or serves now."""
        if self.closed:
            return
        connection = server.accept(self)
        if connection is None:
            return
        self._dialling, self._connection, self._pause = False, connection, self._first
        self._become(_State.READY)
        waiting, self._calls = self._calls, {}
        for calling, (method, request) in waiting.items():
            self._send(connection, calling, method, request)

    def refuse(self, why: str) -> None:
        """Nobody is there: calls fail, and it is tried again after a pause."""
        if self.closed:
            return
        where = address(self._path)
        self._trouble = f"{where}: connect failed: addr: {where} error: {why}"
        self._become(_State.TRANSIENT_FAILURE)
        waiting, self._calls = self._calls, {}
        for calling in waiting:
            self._fail(calling)
        self.network.later(self._pause, self._look)
        self._pause = min(self._pause * 1.6, self._most)

    def lost(self, connection: Connection) -> None:
        """The server has gone."""
        if self._connection is connection and not self.closed:
            self._connection = None
            self._become(_State.IDLE)

    def kill(self) -> None:
        """End as its process does: nobody is left to be told."""
        if not self.closed:
            self._end()

    def _end(self) -> None:
        if self._connection is not None:
            self._connection.hang_up()
        self._connection = None
        self._calls.clear()
        self._running.clear()
        self._become(_State.SHUTDOWN)

    def _become(self, state: grpc.ChannelConnectivity) -> None:
        if state is not self._state:
            self._state = state
            self._changed.set()
            self._changed = asyncio.Event()


def _remove_socket(path: str) -> None:
    """Remove a socket, whoever made it; anything else stays."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(Path(path).lstat().st_mode):
            Path(path).unlink()
