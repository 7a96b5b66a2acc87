"""A fleet sends no needless requests to the API server, and ends while requests hang."""

import asyncio
from collections import Counter

import pytest

from tests.kit.api_server import ApiServer
from tests.kit.fleet import capacity
from vdev.aio.clock import LeapClock

SMALL = """
version: v1
devices:
  - {name: npu, resource: acme.dev/npu, virtual: {count: 2}}
fleet: {nodes: [{name: "n{1..NODES}"}]}
"""
ONE_MORE = "  - {name: extra, resource: acme.dev/extra, virtual: {count: 1}, onNodes: [n1]}\n"
KINDS = ("nodes", "pods", "resourceclaims", "resourceslices")


@pytest.fixture
async def api_server():
    """A server without the check of Kubernetes' schemas, which is slow for many objects."""
    async with ApiServer(schemas=False) as server:
        yield server


@pytest.fixture
def clock():
    """A running clock that a test can advance."""
    return LeapClock()


def of(nodes, count=2):
    """A file that makes this number of nodes."""
    return SMALL.replace("NODES", str(nodes)).replace("count: 2", f"count: {count}")


def is_done(fleet, nodes):
    """Whether the fleet has this number of nodes, and nothing left to write."""
    return nodes == len(fleet.members) and fleet.is_settled


def asked_since(api_server, before):
    """The numbers of requests by verb and resource, without the first `before`."""
    return Counter((each.verb, each.resource) for each in api_server.asked[before:])


async def test_the_number_of_requests(start, api_server, until, directory, clock):
    """At a start, in an hour without changes, at edits that affect all nodes or one, and at the next start."""
    nodes = 30
    first = await start(of(nodes), clock=clock)
    await until(lambda: is_done(first, nodes))
    watched = {(verb, kind): 1 for verb in ("list", "watch") for kind in KINDS}
    written = {("create", "nodes"): nodes, ("patch", "nodes/status"): nodes}
    assert {**watched, **written} == asked_since(api_server, 0)

    before = len(api_server.asked)
    clock.advance(3600)
    await until(lambda: len(KINDS) == sum(each.verb == "watch" for each in api_server.asked[before:]))
    assert {("watch", kind): 1 for kind in KINDS} == asked_since(api_server, before)

    before = len(api_server.asked)
    (directory / "vdev.yaml").write_text(of(nodes, count=3))
    await until(lambda: nodes == len(api_server.asked) - before)
    await until(lambda: is_done(first, nodes))
    assert {("patch", "nodes/status"): nodes} == asked_since(api_server, before)

    before = len(api_server.asked)
    text = of(nodes, count=3).replace("fleet:", f"{ONE_MORE}fleet:")
    (directory / "vdev.yaml").write_text(text)
    await until(lambda: ["1", "1"] == capacity(api_server, "n1", "acme.dev/extra"))
    await until(lambda: is_done(first, nodes))
    assert ["n1"] == [each.name for each in api_server.asked[before:]]
    await first.stop()

    before = len(api_server.asked)
    second = await start(text)
    await until(lambda: is_done(second, nodes) and len(watched) <= len(api_server.asked) - before)
    assert watched == asked_since(api_server, before)


async def test_the_controller_ends_at_once_while_requests_hang(start, api_server, until, clock):
    """It sends no further requests."""
    hanging = api_server.fail(verb="create", hang=True)
    fleet = await start(of(40), clock=clock)
    await until(lambda: 8 == hanging.hits)
    async with asyncio.timeout(5):
        await fleet.stop()
    assert 8 == hanging.hits
