"""Registering a resource with the kubelet: one Register call, and which of its errors are final.

During Register the kubelet dials the plugin back (for up to 10 s) and asks for its options. So the plugin must be
serving already, and wait longer than that. A refusal is an UNKNOWN error with a text; two of them are final.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc

from ..errors import RegistrationRefused, SocketError, SocketUnreachable
from ..pb import deviceplugin_v1beta1_pb2 as pb
from ..pb import deviceplugin_v1beta1_pb2_grpc as rpc
from ..sockets.files import check_socket_path
from .kubelet_channel import kubelet_channel

VERSION = "v1beta1"
TIMEOUT = 15.0  # seconds; the kubelet may take 10 to dial back
_UNREACHABLE = "failed to dial device plugin"
_FINAL = ("is invalid", "is not supported")


async def register(
    kubelet_socket: Path,
    *,
    endpoint: str,
    resource: str,
    options: pb.DevicePluginOptions,
    served: Callable[[], Awaitable[bool]],
    version: str = VERSION,
) -> None:
    """Register a resource that is being served on `endpoint` (a base name in the kubelet's directory).

    A kubelet that starts removes all sockets, and listens after that. So `served`, which says whether the endpoint's
    socket is there, is called once this kubelet answers: what it removes is gone by then. Called earlier, the socket
    could vanish in between, and the kubelet would dial it in vain for ten seconds.

    Raises RegistrationRefused when the kubelet will never take it, SocketUnreachable when it could not dial the
    endpoint, SocketError when nobody answers or it may work later.
    """
    check_socket_path(kubelet_socket)
    request = pb.RegisterRequest(version=version, endpoint=endpoint, resource_name=resource, options=options)
    async with kubelet_channel(kubelet_socket) as channel:
        if not await _connected(channel):
            raise await _unanswered(kubelet_socket)
        if not await served():
            raise SocketError(f"the socket of {resource} was removed before its registration; a new one is made")
        try:
            await rpc.RegistrationStub(channel).Register(request, timeout=TIMEOUT)
        except grpc.aio.AioRpcError as failed:
            text = failed.details() or failed.code().name
            if failed.code() is grpc.StatusCode.UNKNOWN and any(mark in text for mark in _FINAL):
                raise RegistrationRefused(f"the kubelet refuses {resource}: {text}") from failed
            if failed.code() is grpc.StatusCode.UNAVAILABLE:
                raise await _unanswered(kubelet_socket) from failed
            if _UNREACHABLE in text:
                raise SocketUnreachable(f"the kubelet did not accept {resource}: {text}") from failed
            raise SocketError(f"the kubelet did not accept {resource}: {text}") from failed


async def _connected(channel: grpc.aio.Channel) -> bool:
    try:
        async with asyncio.timeout(TIMEOUT):  # noqa: TID251 - a deadline of gRPC, as that of the call itself
            state = channel.get_state(try_to_connect=True)
            while state in (grpc.ChannelConnectivity.IDLE, grpc.ChannelConnectivity.CONNECTING):
                await channel.wait_for_state_change(state)
                state = channel.get_state(try_to_connect=True)
    except TimeoutError:
        return False
    return state is grpc.ChannelConnectivity.READY


async def _unanswered(kubelet_socket: Path) -> SocketError:
    if await asyncio.to_thread(_forbidden, kubelet_socket):
        return SocketError(f"no permission to open {kubelet_socket}; run vdev as root, or give it access")
    return SocketError(f"no kubelet answers on {kubelet_socket}")


def _forbidden(path: Path) -> bool:
    """Whether the socket is there but this process may not open it; for gRPC that looks like no answer."""
    try:
        return path.exists() and not os.access(path, os.W_OK)
    except OSError:
        return True
