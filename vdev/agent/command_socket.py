"""The agent's unix socket for `vdev status` and similar commands: one JSON request, one JSON answer.

The socket's mode is 0600: a user who may open it may use all commands. Every request gets an answer, and slow clients
do not block the agent.
"""

import asyncio
import errno
import functools
import json
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import structlog

from ..errors import HostError, SocketError, UsageError, VdevError, reason_of
from ..hostfs.files import Stamp, stamp
from ..intervals import PRODUCTION, Intervals

log = structlog.get_logger(__name__)

SOCKET = "vdev.sock"
_UNFINISHED = "vdev.new"  # no longer than SOCKET, because the length of socket paths is limited
_MAX_REQUEST = 2**20  # bytes of a request; fault rules are the longest
_MAX_REPLY = 2**26  # bytes of a reply; a status with 70 000 devices takes about 20 MB
_MAX_CLIENTS = 16  # clients that may wait to be accepted

Handler = Callable[[Mapping[str, Any]], Awaitable[Any]]


async def serve(directory: Path, commands: Mapping[str, Handler], intervals: Intervals = PRODUCTION) -> None:
    """Answer requests `{"do": <command>, …}` until cancelled. Raises HostError if the socket is lost or impossible."""
    path = directory / SOCKET
    try:
        listener, own = await asyncio.to_thread(_bind, path)
    except OSError as failed:
        raise HostError(
            f"no control socket {path}, so `vdev status` will not reach this process: {reason_of(failed)}"
        ) from failed
    client = functools.partial(_serve, commands=commands, patience=intervals.command)
    server = await asyncio.start_unix_server(client, sock=listener, limit=_MAX_REQUEST)
    try:
        while await asyncio.to_thread(stamp, path) == own:
            await asyncio.sleep(intervals.look_at_devices)
        raise HostError(f"the control socket {path} was deleted or replaced by something else")
    finally:
        # Before the close: while this socket listens, no other file has its inode number.
        if await asyncio.to_thread(stamp, path) == own:
            await asyncio.to_thread(path.unlink, missing_ok=True)
        server.close()


async def _serve(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, commands: Mapping[str, Handler], patience: float
) -> None:
    """Answer the one request of a client, even if it is invalid."""
    writer.transport.set_write_buffer_limits(0)  # `drain` returns only after everything was sent
    try:
        async with asyncio.timeout(patience):
            reply = await asyncio.to_thread(json.dumps, await _answer(reader, commands))
            writer.write(reply.encode() + b"\n")
            await writer.drain()
    except (TimeoutError, OSError) as failed:
        log.debug("request not answered", reason=str(failed))
    finally:
        writer.transport.abort()  # otherwise the loop could mistake a new socket with this fd for this one


async def _answer(reader: asyncio.StreamReader, commands: Mapping[str, Handler]) -> dict[str, Any]:
    try:
        request = json.loads(await reader.readline())
        command = commands.get(request["do"])
        if command is None:
            known = ", ".join(sorted(commands))
            return {"ok": False, "error": f"unknown command {request['do']!r}; this process knows {known}"}
        return {"ok": True, "result": await command(request)}
    except VdevError as refused:
        return {"ok": False, "error": str(refused)}
    except OSError:
        raise
    except Exception as failed:  # a malformed request, or a bug in a command
        log.debug("request failed", exc_info=failed)
        return {"ok": False, "error": f"vdev failed to answer: {failed!r}"}


def _must_be_ours(directory: Path) -> None:
    """Raise OSError if another user owns the directory, because they could replace the socket in it."""
    owner = directory.stat().st_uid
    if owner not in (0, os.geteuid()):
        why = f"the directory belongs to user {owner}; remove it, or give another --run-dir"
        raise OSError(errno.EPERM, why)


def _bind(path: Path) -> tuple[socket.socket, Stamp | None]:
    """Return a listening socket that only its owner may open, and the stamp of its file. Raises OSError; blocks.

    It is bound under another name and renamed, so that a client that sees the file can connect.
    """
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    _must_be_ours(path.parent)
    with socket.socket(socket.AF_UNIX) as probe:
        if probe.connect_ex(str(path)) == 0:
            raise OSError(errno.EADDRINUSE, "another process answers there; give each process its own --run-dir")
    unfinished = path.with_name(_UNFINISHED)
    unfinished.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.setblocking(False)
        listener.bind(str(unfinished))
        unfinished.chmod(0o600)
        listener.listen(_MAX_CLIENTS)
        own = stamp(unfinished)
        unfinished.replace(path)  # the path may have the socket of a process that has ended
    except OSError:
        listener.close()
        raise
    return listener, own


async def ask(directory: Path, request: Mapping[str, Any]) -> Any:
    """Send a request to the agent whose run directory this is; raises SocketError or UsageError."""
    path = directory / SOCKET
    try:
        if os.geteuid():  # root may ask any agent
            await asyncio.to_thread(_must_be_ours, directory)
        async with asyncio.timeout(PRODUCTION.command):
            reader, writer = await asyncio.open_unix_connection(path, limit=_MAX_REPLY)
            try:
                writer.write(json.dumps(request).encode() + b"\n")
                await writer.drain()
                reply = json.loads(await reader.readline())
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError, ValueError) as failed:
        hint = "start `vdev run`, or give its --run-dir"
        if isinstance(failed, OSError) and failed.errno == errno.EACCES:
            hint = "it answers root and the user of `vdev run` alone"
        raise SocketError(f"no running vdev answers on {path}: {reason_of(failed) or 'timed out'}; {hint}") from failed
    if not reply["ok"]:
        raise UsageError(reply["error"])
    return reply["result"]
