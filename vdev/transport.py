"""What gRPC servers and channels on unix sockets are made by: gRPC itself, or what stands in for it.

The plugin, the DRA drivers and the embedded kubelet ask a `Transport` for what they serve and call with, and know it by
gRPC's own abstract classes. `GRPC` is the real one, and adds nothing to a call: it hands out gRPC's own objects. The
simulated worlds have one in memory, whose time is theirs.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import grpc.aio

Parameters = Sequence[tuple[str, Any]]
"""Of a server or channel, by gRPC's names for them (`grpc.max_receive_message_length`)."""


class Transport(Protocol):
    """Makes servers and channels, which belong to the running loop."""

    def server(self, parameters: Parameters = ()) -> grpc.aio.Server:
        """A server that listens nowhere yet; what it is told to listen on is `address` of a path."""

    def channel(self, socket: Path | str, parameters: Parameters = ()) -> grpc.aio.Channel:
        """A channel to the server that listens at this socket; it connects when something is asked of it."""

    def engine(self) -> AbstractContextManager[None]:
        """Keep running, while the context lasts, what servers and channels need."""


class GrpcTransport:
    """gRPC over real sockets."""

    def server(self, parameters: Parameters = ()) -> grpc.aio.Server:
        """GRPC's own server."""
        return grpc.aio.server(options=parameters)

    def channel(self, socket: Path | str, parameters: Parameters = ()) -> grpc.aio.Channel:
        """GRPC's own channel."""
        return grpc.aio.insecure_channel(address(socket), options=parameters)

    @contextmanager
    def engine(self) -> Iterator[None]:
        """Keep gRPC's engine: the thread that waits for its sockets, of which a process has one.

        It is there as long as there is a channel or a server. The last one that goes ends it, and waits for the
        thread's end in whatever runs at that moment: in the event loop, although the channel was closed as it should
        be. Without a server, as before the first list, that would be at the end of each question to the kubelet. It may
        end with the context, so nothing should wait for the loop by then.
        """
        grpc.aio.init_grpc_aio()
        try:
            yield
        finally:
            grpc.aio.shutdown_grpc_aio()


def address(socket: Path | str) -> str:
    """What gRPC calls this socket."""
    return f"unix:{socket}"


GRPC = GrpcTransport()
