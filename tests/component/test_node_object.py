"""The agent's Node, which it watches, and its label, which selects a file."""

import asyncio
import contextlib

import pytest

from vdev.agent.node_objects import NodeObject
from vdev.file_choice import LABELS

LABEL, NVIDIA_LABEL = LABELS


def labelled(value):
    """A patch of the label."""
    return {"metadata": {"labels": {LABEL: value}}}


def node_object(api):
    """A NodeObject of worker-1."""
    return NodeObject("worker-1", api)


def uid(node):
    """The uid, if it is known."""
    return (node.document or {"metadata": {"uid": ""}})["metadata"]["uid"]


@pytest.fixture
async def worker(api_server):
    """The Node without the label."""
    return await api_server.add("nodes", {"metadata": {"name": "worker-1"}}, status={"capacity": {"cpu": "8"}})


@pytest.fixture
async def run():
    """Run a NodeObject until the test ends."""
    async with contextlib.AsyncExitStack() as stack:

        def start(node):
            task = asyncio.create_task(node.run())

            async def end():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

            stack.push_async_callback(end)
            return task

        yield start


async def test_one_watch_for_several_subscribers(api_server, api, worker, run):
    """It begins with the first subscriber, and all are notified."""
    node = node_object(api)
    run(node)
    for _ in range(20):
        await asyncio.sleep(0)
    assert [] == api_server.asked
    told = []
    node.subscribe(lambda: told.append("one"))
    await api_server.until(lambda: told)
    node.subscribe(lambda: told.append("two"))
    assert (worker["metadata"]["uid"], {}) == (uid(node), node.labels)
    await api_server.until(lambda: api_server.watching)
    await api_server.edit("nodes", "worker-1", labelled("a100"))
    await api_server.until(lambda: node.labels)
    assert ["one", "one", "one", "two"] == told  # the object, that the server has answered, and the edit
    assert ["list", "watch"] == [each.verb for each in api_server.asked]
    assert {"metadata.name=worker-1"} == {each.params["fieldSelector"] for each in api_server.asked}


async def test_without_permission_to_list(api_server, api, worker, run):
    """The reason names the missing verb; the Node is watched soon after that is allowed."""
    api_server.permissions = {"get nodes"}
    node = node_object(api)
    node.subscribe(lambda: None)
    run(node)
    await node.answered()
    assert node.document is None
    assert "give it a role with the verb list on nodes" in str(node.trouble)
    api_server.permissions = None
    await api_server.until(lambda: uid(node))


# --- the label --------------------------------------------------------------------------------------------------------

FILE = "version: v1\ndevices: [{{name: {name}, resource: example.com/{name}, virtual: {{count: 1}}}}]\n"


async def test_an_agent_follows_its_nodes_label_at_once(api_server, account, start_agent, kubelet, directory, shows):
    """A change of the label selects another file of the directory."""
    files = directory / "files"
    files.mkdir()
    for name in ("a100", "default"):
        (files / f"{name}.yaml").write_text(FILE.format(name=name))
    await api_server.add("nodes", {"metadata": {"name": "node-1"}})
    await start_agent("", config_files=(files,), api_server=account)
    await shows("example.com/default", 1)
    await api_server.until(lambda: api_server.watching)
    await api_server.edit("nodes", "node-1", labelled("a100"))
    await shows("example.com/a100", 1)
    assert 0 == api_server.writes
