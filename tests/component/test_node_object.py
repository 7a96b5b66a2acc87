"""The agent's Node: watched if that is allowed, else read at intervals; and its label, which selects a file."""

import asyncio
import contextlib

import pytest
import structlog

from vdev.agent.node_objects import NodeObject
from vdev.aio.clock import LeapClock, Timing
from vdev.file_choice import LABELS
from vdev.intervals import Intervals

LABEL, NVIDIA_LABEL = LABELS


def labelled(value):
    """A patch of the label."""
    return {"metadata": {"labels": {LABEL: value}}}


def node_object(api, clock=None):
    """A NodeObject of worker-1."""
    return NodeObject("worker-1", api, timing=Timing(clock=clock or LeapClock()))


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
    assert ["one", "one", "two"] == told
    assert ["list", "watch"] == [each.verb for each in api_server.asked]
    assert {"metadata.name=worker-1"} == {each.params["fieldSelector"] for each in api_server.asked}


def pauses(clock):
    """Whether the next timer is that of the next read."""
    return clock.next_due is not None and clock.next_due - clock.now() > Intervals().api_answer + 1


async def test_without_list_and_watch_the_node_is_read_at_intervals(api_server, start_api, worker, run):
    """It is watched when that is allowed."""
    clock, intervals = LeapClock(), Intervals()
    api_server.permissions = {"get nodes"}
    node = node_object(await start_api(clock=clock), clock)
    node.subscribe(lambda: None)
    with structlog.testing.capture_logs() as logs:
        run(node)
        await api_server.until(lambda: uid(node))
        await api_server.edit("nodes", "worker-1", labelled("a100"))
        asked = len(api_server.asked)
        await api_server.until(lambda: pauses(clock))
        clock.advance(intervals.look_at_label + 1)
        await api_server.until(lambda: node.labels == {LABEL: "a100"})
        assert ["get"] == [each.verb for each in api_server.asked[asked:]]
        assert [("info", True)] == [(each["log_level"], "may not list nodes" in each["reason"]) for each in logs]
        api_server.permissions = None
        await api_server.until(lambda: pauses(clock))
        clock.advance(intervals.watch_again)
        await api_server.until(lambda: api_server.watching)


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
