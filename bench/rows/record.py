"""Rows of what outlives the process: a start with a record of what was listed, and a reload that writes one.

Each is beside the same without a record (`--no-state`), in the place of the floor.
"""

import asyncio
import time
from contextlib import AsyncExitStack

from ..measured import configs, process
from ..table.row import Run, timed
from . import lists

_SIZES = (8, 1000, 70_000)
_SERVE_ONLY = ("--kubelet-socket", "")
_WITHOUT = (*_SERVE_ONLY, "--no-state")


async def record(run: Run) -> None:
    """Starts and reloads with a record of what was listed, over the same without."""
    for devices in _SIZES:
        many = f"{devices:,} devices".replace(",", " ")
        text = configs.plain(1, devices)
        async with process.place() as one, process.place() as other:
            await _served(one, text, *_SERVE_ONLY)  # leaves a record
            ours, floor = [], []
            for _ in range(run.some(10, 2)):
                ours.append([await _served(one, text, *_SERVE_ONLY)])
                floor.append([await _served(other, text, *_WITHOUT)])
        run.add(timed("start with a record", f"{many}; floor: without", ours, floor, unit="s"))
        run.add(timed("reload with a record", f"1 of {many} more; floor: without", *await _reloads(run, devices)))


async def _served(here: process.Place, text: str, *extra: str) -> float:
    """Seconds from the start of a process until it serves."""
    async with process.agent(here, text, *extra) as agent:
        await process.sockets(here, configs.resources(1), agent)
        return time.perf_counter() - agent.started


async def _reloads(run: Run, devices: int) -> tuple[list[list[float]], list[list[float]]]:
    """Seconds of reloads with and without a record, in turn."""
    async with AsyncExitStack() as stack:
        sides = []
        for extra in (_SERVE_ONLY, _WITHOUT):
            here = await stack.enter_async_context(process.place())
            agent = await stack.enter_async_context(process.agent(here, configs.plain(1, devices), *extra))
            (socket,) = await process.sockets(here, configs.resources(1), agent)
            sides.append((here, await stack.enter_async_context(lists.settled(socket)), list[list[float]]()))
        for number in range(run.some(20, 4)):
            for here, stream, taken in sides:
                begun = time.perf_counter()
                here.write_config(configs.plain(1, devices + 1 - number % 2))
                moment, _ = await asyncio.wait_for(stream.next(), 30)
                taken.append([moment - begun])
                await lists.quiet([stream])
        return sides[0][2], sides[1][2]
