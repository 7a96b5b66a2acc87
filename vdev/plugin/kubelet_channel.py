"""A gRPC channel to one of the kubelet's sockets."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc

from ..aio.cancellation import raise_if_cancelled

_PARAMETERS = (
    ("grpc.default_authority", "localhost"),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", -1),
)


@asynccontextmanager
async def kubelet_channel(socket: Path) -> AsyncIterator[grpc.aio.Channel]:
    """A channel of its own for each caller: no proxy, no shared connection, answers of any size.

    A cancellation that gRPC lost inside is raised at the end.
    """
    async with channel_to(socket) as channel:
        try:
            yield channel
        finally:
            raise_if_cancelled()


def channel_to(socket: Path) -> grpc.aio.Channel:
    """Such a channel, for who closes it when it is time."""
    return grpc.aio.insecure_channel(f"unix:{socket}", options=_PARAMETERS)
