"""What no API server should answer: the error says so, and nothing takes memory without end."""

import asyncio
import contextlib

import pytest

from vdev import kube
from vdev.kube import NODES

DEEP = b"[" * 100_000


@pytest.fixture
async def odd_server(start_api, account):
    """Make a server that answers each request by `say(writer, head)`, and a client of it."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(say, **options):
            async def answer(reader, writer):
                with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                    await say(writer, await reader.readuntil(b"\r\n\r\n"))
                    await writer.drain()
                writer.transport.abort() if writer.is_closing() else writer.close()

            server = await asyncio.start_server(answer, "127.0.0.1", 0)
            stack.callback(server.close)
            host, port = server.sockets[0].getsockname()
            address = kube.ApiServerAddress(address=f"http://{host}:{port}", token=account.token)
            return await start_api(server=address, **options)

        yield start


def says(body, status=200, head=b""):
    """Answer with this body."""

    async def say(writer, _head):
        length = b"Content-Length: %d\r\n" % len(body)
        writer.write(b"HTTP/1.1 %d X\r\nConnection: close\r\n%s%s\r\n" % (status, length, head) + body)

    return say


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (b"<html>", 200, "what came is no JSON"),
        (DEEP, 200, "what came is no JSON"),
        (b"[]", 200, "what came is no object"),
        (DEEP, 500, r"status 500: \[\[\["),
        (DEEP, 403, r"may not get nodes: \[\[\["),
    ],
)
async def test_what_is_no_object(odd_server, body, status, error):
    """However deep it is nested."""
    api = await odd_server(says(body, status))
    with pytest.raises((kube.Unreachable, kube.Denied), match=error):
        await api.get(NODES, "worker-1")
