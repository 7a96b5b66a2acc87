"""Malformed answers of an API server: they are errors."""

import asyncio
import contextlib
import copy
import json
import random

import pytest

from vdev import kube
from vdev.kube import NODES

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
            return kube.ApiServerAddress(address=f"http://{host}:{port}", token=account.token)

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
        (b"<html>", 200, "the answer is not a JSON object"),
        (DEEP, 200, "the answer is not a JSON object"),
        (b"[]", 200, "the answer is not a JSON object"),
        (b'{"metadata": {"name": 5}}', 200, "the answer is not a Node"),
        (b'{"metadata": {"name": ["worker-1"]}}', 200, "the answer is not a Node"),
        (DEEP, 500, r"status 500: \[\[\["),
        (DEEP, 403, r"may not get nodes: \[\[\["),
    ],
)
async def test_an_answer_that_is_not_an_object(odd_server, body, status, error):
    """Also deeply nested ones are an error."""
    api = await odd_server(says(body, status))
    with pytest.raises((kube.Unreachable, kube.Denied), match=error):
        await api.get(NODES, "worker-1")


# --- pages and missing answers ----------------------------------------------------------------------------------------


async def test_a_list_of_several_pages(odd_server):
    """Each page has the token of the next one, and the version of the list."""
    heads = []

    async def say(writer, head):
        heads.append(head)
        more = {"continue": "two"} if b"continue" not in head else {}
        page = {"metadata": {"resourceVersion": "7", **more}, "items": [{"metadata": {"name": f"n{len(heads)}"}}]}
        await says(json.dumps(page).encode())(writer, head)

    api = await odd_server(say)
    found = await api.list(NODES, keep=kube.whole)
    assert (["n1", "n2"], "7") == ([each["metadata"]["name"] for each in found.objects], found.version)
    assert b"continue=two" in heads[1]


async def test_a_watch_without_an_answer(odd_server):
    """It ends after the deadline of other requests, long before the duration of the watch."""

    async def say(_writer, _head):
        await asyncio.Event().wait()

    api = await odd_server(say, api_answer=0.1)
    with pytest.raises(kube.Unreachable, match=r"no answer within 0\.1 s"):
        async with asyncio.timeout(10), api.watch(NODES, version="1", seconds=60) as events:
            assert not [each async for each in events]


# --- malformed objects ------------------------------------------------------------------------------------------------

NODE = {
    "metadata": {
        "name": "node-1",
        "uid": "1",
        "resourceVersion": "7",
        "labels": {"vdev.dev/config": "a"},
        "annotations": {"a": "b"},
        "managedFields": [
            {
                "manager": "vdev",
                "operation": "Apply",
                "subresource": "status",
                "fieldsV1": {"f:status": {"f:capacity": {"f:a": {}}, "f:conditions": {'k:{"type":"X"}': {".": {}}}}},
            }
        ],
    },
    "spec": {"taints": []},
    "status": {
        "capacity": {"acme.dev/npu": "4"},
        "allocatable": {"acme.dev/npu": "4"},
        "conditions": [{"type": "NpuHealthy", "status": "True", "lastTransitionTime": "2026-11-23T08:00:00Z"}],
    },
}
SOME = 30  # odd nodes per run, chosen at random
ODD = (None, 7, "x", [], [7], [[7]], {}, {"a": 7}, {"": {}}, [{"type": {}}], {"k:[": 7, "k:7": {"b": 7}})


def with_odd_parts(document):
    """Copies of the document, in each of which one part is replaced by an odd value."""
    yield from ODD
    pairs = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in pairs:
        for other in with_odd_parts(value):
            changed = copy.copy(document)
            changed[key] = other
            yield changed


CONFIG = """
version: v1
node: {labels: true, status: true, conditions: true, events: true}
devices: [{name: npu, resource: acme.dev/npu, virtual: {count: 4}, conditions: [{type: NpuHealthy}]}]
"""


async def test_an_odd_list(odd_server):
    """It is an error."""
    labels_alone = {"items": [{"metadata": {"labels": {}}}]}
    for page in ({"items": 7}, {"items": [7]}, {"items": [], "metadata": [7]}, labels_alone):
        api = await odd_server(says(json.dumps(page).encode()))
        with pytest.raises(kube.Unreachable, match=r"the answer is not a (list|Node)"):
            await api.list(NODES, keep=kube.whole)


@pytest.mark.parametrize(
    ("status", "error"), [(404, kube.Missing), (409, kube.Conflict), (422, kube.Invalid), (504, kube.Unreachable)]
)
async def test_an_odd_error(odd_server, status, error):
    """The status and the message count, and malformed details are ignored."""
    for details in (7, [7], {"causes": 7}, {"causes": [7]}, {"causes": [{"field": [], "message": 7}]}):
        api = await odd_server(says(json.dumps({"message": "no", "details": details}).encode(), status))
        with pytest.raises(error, match=r"no"):
            await api.get(NODES, "worker-1")


async def test_an_odd_node_is_not_a_defect_of_vdev(odd_address, start_agent, api_server):
    """If there is a problem at all, it is about the API server."""
    current, asked = [None], []

    async def say(writer, head):
        asked.append(head)
        if b"watch=true" in head:
            return  # the watch ends at once, and it lists again
        list_of = {"metadata": {"resourceVersion": "1"}, "items": [current[0]]}
        is_list = head.startswith(b"GET /api/v1/nodes?")
        await says(json.dumps(list_of if is_list else current[0]).encode())(writer, head)

    pauses = dict.fromkeys(("api_pause_first", "api_pause_most", "retry_step_first", "retry_step_most"), 0.001)
    agent = await start_agent(CONFIG, api_server=await odd_address(say), wait=False, write_node=0.001, **pauses)
    for document in random.sample([*with_odd_parts(NODE)], SOME):
        current[0] = document
        seen = len(asked)
        await api_server.until(lambda: len(asked) > seen + 2)
        told = [str(each) for each in agent.agent.reconciler.problems]
        assert not [each for each in told if "defect" in each], document
