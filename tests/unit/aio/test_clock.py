"""Waiting by a clock that a test turns: in order, at the right moment, and never for longer than the test takes."""

import asyncio

import pytest

from vdev.aio.clock import Clock, LeapClock, ManualClock, SystemClock

HOUR = 3600.0


@pytest.fixture(params=[ManualClock, LeapClock])
async def clock(request):
    """Either of the clocks that can be put forward."""
    return request.param()


async def settle() -> None:
    """Let every task go as far as it can."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_every_action_has_its_own_moment():
    """In the order of the moments, those of one moment in the order of asking; what a call asks for counts as well."""
    clock, seen = ManualClock(100.0), []
    clock.call_at(103, lambda: seen.append(("c", clock.now())))
    clock.call_at(101, lambda: clock.call_later(1, lambda: seen.append(("b", clock.now()))))
    clock.call_at(103, lambda: seen.append(("d", clock.now())))
    clock.call_at(110, lambda: seen.append(("e", clock.now())))
    assert 101 == clock.next_due
    clock.advance(5)
    assert [("b", 102), ("c", 103), ("d", 103)] == seen
    assert (105, 110) == (clock.now(), clock.next_due)


def test_what_is_cancelled_is_not_called():
    """Before its time and after it; nobody waits then."""
    clock, seen = ManualClock(), []
    cancel = clock.call_later(1, lambda: seen.append(1))
    done = clock.call_later(1, lambda: seen.append(2))
    cancel()
    clock.advance(2)
    cancel()
    done()
    assert [2] == seen
    assert clock.next_due is None


def test_people_are_shown_the_same_passing_of_time():
    """The wall's time moves with the other."""
    clock = ManualClock(7.0, wall=1e9)
    clock.advance(HOUR)
    assert (7.0 + HOUR, 1e9 + HOUR) == (clock.now(), clock.wall())


async def test_sleep(clock: ManualClock):
    """It ends when its time has come."""
    task = asyncio.create_task(clock.sleep(HOUR))
    await settle()
    clock.advance(HOUR - 60)
    await settle()
    assert not task.done()
    clock.advance(61)
    await task


async def test_timeout(clock: ManualClock):
    """What takes longer is interrupted; what does not is none the worse for it; None is forever."""
    async with clock.timeout(HOUR), clock.timeout(None):
        await asyncio.sleep(0)

    async def wait() -> None:
        async with clock.timeout(HOUR):
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await settle()
    clock.advance(HOUR + 1)
    with pytest.raises(TimeoutError):
        await task
    assert clock.next_due is None


async def test_cancellation_is_no_timeout(clock: ManualClock):
    """To cancel what waits gives a cancelled task, and leaves no timer behind."""

    async def wait() -> None:
        async with clock.timeout(HOUR):
            await clock.sleep(HOUR)

    task = asyncio.create_task(wait())
    await settle()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert clock.next_due is None


@pytest.mark.parametrize("make", [ManualClock, LeapClock, SystemClock])
async def test_what_is_past_comes_soon(make: type[Clock]):
    """On every clock: not at once, because its caller may not be ready, and without anybody's help."""
    clock, over = make(), asyncio.Event()
    clock.call_at(clock.now() - 1, over.set)
    assert not over.is_set()
    await over.wait()
    await clock.sleep(0)
    with pytest.raises(TimeoutError):
        async with clock.timeout(0):
            await asyncio.Event().wait()


async def test_a_leaping_clock_runs_by_itself():
    """It goes on as the machine's does, also where something later is asked for first."""
    clock, over = LeapClock(), asyncio.Event()
    clock.call_later(HOUR, list)
    clock.call_later(0.001, over.set)
    await over.wait()
    assert clock.next_due is not None


async def test_waiting_for_an_event_ends_with_it_or_with_the_time(clock: Clock):
    """Which then sets the event; what came first leaves no timer behind, and without a time it may take forever."""
    event = asyncio.Event()
    task = asyncio.create_task(clock.wait(event, HOUR))
    await settle()
    assert not task.done()
    event.set()
    await task
    event.clear()
    clock.advance(2 * HOUR)
    await settle()
    assert not event.is_set()
    task = asyncio.create_task(clock.wait(event, HOUR))
    await settle()
    clock.advance(HOUR)
    await task
    assert event.is_set()
    event.clear()
    task = asyncio.create_task(clock.wait(event, None))
    await settle()
    clock.advance(HOUR)
    await settle()
    assert not task.done()
    event.set()
    await task
