"""Malformed answers of an API server: they are errors."""

import asyncio
import contextlib
import json

import pytest

from vdev.api_server import ApiServerAddress
from vdev.kube.errors import Denied, Unreachable
from vdev.kube.objects import NODES

DEEP = b"[" * 100_000


@pytest.fixture
async def odd_address(account):
    """Start a server that answers each request by `say(writer, head)`. Returns its address."""
    connections = set()
    async with contextlib.AsyncExitStack() as stack:

        async def start(say):
            async def answer(reader, writer):
                connections.add(asyncio.current_task())
                try:
                    await say(writer, await reader.readuntil(b"\r\n\r\n"))
                    await writer.drain()
                except (ConnectionError, asyncio.IncompleteReadError):
                    pass
                finally:
                    writer.close()

            server = await asyncio.start_server(answer, "127.0.0.1", 0)
            stack.callback(server.close)
            host, port = server.sockets[0].getsockname()
            return ApiServerAddress(address=f"http://{host}:{port}", token=account.token)

        yield start
        for _ in range(5):  # until the tasks of new connections run
            await asyncio.sleep(0)
    for each in connections:
        each.cancel()
    await asyncio.gather(*connections, return_exceptions=True)


@pytest.fixture
def odd_server(odd_address, start_api):
    """Start such a server. Returns its client."""

    async def start(say, **options):
        return await start_api(server=await odd_address(say), **options)

    return start


def says(body, status=200, head=b""):
    """Answer with this body."""

    async def say(writer, _head):
        length = b"Content-Length: %d\r\n" % len(body)
        writer.write(b"HTTP/1.1 %d X\r\nConnection: close\r\n%s%s\r\n" % (status, length, head) + body)

    return say


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (b"<html>", 200, "the answer is not a Kubernetes object"),
        (DEEP, 200, "the answer is not a Kubernetes object"),
        (b"[]", 200, "the answer is not a Kubernetes object"),
        (b'{"message": "sign in"}', 200, "the answer is not a Kubernetes object"),
        (DEEP, 500, "status 500: X"),
        (DEEP, 403, "may not get nodes: X"),
    ],
)
async def test_an_answer_that_is_not_an_object(odd_server, body, status, error):
    """Also deeply nested ones are an error."""
    api = await odd_server(says(body, status))
    with pytest.raises((Unreachable, Denied), match=error):
        await api.get(NODES, "worker-1")


# --- pages ------------------------------------------------------------------------------------------------------------


async def test_a_list_of_several_pages(odd_server):
    """Each page has the token of the next one, and the version of the list."""
    heads = []

    async def say(writer, head):
        heads.append(head)
        more = {"continue": "two"} if b"continue" not in head else {}
        items = [{"metadata": {"name": f"n{len(heads)}"}}]
        page = {"kind": "NodeList", "metadata": {"resourceVersion": "7", **more}, "items": items}
        await says(json.dumps(page).encode())(writer, head)

    api = await odd_server(say)
    assert (["n1", "n2"], "7") == await api.list(NODES, keep=lambda each: each["metadata"]["name"])
    assert b"continue=two" in heads[1]


# --- watches ----------------------------------------------------------------------------------------------------------


async def watched(api):
    """The names of the objects that a watch delivers until it fails."""
    names = []
    with contextlib.suppress(Unreachable):
        async with asyncio.timeout(10), contextlib.aclosing(api.watch(NODES, version="1")) as events:
            async for _event, document in events:
                names.append(document["metadata"]["name"])
    return names


async def test_a_watch_without_an_answer(odd_server):
    """It has the deadline of other requests."""

    async def say(_writer, _head):
        await asyncio.Event().wait()

    api = await odd_server(say, api_answer=0.1)
    with pytest.raises(Unreachable, match=r"no answer within 0\.1 s"):
        async with asyncio.timeout(10), contextlib.aclosing(api.watch(NODES, version="1")) as events:
            await anext(events)


async def test_a_server_that_ends_each_watch_at_once(odd_server):
    """It is asked again after a pause."""
    heads = []

    async def say(writer, head):
        heads.append(head)
        await says(b"")(writer, head)

    api = await odd_server(say, api_pause_first=0.2)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1), contextlib.aclosing(api.watch(NODES, version="1")) as events:
            await anext(events)
    assert 2 <= len(heads) <= 6
