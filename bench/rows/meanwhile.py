"""Rows of what an Allocate takes while the agent works: during a reload, a re-partition, a scrape.

A call is made every few milliseconds, whether or not the one before is answered. Rounds with work take turns with
rounds of the same length without, which are the floor.
"""

import asyncio
import itertools
import socket
import time
import urllib.request
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from vdev.pb import deviceplugin_v1beta1_pb2 as pb

from ..measured import client, configs, process
from ..table.row import Run, timed
from .calls import SERVE_ONLY, allocation

_EVERY = 0.01  # seconds from one call to the next
_AFTER = 0.1  # seconds after the list that still count, for what is done once it is out
_REST = 0.75  # seconds until the agent has nothing to do any more
_WITHIN = 60.0  # seconds for a scrape
_SCRAPED = 10_000
_TAIL, _WORST = 2.0, 25.0  # times the floor's; milliseconds
_GROUP = "Allocate meanwhile"


@dataclass(frozen=True, slots=True)
class _Edit:
    """An agent on the first text, whose file is the second and the first again in turns.

    `changes` is the resource that has a new list each time; one device of the first resource is asked for.
    """

    what: str
    texts: tuple[str, str]
    rounds: int
    changes: str = configs.resource(0)


async def meanwhile(run: Run) -> None:
    """Allocate during a reload, a re-partition and a scrape, over the same agent at rest."""
    for edit in _edits():
        await _edited(run, edit)
    await _scraped(run)


def _edits() -> list[_Edit]:
    cut = f"{configs.DOMAIN}/mig-1g.5gb"
    return [
        _Edit("1 of 256 entries is reloaded", (configs.of_many(256, 8), configs.of_many(256, 9)), 10),
        _Edit("10 000 devices are reloaded", configs.turned(10_000), 20),
        _Edit("70 000 devices are reloaded", configs.turned(70_000), 8),
        _Edit("16 A100s are partitioned anew", configs.partitioned(16), 20, cut),
        _Edit("1 000 A100s are partitioned anew", configs.partitioned(1000), 10, cut),
    ]


async def _edited(run: Run, edit: _Edit) -> None:
    """From the file in its place to the list, and a little longer."""
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(process.place())
        agent = await stack.enter_async_context(process.agent(here, edit.texts[0], *SERVE_ONLY))
        path, changing = await process.sockets(here, [configs.resource(0), edit.changes], agent)
        async with client.watching(path) as first:
            device = pb.ListAndWatchResponse.FromString((await first.next())[1]).devices[0].ID
        stream = await stack.enter_async_context(client.watching(changing))
        await stream.until_quiet(_REST)
        texts = itertools.cycle(reversed(edit.texts))

        async def work() -> None:
            here.write_config(next(texts))
            await stream.next()
            await asyncio.sleep(_AFTER)
            agent.check()

        caller = stack.enter_context(client.Caller(path))
        busy, quiet = await _beside(caller, allocation([device]), work, run.some(edit.rounds, 2))
    run.add(timed(_GROUP, edit.what, busy, quiet, tail_limit=_TAIL, worst_limit=_WORST))


async def _scraped(run: Run) -> None:
    """While the metrics of all devices are read."""
    address = await asyncio.to_thread(free_address)
    url = f"http://{address}/metrics"
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(process.place())
        agent = await stack.enter_async_context(process.agent(here, configs.scraped(_SCRAPED, address), *SERVE_ONLY))
        (path,) = await process.sockets(here, configs.resources(1), agent)
        async with client.watching(path) as stream:
            listed = pb.ListAndWatchResponse.FromString((await stream.next())[1])
        size = await fetched(url)
        scrapes: list[list[float]] = []

        async def scrape() -> None:
            begun = time.perf_counter()
            await asyncio.to_thread(_get, url)
            scrapes.append([time.perf_counter() - begun])

        caller = stack.enter_context(client.Caller(path))
        for _ in range(run.some(10, 2)):
            await scrape()
        alone = list(scrapes)
        busy, quiet = await _beside(caller, allocation([listed.devices[0].ID]), scrape, run.some(8, 2))
    devices = f"{_SCRAPED:,} devices".replace(",", " ")
    run.add(timed("scrape of devices", f"{devices}, {size // 2**20} MiB", alone, median_limit=1000.0))
    run.add(timed(_GROUP, f"{devices} are scraped", busy, quiet, tail_limit=_TAIL, worst_limit=_WORST))


async def _beside(
    caller: client.Caller, request: bytes, work: Callable[[], Awaitable[None]], rounds: int
) -> tuple[list[list[float]], list[list[float]]]:
    """Rounds of calls during the work, and rounds of the same length without."""
    busy, quiet = [], []
    for number in range(rounds + 1):
        await asyncio.sleep(_REST)
        begun = time.perf_counter()
        async with caller.calling("Allocate", request, _EVERY) as during:
            await work()
        lasted = time.perf_counter() - begun
        await asyncio.sleep(_REST)
        async with caller.calling("Allocate", request, _EVERY) as alone:
            await asyncio.sleep(lasted)
        if number:  # the first does not count: everything is imported and grown
            busy.append(during)
            quiet.append(alone)
    return busy, quiet


async def fetched(url: str) -> int:
    """Ask until it is served; the bytes of a scrape."""
    deadline = time.perf_counter() + _WITHIN
    while True:
        try:
            return len(await asyncio.to_thread(_get, url))
        except OSError:
            if time.perf_counter() > deadline:
                raise
            await asyncio.sleep(0.1)


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=_WITHIN) as answer:
        body: bytes = answer.read()
    return body


def free_address() -> str:
    """An address on loopback where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"127.0.0.1:{taken.getsockname()[1]}"
