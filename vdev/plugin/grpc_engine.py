"""gRPC's engine: the thread that waits for its sockets, of which a process has one.

It is there as long as there is a channel or a server. The last one that goes ends it, and waits for the thread's end in
whatever runs at that moment: in the event loop, although the channel was closed as it should be. Without a server, as
before the first list, that would be at the end of each question to the kubelet.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import grpc.aio


@contextmanager
def grpc_engine() -> Iterator[None]:
    """Keep the engine while the context lasts; it may end with that, so nothing should wait for the loop by then."""
    grpc.aio.init_grpc_aio()
    try:
        yield
    finally:
        grpc.aio.shutdown_grpc_aio()
