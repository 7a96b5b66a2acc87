"""Rows of device nodes that come and go: what an Allocate takes meanwhile, beside the same agent at rest."""

import asyncio
import itertools
import os
import stat
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

from vdev.pb import deviceplugin_v1beta1_pb2 as pb

from ..measured import client, configs, process
from ..table.row import Run, sized, timed
from .calls import SERVE_ONLY, allocation

_GLOBS, _EACH = 64, 160
_BETWEEN_FLIPS = 0.1  # seconds
_BETWEEN_CALLS = 0.02
_WORDS = f"{_GLOBS * _EACH:,} devices in {_GLOBS} globs".replace(",", " ")
_NOTE = (
    "a device node is made or removed every 100 ms, in each glob in turn; over the same plugin in rounds without, with "
    "a call every 20 ms in both, timed from the moment at which it was due"
)


async def flaps(run: Run) -> None:
    """Allocate of a device that stays, in rounds that take turns, and the CPU that a flip costs."""
    if os.geteuid() != 0:
        run.skip("devices that flap", "making device nodes needs root")
        return
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(process.place())
        nodes = [[here.host / "dev" / f"g{glob}-{number}" for number in range(_EACH)] for glob in range(_GLOBS)]
        for node in itertools.chain(*nodes):
            _flip(node)
        extra = ("--host-root", str(here.host), *SERVE_ONLY)
        agent = await stack.enter_async_context(process.agent(here, _config(), *extra))
        sockets = await process.sockets(here, configs.resources(_GLOBS), agent)
        streams = [await stack.enter_async_context(client.watching(each)) for each in sockets]
        (_, listed), *_ = await asyncio.gather(*(each.next() for each in streams))
        stays = pb.ListAndWatchResponse.FromString(listed).devices[-1].ID
        turns = itertools.cycle([each[0] for each in nodes])
        caller = stack.enter_context(client.Caller(sockets[0]))
        sides: list[list[list[float]]] = [[], []]
        cpu, flips = [0.0, 0.0], 0
        for flapping in [False, True] * run.some(6, 2):
            await asyncio.gather(*(each.until_quiet(1.0) for each in streams))
            used, seconds = agent.cpu(), run.some(5, 1)
            async with caller.calling("Allocate", allocation([stays]), _BETWEEN_CALLS) as taken:
                if flapping:
                    flips += await _flips(turns, time.perf_counter() + seconds)
                else:
                    await asyncio.sleep(seconds)
            sides[flapping].append(taken)
            cpu[flapping] += agent.cpu() - used
    quiet, busy = sides
    run.add(timed("Allocate", f"{_WORDS}, nothing happens", quiet, unit="us"))
    run.add(timed("Allocate", f"{_WORDS}, 10 flips a second", busy, quiet, unit="us", note=_NOTE))
    run.add(sized("devices that flap", f"{_WORDS}, CPU for a flip", "ms", (cpu[1] - cpu[0]) / flips * 1e3, None, None))


def _config() -> str:
    entry = "  - {{name: e{0}, resource: {1}, glob: /dev/g{0}-*}}\n"
    return configs.devices(*(entry.format(glob, configs.resource(glob)) for glob in range(_GLOBS)))


def _flip(node: Path) -> None:
    """Remove it where it is there, and make it where it is not."""
    try:
        node.unlink()
    except FileNotFoundError:
        os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(1, 3))


async def _flips(turns: Iterator[Path], end: float) -> int:
    """Flip one node after the other until the end; how many."""
    count, due = 0, time.perf_counter()
    while due < end:
        await asyncio.sleep(due - time.perf_counter())
        _flip(next(turns))
        count, due = count + 1, due + _BETWEEN_FLIPS
    return count
