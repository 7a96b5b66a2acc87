"""A deadline that sets a timer only for what waits."""

import asyncio

import pytest

from vdev.aio.clock import ManualClock
from vdev.aio.deadline import within


class Counting(ManualClock):
    """Counts its timers."""

    def __init__(self):
        super().__init__()
        self.timers = 0

    def call_at(self, moment, action):
        """As ever."""
        self.timers += 1
        return super().call_at(moment, action)


@pytest.fixture
def clock():
    """A clock that stands."""
    return Counting()


async def at_once(what):
    """It waits for nothing."""
    if isinstance(what, Exception):
        raise what
    return what


async def when(*events):
    """It waits for one after the other."""
    for each in events:
        await each.wait()
    return "done"


async def test_what_waits_for_nothing_sets_no_timer(clock):
    """Neither with a result nor with an error."""
    assert await within(clock, 1, at_once(5)) == 5
    with pytest.raises(ValueError, match="no"):
        await within(clock, 1, at_once(ValueError("no")))
    assert clock.timers == 0


async def test_what_waits_in_time_is_awaited_to_its_end(clock):
    """However often it waits, and whatever for."""
    first, second = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(within(clock, 1, when(first, second)))
    for each in (first, second):
        await asyncio.sleep(0)
        clock.advance(0.4)
        each.set()
    assert await task == "done"
    assert clock.timers == 1


async def test_what_waits_too_long_is_given_up(clock):
    """It is cancelled where it waits, can put things in order, and the caller has a TimeoutError."""
    left = []

    async def tidy():
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            left.append("tidied")

    task = asyncio.create_task(within(clock, 1, tidy()))
    await asyncio.sleep(0)
    clock.advance(1.1)
    with pytest.raises(TimeoutError):
        await task
    assert left == ["tidied"]


async def test_a_cancellation_reaches_what_waits(clock):
    """From its first wait on; what it makes of it counts."""

    async def stubborn():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "cancelled"

    task = asyncio.create_task(within(clock, 1, stubborn()))
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "cancelled"


async def test_an_error_after_a_wait_is_the_callers(clock):
    """And no TimeoutError."""
    event = asyncio.Event()

    async def late():
        await event.wait()
        raise LookupError("gone")

    task = asyncio.create_task(within(clock, 1, late()))
    await asyncio.sleep(0)
    event.set()
    with pytest.raises(LookupError, match="gone"):
        await task
