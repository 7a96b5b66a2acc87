"""A transport in memory: what gRPC does on unix sockets, in one process and by the time of the running loop.

Who connects is led by a socket's file to its server (`memory_server`), and stays connected though the file be gone.
Messages are bytes; those of a call come in their order, each after a delay that the network draws. Deadlines,
cancellation, status codes and texts are gRPC's, as `tests/unit/worlds/test_transport_contract.py` compares. A transport
belongs to one process: `kill` is its SIGKILL.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import grpc
import grpc.aio

from ...transport import Parameters, address
from .memory_calls import Calling, Ending, Streaming, serialized
from .memory_server import Connection, MemoryServer, Network

_State = grpc.ChannelConnectivity
_RECEIVED = 4 * 1024 * 1024  # bytes; gRPC's limit where none is set


class MemoryTransport:
    """The transport of one process."""

    def __init__(self, network: Network, process: str = "") -> None:
        self.network = network
        self.process = process
        self._servers: list[MemoryServer] = []
        self._channels: list[MemoryChannel] = []

    def server(self, parameters: Parameters = ()) -> MemoryServer:
        """A server that listens nowhere yet."""
        del parameters  # of size, and of how sockets are shared: none of them is shared
        server = MemoryServer(self.network, self.process)
        self._servers.append(server)
        return server

    def channel(self, socket: Path | str, parameters: Parameters = ()) -> "MemoryChannel":
        """A channel to the server that listens at this socket."""
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

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
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
            seen = os.stat(self._path)
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
