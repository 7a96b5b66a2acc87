"""Unix sockets: a gRPC server on one, the limit of their paths, and sockets that other processes left behind."""

import asyncio
import contextlib
import os
import re
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import grpc

from ..aio.clock import Timing
from ..errors import SocketError
from ..hostfs.files import listed
from ..planning.resources import LIST_LIMIT

MAX_SOCKET_PATH = 107  # bytes: sockaddr_un.sun_path less its terminator


def check_socket_path(path: Path) -> None:
    """Raise SocketError for a path that is too long for a socket; gRPC itself would hide the reason."""
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH:
        raise SocketError(
            f"a socket path in {path.parent} would have {length} bytes; the system allows {MAX_SOCKET_PATH}: "
            "use a shorter --kubelet-dir"
        )


def is_dead(path: Path) -> bool:
    """Whether it is a socket on which no process listens. Blocks briefly."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            probe.connect(str(path))
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def remove_dead(directory: Path, names: str) -> list[Path]:
    """Remove and return the sockets with these names (a regular expression) on which no process listens. Blocks."""
    removed = []
    for path in listed(directory):
        if re.fullmatch(names, path.name) and is_dead(path):
            try:
                path.unlink()
            except OSError:
                continue
            removed.append(path)
    return removed


_PARAMETERS = (
    ("grpc.max_receive_message_length", LIST_LIMIT),  # a request has at most the ids of the list
    ("grpc.max_send_message_length", -1),  # the limit of a list is checked where the list is made
    ("grpc.so_reuseport", 0),
)


class SocketServer:
    def __init__(self, add_services: Callable[[grpc.aio.Server], None], path: Path, timing: Timing) -> None:
        self.path = path
        self._add_services = add_services
        self._intervals, self._clock = timing
        self._server: grpc.aio.Server | None = None
        self._inode = 0

    async def start(self) -> None:
        """Bind the socket and serve, again if its file was removed. Raises SocketError with the reason."""
        check_socket_path(self.path)
        if self._server is not None:
            await self._server.stop(None)  # first, because it removes whatever file is at the path
            self._server = None
        server = grpc.aio.server(options=_PARAMETERS)
        self._add_services(server)
        try:
            server.add_insecure_port(f"unix:{self.path}")
            async with self._clock.timeout(self._intervals.server):
                await server.start()
            await asyncio.to_thread(self.path.chmod, 0o600)
            self._inode = (await asyncio.to_thread(self.path.stat)).st_ino
        except (RuntimeError, OSError, TimeoutError) as failed:
            await server.stop(None)
            reason = await asyncio.to_thread(_why_not_bound, self.path, failed)
            # With the directory instead of the path: each attempt has another path, and the reason is logged once.
            raise SocketError(f"cannot create a socket in {self.path.parent}: {reason}") from failed
        except asyncio.CancelledError:  # the caller does not know of this server, which may serve by now
            await server.stop(None)
            raise
        self._server = server

    async def stop(self) -> None:
        """End the streams, finish calls in flight, close the socket. After a cancellation, call it again."""
        if self._server is not None:
            with contextlib.suppress(TimeoutError):
                async with self._clock.timeout(self._intervals.server):
                    await self._server.stop(grace=self._intervals.last_requests)
            self._server = None

    def owns_socket(self) -> bool:
        """Whether the file is still this server's socket: a starting kubelet deletes all sockets. Blocks briefly."""
        try:
            return os.lstat(self.path).st_ino == self._inode
        except OSError:
            return False


def _why_not_bound(path: Path, failed: Exception) -> str:
    directory = path.parent
    if not os.path.isdir(directory):
        return f"{directory} does not exist; is --kubelet-dir right, and mounted?"
    if isinstance(failed, PermissionError) or not os.access(directory, os.W_OK):
        return f"no permission to use {directory}; run vdev as root, and mount the directory writable"
    return str(failed) or type(failed).__name__
