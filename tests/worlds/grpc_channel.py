"""gRPC in memory instead of unix sockets, in one process and on the time of the running loop.

A channel finds a server by its socket file (`grpc_server`), and stays connected if the file is deleted. Messages are
bytes; those of a call arrive in order, each after a delay that the network draws. Deadlines, cancellation, status codes
and texts are those of gRPC (`tests/unit/worlds/test_grpc_in_memory.py` compares them). Servers and channels belong to
the process that creates them, and end with it.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self
from unittest import mock

import grpc
import grpc.aio

from tests.worlds.grpc_calls import Calling, Ending, Network, Streaming, serialized
from tests.worlds.grpc_server import Connection, MemoryServer
from tests.worlds.virtual_time import PROCESS

_State = grpc.ChannelConnectivity


@contextlib.contextmanager
def installed(network: Network) -> Iterator[None]:
    """Replace gRPC's servers and channels by those of this network inside the context."""

    def server(*, options: Sequence[tuple[str, Any]] = ()) -> MemoryServer:
        del options  # about sizes and the sharing of sockets; no socket is shared
        made = MemoryServer(network, _process())
        _ends_with_its_process(made)
        return made

    def channel(target: str, options: Sequence[tuple[str, Any]] = ()) -> MemoryChannel:
        made = MemoryChannel(network, _process(), target.removeprefix("unix:"), dict(options))
        _ends_with_its_process(made)
        return made

    def nothing() -> None:
        pass

    with mock.patch.multiple(
        grpc.aio, server=server, insecure_channel=channel, init_grpc_aio=nothing, shutdown_grpc_aio=nothing
    ):
        yield


def _process() -> str:
    """The name of the running process. Only the kubelet is not a `Process`."""
    process = PROCESS.get()
    return process.name if process else "kubelet"


def _ends_with_its_process(made: "MemoryServer | MemoryChannel") -> None:
    process = PROCESS.get()
    if process is not None:
        process.killed.append(made.kill)


class MemoryChannel:
    """The used part of gRPC's channel."""

    def __init__(self, network: Network, process: str, path: str, parameters: dict[str, Any]) -> None:
        self.network = network
        self.process = process
        self._path = path
        self._first = parameters.get("grpc.initial_reconnect_backoff_ms", 1000) / 1000
        self._most = parameters.get("grpc.max_reconnect_backoff_ms", 120_000) / 1000
        self._pause = self._first
        self._state = _State.IDLE
        self._trouble = ""
        self._dialling = False
        self._changed: asyncio.Event = asyncio.Event()
        self._connection: Connection | None = None
        self._calls: dict[Calling, tuple[str, bytes]] = {}  # those that wait for a connection
        self._running: dict[Calling, Connection] = {}

    # --- gRPC's interface ---------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._state is _State.SHUTDOWN

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close(None)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """The state of the channel."""
        state = self._state
        if try_to_connect and state is _State.IDLE:
            self._dial()
        return state

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        while self._state is last_observed_state:
            if self.closed:
                raise grpc.aio.UsageError("Channel is closed.")
            await self._changed.wait()

    async def channel_ready(self) -> None:
        while (state := self.get_state(try_to_connect=True)) is not _State.READY:
            await self.wait_for_state_change(state)

    async def close(self, grace: float | None = None) -> None:
        del grace
        if self.closed:
            return
        for calling in [*self._calls, *self._running]:
            calling.abandon()
        self._end()

    def unary_unary(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None, **_: object
    ) -> Any:
        """A callable for a method with one answer."""
        return self._method(Ending, method, request_serializer or bytes, response_deserializer or bytes)

    def unary_stream(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None, **_: object
    ) -> Any:
        """A callable for a method with a stream of answers."""
        return self._method(Streaming, method, request_serializer or bytes, response_deserializer or bytes)

    # --- calls --------------------------------------------------------------------------------------------------------

    def _method(
        self, kind: type[Calling], method: str, serialize: Callable[[Any], bytes], deserialize: Callable[[bytes], Any]
    ) -> Callable[..., Calling]:
        def call(request: Any, *, timeout: float | None = None) -> Calling:
            if self.closed:
                raise grpc.aio.UsageError("Channel is closed.")
            calling = kind(self.network, deserialize, over=self._over)
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
        """Forget a call that is answered, failed, cancelled, or too late."""
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
            self._refuse(os.strerror(failed.errno or 0))
            return
        server = self.network.listening.get((seen.st_dev, seen.st_ino))
        if server is None:
            self._refuse("Connection refused")
        else:
            self._connect_to(server)

    def _connect_to(self, server: MemoryServer) -> None:
        connection = server.accept(self)
        self._dialling, self._connection, self._pause = False, connection, self._first
        self._become(_State.READY)
        waiting, self._calls = self._calls, {}
        for calling, (method, request) in waiting.items():
            self._send(connection, calling, method, request)

    def _refuse(self, why: str) -> None:
        """Fail the calls, because there is no server, and try again after a pause."""
        where = f"unix:{self._path}"
        self._trouble = f"{where}: connect failed: addr: {where} error: {why}"
        self._become(_State.TRANSIENT_FAILURE)
        waiting, self._calls = self._calls, {}
        for calling in waiting:
            self._fail(calling)
        self.network.later(self._pause, self._look)
        self._pause = min(self._pause * 1.6, self._most)

    def lost(self, connection: Connection) -> None:
        if self._connection is connection and not self.closed:
            self._connection = None
            self._become(_State.IDLE)

    def kill(self) -> None:
        """End with its process, without notifying callers."""
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
