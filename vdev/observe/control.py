"""The agent's own unix socket: one JSON request, one JSON answer, for `vdev status` and its like.

The socket is 0600: who may open it may do what the commands allow. It is a convenience, so an agent that cannot make
it says so and works on.
"""

import asyncio
import errno
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import structlog

from ..errors import SocketError, UsageError, VdevError

log = structlog.get_logger(__name__)

SOCKET = "vdev.sock"
_LINE = 2**26  # bytes of one message at most; a status with 70 000 devices takes about 20 MB
_TIMEOUT = 10.0

Handler = Callable[[Mapping[str, Any]], Awaitable[Any]]


@asynccontextmanager
async def serving(directory: Path, commands: Mapping[str, Handler]) -> AsyncIterator[None]:
    """Answer requests `{"do": <command>, …}` for as long as the context lasts."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT):
                reply = await _answer(await reader.readline(), commands)
                writer.write(json.dumps(reply).encode() + b"\n")
                await writer.drain()
        except (TimeoutError, ConnectionError, ValueError) as failed:
            log.debug("request not answered", reason=str(failed))
        finally:
            writer.close()

    path = directory / SOCKET
    try:
        await asyncio.to_thread(_make_room, path)
        server = await asyncio.start_unix_server(answer, path, limit=_LINE)
        await asyncio.to_thread(os.chmod, path, 0o600)
    except OSError as failed:
        log.warning(
            "no control socket; `vdev status` will not reach this process", socket=str(path), reason=str(failed)
        )
        yield
        return
    try:
        yield
    finally:
        server.close()
        await asyncio.to_thread(path.unlink, missing_ok=True)


def _make_room(path: Path) -> None:
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)  # the leftover of a process that is gone
        else:
            raise OSError(errno.EADDRINUSE, "another process answers there; give each its own --run-dir")


async def _answer(line: bytes, commands: Mapping[str, Handler]) -> dict[str, Any]:
    try:
        request = json.loads(line)
        command = commands.get(request.get("do"))
        if command is None:
            raise UsageError(f"unknown command {request.get('do')!r}; this process knows {', '.join(sorted(commands))}")
        return {"ok": True, "result": await command(request)}
    except (VdevError, ValueError, AttributeError) as refused:
        return {"ok": False, "error": str(refused)}


async def ask(directory: Path, request: Mapping[str, Any]) -> Any:
    """Send a request to the agent whose run directory this is; raises SocketError or UsageError."""
    path = directory / SOCKET
    try:
        async with asyncio.timeout(_TIMEOUT):
            reader, writer = await asyncio.open_unix_connection(path, limit=_LINE)
            writer.write(json.dumps(request).encode() + b"\n")
            await writer.drain()
            reply = json.loads(await reader.readline())
            writer.close()
    except (OSError, TimeoutError, ValueError) as failed:
        raise SocketError(
            f"no running vdev answers on {path}: {failed or 'timed out'}; is --run-dir that of `vdev run`?"
        ) from failed
    if not reply["ok"]:
        raise UsageError(reply["error"])
    return reply["result"]
