"""A gRPC channel to one of the kubelet's sockets."""

from pathlib import Path

import grpc

_OPTIONS = (
    ("grpc.default_authority", "localhost"),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", -1),
)


def kubelet_channel(socket: Path) -> grpc.aio.Channel:
    """A channel of its own for each caller: no proxy, no shared connection, answers of any size."""
    return grpc.aio.insecure_channel(f"unix:{socket}", options=_OPTIONS)
