"""How often something may be done."""

import asyncio

from vdev.aio.clock import ManualClock
from vdev.aio.tasks import Pace


async def settled():
    """Let everything run that can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_burst_then_one_after_the_other():
    """And after a rest a burst again, no larger."""
    clock = ManualClock()
    pace = Pace(clock, burst=3, every=2.0)
    done = []

    async def work():
        while True:
            await pace.ready()
            pace.spend()
            done.append(clock.now())

    task = asyncio.create_task(work())
    await settled()
    assert [0.0, 0.0, 0.0] == done
    for _ in range(4):
        clock.advance(1.0)
        await settled()
    assert [2.0, 4.0] == done[3:]
    task.cancel()
    clock.advance(100.0)
    task = asyncio.create_task(work())
    await settled()
    assert [104.0, 104.0, 104.0] == done[5:]
    task.cancel()
