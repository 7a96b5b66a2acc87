"""Tasks under supervision that follow each other."""

import asyncio

from vdev.agent.retry import Retrier


async def test_a_successor_waits_for_all_earlier_tasks():
    """Also if the task between them is cancelled while it waits."""
    retrier, ends, log = Retrier(), asyncio.Event(), []

    async def first():
        try:
            await asyncio.Event().wait()
        finally:
            await ends.wait()
            log.append("first ended")

    async def later():
        log.append("later one started")

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        earlier = group.create_task(retrier.supervise("first", first))
        await asyncio.sleep(0)
        between = group.create_task(retrier.supervise("between", later, after=earlier))
        last = group.create_task(retrier.supervise("last", later, after=between))
        await asyncio.sleep(0)
        earlier.cancel()
        between.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not last.done()
        ends.set()
    assert ["first ended", "later one started"] == log


async def test_a_task_that_ends_leaves_no_problem():
    """It failed and was cancelled in the pause."""
    retrier, failed = Retrier(), asyncio.Event()

    async def work():
        failed.set()
        raise OSError("broken")

    task = asyncio.create_task(retrier.supervise("working", work))
    await failed.wait()
    await asyncio.sleep(0)
    assert retrier.reason("working")
    task.cancel()
    await asyncio.wait([task])
    assert () == retrier.problems
