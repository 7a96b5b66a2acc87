"""Leadership moves while many nodes converge: who lost it writes nothing more, and nothing is said twice."""

import pytest

from tests.component.fleet.test_fleet_leadership import LONGER, advance_until, start  # noqa: F401 - a fixture
from tests.kit.api_server import ApiServer
from vdev.aio.clock import LeapClock
from vdev.fleet import AT_ONCE, LeaseLost

NODES = 120
CONFIG = f"""
version: v1
devices: [{{name: npu, resource: acme.dev/npu, virtual: {{count: COUNT}}}}]
node: {{events: true}}
faults: {{rules: [{{name: sick, onNodes: [n3], devices: [npu/0], health: Unhealthy, reason: XID 79}}]}}
fleet: {{nodes: [{{name: "n{{0..{NODES - 1}}}"}}]}}
"""
CHOSEN = CONFIG.replace(f'name: "n{{0..{NODES - 1}}}"', "selector: {type: kwok}")
WRITES = ("create", "patch", "delete")


class Sleeper(LeapClock):
    """The clock of a process that can be stopped."""

    def sleep_through(self, seconds):
        """So much later no timer has fired yet, as when a process goes on that was stopped."""
        self._leapt += seconds


@pytest.fixture
async def api_server():
    """One that does not hold each of many objects against Kubernetes' schemas."""
    async with ApiServer(schemas=False) as server:
        yield server


def written_by(api_server, name):
    """How many requests to write came from a controller, beside those about the Lease."""
    return sum(
        each.verb in WRITES and each.resource != "leases" and each.headers["authorization"] == f"Bearer {name}"
        for each in api_server.asked
    )


def is_made(api_server):
    """Whether every node has its devices, of which one is sick."""
    found = [(each.get("status") or {}).get("allocatable", {}).get("acme.dev/npu") for each in api_server.all("nodes")]
    return NODES == len(found) and ["1", *["2"] * (NODES - 1)] == sorted(map(str, found))


def said(api_server):
    """Which nodes Events are about."""
    return [each["involvedObject"]["name"] for each in api_server.all("events", "default")]


@pytest.mark.long
async def test_who_lost_the_lease_writes_nothing_more(start, api_server):  # noqa: F811
    """The next one takes over in the middle, writes what is left, and repeats no Event."""
    first = await start("first", text=CONFIG)
    await api_server.until(lambda: written_by(api_server, "first") >= NODES // 2 and said(api_server))
    second = await start("second", text=CONFIG)
    await api_server.until(lambda: second.fleet.has_begun and "first" == second.fleet.leadership.holder)
    thief = {"spec": {"holderIdentity": "thief"}}
    await api_server.edit("leases", "fleet", thief, namespace="default", manager="kubectl")
    await advance_until(api_server, [first], first.task.done)
    with pytest.raises(LeaseLost, match=r"thief has the Lease|could not be renewed"):  # time may be ahead of its answer
        await first.task
    before = written_by(api_server, "first")
    second.clock.advance(LONGER)
    await advance_until(api_server, [second], lambda: is_made(api_server))
    await api_server.until(lambda: second.fleet.is_settled)
    assert (before, ["n3"]) == (written_by(api_server, "first"), said(api_server))


async def test_who_slept_longer_than_the_lease_lasts_writes_nothing(start, api_server):  # noqa: F811
    """As a process that was stopped: not even before it notices that it may have lost it."""
    held = api_server.fail(verb="create", resource="nodes", hang=True)
    first = await start("first", text=CONFIG, clock=Sleeper())
    await api_server.until(lambda: AT_ONCE == held.hits)
    api_server.heal()
    first.clock.sleep_through(LONGER)
    held.released.set()
    await api_server.until(lambda: first.task.done() or first.fleet.writers.failing)
    first.clock.advance(0)
    with pytest.raises(LeaseLost, match="could not be renewed"):
        await first.task
    assert AT_ONCE == written_by(api_server, "first")


async def test_what_is_so_at_the_very_start_is_said(start, api_server):  # noqa: F811
    """Also where it takes a while until it is known who leads: nobody else has said it."""
    await api_server.add("nodes", {"metadata": {"name": "n3", "labels": {"type": "kwok"}}})
    refused = api_server.fail(verb="get", resource="leases", status=500)
    first = await start("first", text=CHOSEN)
    await api_server.until(lambda: refused.hits and "n3" in first.fleet.cluster.nodes)
    await api_server.until(lambda: api_server.watching == len(("nodes", "pods", "claims", "slices")))
    api_server.heal()
    await advance_until(api_server, [first], lambda: said(api_server))
    await api_server.until(lambda: first.fleet.is_settled)
    assert ["n3"] == said(api_server)
