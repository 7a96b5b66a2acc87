"""gRPC in memory, the server's side: sockets, their servers, and the connections.

Sockets are real files that listen, so they look the same on the disk as those of gRPC.
"""

import asyncio
import contextlib
import contextvars
import socket as sockets
import stat
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import grpc

from tests.worlds.grpc_calls import Answering, Calling, Network

if TYPE_CHECKING:
    from tests.worlds.grpc_channel import MemoryChannel

_BACKLOG = 4096  # connections are never accepted: real clients only test whether the socket listens


class Connection:
    """A connection between a channel and a server, with its calls. It is broken forever when one of the two ends."""

    def __init__(self, channel: "MemoryChannel", server: "MemoryServer") -> None:
        self.server = server
        self.calls: dict[Calling, Answering] = {}
        self.broken = False
        self._channel = channel
        self._network = server.network

    def call(self, calling: Calling, method: str, request: bytes) -> None:
        network, server = self._network, self.server
        ends = server.process, self._channel.process
        answering = Answering(network, calling, method, request, server=server, ends=ends, over=self._end)
        self.calls[calling] = answering
        network.note(answering, "request", request)
        network.later(network.delay(server.process), self._arrive, answering)

    def cancel(self, calling: Calling) -> None:
        answering = self.calls.pop(calling, None)
        if answering is not None:
            self._network.later(self._network.delay(self.server.process), answering.cancel)

    def end(self, text: str) -> None:
        """Break the connection from the server's side: calls fail with this text."""
        if self.broken:
            return
        for calling, answering in self._break():
            answering.cancel()
            answering.tell(calling.fail, grpc.StatusCode.UNAVAILABLE, text)
        self._network.later(self._network.delay(self._channel.process), self._channel.lost, self)

    def hang_up(self) -> None:
        """Break the connection from the client's side."""
        if self.broken:
            return
        for _, answering in self._break():
            self._network.later(self._network.delay(self.server.process), answering.cancel)

    def _break(self) -> list[tuple[Calling, Answering]]:
        """Mark the connection as broken. Returns the unfinished calls."""
        calls, self.calls, self.broken = self.calls, {}, True
        self.server.forget(self)
        return list(calls.items())

    def _arrive(self, answering: Answering) -> None:
        if not self.broken and answering.calling in self.calls:
            self.server.answer(answering)

    def _end(self, calling: Calling) -> None:
        self.calls.pop(calling, None)
        self.server.settled()


class MemoryServer:
    """The used part of gRPC's server."""

    def __init__(self, network: Network, process: str) -> None:
        self.process = process
        self.network = network
        self._context = contextvars.copy_context()  # handlers run in the server's process, and end with it
        self._handlers: list[grpc.GenericRpcHandler] = []
        self._sockets: dict[tuple[int, int], tuple[sockets.socket, str]] = {}
        self._connections: dict[Connection, None] = {}
        self._stopped = False
        self._idle: asyncio.Event = asyncio.Event()

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        self._handlers += generic_rpc_handlers

    def add_registered_method_handlers(self, service_name: str, method_handlers: Any) -> None:
        pass  # they are among the generic handlers too

    def add_insecure_port(self, address: str) -> int:
        """Bind a socket, which replaces another one. Raises RuntimeError."""
        path = address.removeprefix("unix:")
        remove_socket(path)
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
        self.network.listening[seen.st_dev, seen.st_ino] = self
        return 1

    async def start(self) -> None:
        pass  # the server serves as soon as it listens

    async def stop(self, grace: float | None) -> None:
        """Close the sockets at once, and the calls after so many seconds or when they are over."""
        already, self._stopped = self._stopped, True
        if not already:
            for made, path in self._let_go():
                remove_socket(path)
                made.close()
        if any(each.calls for each in self._connections) and grace:
            self._idle.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await self._idle.wait()
        for connection in list(self._connections):
            connection.end("Cancelling all calls")

    def accept(self, channel: "MemoryChannel") -> Connection:
        made = Connection(channel, self)
        self._connections[made] = None
        return made

    def answer(self, answering: Answering) -> None:
        details: Any = SimpleNamespace(method=answering.method)
        handler = next((found for each in self._handlers if (found := each.service(details))), None)
        answering.begin(handler, self._context)

    def forget(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self.settled()

    def settled(self) -> None:
        if not any(each.calls for each in self._connections):
            self._idle.set()

    def kill(self) -> None:
        self._stopped = True
        for made, _ in self._let_go():
            made.close()
        for connection in list(self._connections):
            connection.end("Socket closed")

    def _let_go(self) -> list[tuple[sockets.socket, str]]:
        mine, self._sockets = self._sockets, {}
        for identity in mine:
            self.network.listening.pop(identity, None)
        return list(mine.values())


def remove_socket(path: str) -> None:
    """Remove a socket, no matter who made it; other files stay."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(Path(path).lstat().st_mode):
            Path(path).unlink()
