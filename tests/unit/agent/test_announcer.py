"""What the service manager is told when things do not go well."""

import asyncio
import contextlib
import itertools

import pytest

from tests.kit.service_manager import Listener
from vdev.agent.announcer import Announcer, Outlook
from vdev.agent.steps import Steps
from vdev.aio.clock import ManualClock, Timing
from vdev.observe.service_manager import ServiceManager


@pytest.fixture
def listener(tmp_path):
    """The socket of a service manager that does not listen yet."""
    return Listener(tmp_path)


async def test_a_loop_that_turns_while_the_work_stands_still_is_no_life(listener):
    """The watchdog gets its signs only while the agent takes its steps."""
    looks, clock = itertools.count(), ManualClock()

    def outlook():
        look = next(looks)
        asyncio.get_running_loop().call_soon(clock.advance, 10)  # past the next sign
        return Outlook(served=True, stalled="nothing moves" if look >= 5 else "", summary=str(look))

    manager = ServiceManager(listener.address, watchdog=30)
    announcer = Announcer(manager, outlook, patience=0, steps=Steps(), timing=Timing(clock=clock))
    async with listener.listening(), announcer.announcing():
        await listener.until(lambda: listener.status == "8", "eight looks")
    assert 5 == listener.said.count("WATCHDOG=1")


async def test_the_start_is_told_again_where_that_failed(listener):
    """A message that was lost must not keep the kubelet from starting."""
    tried = asyncio.Event()

    def outlook():
        tried.set()
        return Outlook(served=True)

    announcer = Announcer(ServiceManager(listener.address), outlook, patience=0, steps=Steps())
    async with announcer.announcing(), contextlib.AsyncExitStack() as stack:
        await tried.wait()  # nobody listens yet
        await stack.enter_async_context(listener.listening())
        await listener.ready()


async def test_the_context_ends_with_what_ended_it(listener):
    """As it is, and not in a group."""
    announcer = Announcer(ServiceManager(listener.address), lambda: Outlook(served=True), patience=0, steps=Steps())
    with pytest.raises(ZeroDivisionError):
        async with announcer.announcing():
            raise ZeroDivisionError
