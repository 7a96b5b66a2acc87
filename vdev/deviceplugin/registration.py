"""The kubelet's socket (`KubeletSocket`), connections to it, and the Register call.

During Register, the kubelet dials the plugin (for up to 10 s) and asks for its options. So the plugin must be serving
already, and its timeout must be longer.
"""

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import structlog

from ..aio.tasks import raise_if_cancelled
from ..errors import SocketError
from ..hostfs.files import Stamp, stamp
from ..model import names
from ..pb import deviceplugin_v1beta1_pb2 as pb
from ..pb import deviceplugin_v1beta1_pb2_grpc as rpc
from .socket_server import MAX_SOCKET_PATH, check_socket_path, remove_dead

log = structlog.get_logger(__name__)

_OURS = r"vdev-.*\.sock"


class KubeletSocket:
    """The kubelet's socket and the directory of the plugin's sockets; `generation` counts the kubelets that appeared.

    `socket` None: nothing is registered. Each check sets the events of all `subscribers`, because their sockets may be
    gone as well.
    """

    def __init__(self, socket_path: Path | None, plugin_dir: Path) -> None:
        self.socket = socket_path
        self.directory = plugin_dir
        self.directories = frozenset({plugin_dir} if socket_path is None else {plugin_dir, socket_path.parent})
        self.generation = 0
        self.subscribers: set[asyncio.Event] = set()
        self.identity: Stamp | None = None  # of the kubelet's socket at the last check; None: there was no socket
        self._checking = asyncio.Lock()  # one check at a time, so that an older result cannot overwrite a newer one

    def new_socket_path(self, resource: str) -> Path:
        """Return a path for a resource's socket that was never used before."""
        room = MAX_SOCKET_PATH - len(os.fsencode(self.directory.absolute())) - 1
        return self.directory / names.socket_name(resource, secrets.token_hex(6), room=room)

    async def check(self) -> None:
        """Look at the kubelet's socket, and let the subscribers look at theirs."""
        async with self._checking:
            identity = None if self.socket is None else await asyncio.to_thread(stamp, self.socket)
            if identity != self.identity:
                if identity is None:
                    log.warning("kubelet socket vanished", socket=str(self.socket))
                elif self.generation:
                    log.info("kubelet socket appeared", socket=str(self.socket))
                self.generation += identity is not None
                self.identity = identity
            for event in self.subscribers:
                event.set()

    async def remove_leftovers(self) -> None:
        """Remove sockets with vdev's name pattern on which no process listens; never those of other plugins."""
        for path in await asyncio.to_thread(remove_dead, self.directory, _OURS):
            log.info("removed the socket of a process that is gone", socket=str(path))


_PARAMETERS = (
    ("grpc.default_authority", "localhost"),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", -1),
)


@contextlib.asynccontextmanager
async def kubelet_channel(socket: Path) -> AsyncIterator[grpc.aio.Channel]:
    """Open a channel that is not shared, without a proxy, for answers of any size.

    A cancellation that gRPC swallowed inside is raised at the end.
    """
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=_PARAMETERS) as channel:
        try:
            yield channel
        finally:
            raise_if_cancelled()


VERSION = "v1beta1"
TIMEOUT = 15.0  # seconds; the kubelet may take 10 to dial back


@contextlib.asynccontextmanager
async def connection(socket: Path) -> AsyncIterator[grpc.aio.Channel]:
    """Open a channel to a kubelet that listens. Raises SocketError."""
    check_socket_path(socket)
    # gRPC reports a socket that this process may not open as no answer.
    if await asyncio.to_thread(lambda: os.path.exists(socket) and not os.access(socket, os.W_OK)):
        raise SocketError(f"no permission to open {socket}; run vdev as root, or give it access")
    async with kubelet_channel(socket) as channel:
        state = channel.get_state(try_to_connect=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TIMEOUT):  # noqa: TID251 - a deadline of gRPC, as that of the call itself
                while state in (grpc.ChannelConnectivity.IDLE, grpc.ChannelConnectivity.CONNECTING):
                    await channel.wait_for_state_change(state)
                    state = channel.get_state(try_to_connect=True)
        if state is not grpc.ChannelConnectivity.READY:
            raise SocketError(f"no kubelet answers on {socket}")
        yield channel


async def register(channel: grpc.aio.Channel, request: pb.RegisterRequest) -> None:
    """Register a resource; `endpoint` is the name of its socket in the kubelet's directory. Raises SocketError."""
    try:
        await rpc.RegistrationStub(channel).Register(request, timeout=TIMEOUT)
    except grpc.aio.AioRpcError as failed:
        text = failed.details() or failed.code().name
        raise SocketError(f"the kubelet did not accept {request.resource_name}: {text}") from failed
