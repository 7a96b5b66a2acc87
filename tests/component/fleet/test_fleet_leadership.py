"""Two controllers of one fleet: one writes, the other one is ready to."""

import asyncio
import contextlib
import functools

import pytest
import structlog

from tests.kit import quick
from vdev import config
from vdev.aio.clock import LeapClock
from vdev.aio.timing import Timing
from vdev.core.intervals import Intervals
from vdev.errors import UsageError
from vdev.fleet import AT_ONCE, Fleet, Leadership, LeaseLost, Options
from vdev.kube import ApiServerAddress

CONFIG = """
version: v1
devices: [{name: npu, resource: acme.dev/npu, virtual: {count: COUNT}}]
fleet: {nodes: [{name: "n{0..1}"}]}
"""
LONGER = 16.0  # seconds, than a Lease lasts


class Controller:
    """One of them, in a task, with a clock of its own."""

    def __init__(self, fleet, clock):
        self.fleet, self.clock = fleet, clock
        self._end = asyncio.Event()
        self.task = asyncio.create_task(fleet.run(until=self._end.wait))

    async def stop(self):
        """Let it end cleanly."""
        self._end.set()
        await self.task


@pytest.fixture
async def start(watching, start_api, api_server, directory):
    """Start controllers by name, which is their token as well."""
    async with contextlib.AsyncExitStack() as stack:

        async def started(name, count=2, text=CONFIG, clock=None):
            path = directory / f"{name}.yaml"
            path.write_text(text.replace("COUNT", str(count)))
            (directory / f"{name}.token").write_text(name)
            api_server.tokens.add(name)
            server = ApiServerAddress(address=api_server.address, token=directory / f"{name}.token")
            clock = clock or LeapClock()
            load = functools.partial(config.load, [path])
            options = Options(
                files=(path,),
                load=load,
                selector={},
                fault_injection=True,
                timing=Timing(Intervals(**quick.INTERVALS), clock),
            )
            for_lease = await start_api(server=server, clock=clock)
            leadership = Leadership(for_lease, Timing(clock=clock), namespace="default", name="fleet", identity=name)
            api = await start_api(server=server, clock=clock, at_once=AT_ONCE)
            fleet = Fleet(options, await asyncio.to_thread(load), api, leadership)
            controller = Controller(fleet, clock)

            async def ended():
                with contextlib.suppress(LeaseLost):
                    await controller.stop()

            stack.push_async_callback(ended)
            return controller

        yield started


def holder(api_server):
    """Who has the Lease."""
    return next((each["spec"]["holderIdentity"] for each in api_server.all("leases", "default")), None)


def amounts(api_server):
    """The capacities of all nodes."""
    return [(each.get("status") or {}).get("capacity", {}).get("acme.dev/npu") for each in api_server.all("nodes")]


async def advance_until(api_server, controllers, condition):
    """Let the time of these pass faster until something is so."""

    def passed():
        for each in controllers:
            each.clock.advance(0.5)
        return condition()

    await api_server.until(passed)


async def test_the_time_of_who_stood_by_counts_from_when_it_leads(start, api_server):
    """What it says of how long all took is no sum of the days that it waited."""
    first = await start("first")
    await api_server.until(lambda: ["2", "2"] == amounts(api_server))
    with structlog.testing.capture_logs() as logs:
        second = await start("second", count=3)
        await api_server.until(lambda: 2 == len(second.fleet.members))
        second.clock.advance(1000)
        await first.stop()
        await advance_until(api_server, [second], lambda: any(each["event"] == "converged" for each in logs))
    assert [True] == [each["seconds"] < 100 for each in logs if each["event"] == "converged"]


async def test_one_writes_and_the_other_takes_over(start, api_server):
    """At once after a clean end, with what it decided meanwhile; and not before."""
    first = await start("first")
    await api_server.until(lambda: ["2", "2"] == amounts(api_server))
    second = await start("second", count=3)
    await api_server.until(lambda: 2 == len(second.fleet.members))
    await api_server.until(lambda: "first" == second.fleet.leadership.holder)
    assert (["2", "2"], "first") == (amounts(api_server), holder(api_server))
    assert (True, False) == (first.fleet.is_leading, second.fleet.is_leading)
    clear = {"all": True}
    with pytest.raises(UsageError, match="ask the one that has the Lease: first"):
        await second.fleet.faults.commands["fault-clear"](clear)
    assert {"cleared": []} == await first.fleet.faults.commands["fault-clear"](clear)
    await first.stop()
    await advance_until(api_server, [second], lambda: ["3", "3"] == amounts(api_server))
    assert "second" == holder(api_server)


async def test_a_holder_that_is_gone_is_waited_for(start, api_server):
    """As long as its Lease lasts, by the clock of who waits."""
    lease = {
        "metadata": {"name": "fleet", "namespace": "default"},
        "spec": {"holderIdentity": "gone", "leaseDurationSeconds": 15, "renewTime": "2020-01-01T00:00:00.000000Z"},
    }
    await api_server.add("leases", lease, namespace="default")
    second = await start("second")
    await api_server.until(lambda: "gone" == second.fleet.leadership.holder)
    assert [] == amounts(api_server)
    second.clock.advance(LONGER)
    await advance_until(api_server, [second], lambda: ["2", "2"] == amounts(api_server))


async def test_a_server_that_is_away_longer_than_the_lease(start, api_server):
    """Who cannot renew stops before somebody else may begin."""
    first = await start("first")
    await api_server.until(lambda: ["2", "2"] == amounts(api_server))
    await api_server.down()
    await advance_until(api_server, [first], first.task.done)
    assert not first.fleet.is_leading
    with pytest.raises(LeaseLost, match="default/fleet could not be renewed for 10 s"):
        await first.task
    await api_server.up()
    second = await start("second", count=3)
    second.clock.advance(LONGER)
    await advance_until(api_server, [second], lambda: ["3", "3"] == amounts(api_server))


async def test_a_lease_that_somebody_takes_is_lost(start, api_server):
    """No matter who took it: two that write never end."""
    first = await start("first")
    await api_server.until(lambda: ["2", "2"] == amounts(api_server))
    await api_server.edit(
        "leases", "fleet", {"spec": {"holderIdentity": "thief"}}, namespace="default", manager="kubectl"
    )
    await advance_until(api_server, [first], first.task.done)
    with pytest.raises(LeaseLost, match="thief has the Lease"):
        await first.task


async def test_two_that_are_equally_fast(start, api_server):
    """One gets it by the version of the Lease, the other waits."""
    both = [await start("first"), await start("second")]
    await api_server.until(lambda: ["2", "2"] == amounts(api_server))
    assert [True, False] == sorted((each.fleet.is_leading for each in both), reverse=True)
