"""Benchmarks of the device plugin's calls and lists. The plugin runs without a kubelet, so `bench.client` calls it."""

import asyncio
import itertools
import os
import stat
import statistics
import time
from collections.abc import Callable
from contextlib import AsyncExitStack

from bench import client, configs
from bench.programs import SERVE_ONLY, agent, empty_server, place, sockets
from bench.table import Table, flat, number, p99, ratio

_EVERY = 0.01  # seconds between two calls during a reload
_AFTER = 0.1  # seconds after the list that still count, for work that follows the list
_REST = 0.75  # seconds until the plugin is idle


async def allocate(table: Table) -> None:
    """Allocate for one device, compared with an empty server."""
    async with place() as here, agent(here, configs.plain(1, 16), *SERVE_ONLY) as plugin, empty_server(here) as floor:
        (socket,) = await sockets(here, 1, plugin)
        async with client.watching(socket) as (_, ids, _):
            requests = [client.allocation([each]) for each in ids]
        sides = [(socket, requests), (floor[0], requests)]
        ours, empty = await client.rounds_in_turn(sides, "Allocate", table.some(12, 3), table.some(160, 32))
    mine, theirs = (statistics.median(flat(each)) * 1e6 for each in (ours, empty))
    beside = f"{number(mine)} µs; empty server {number(theirs)} µs"
    table.add("Allocate, over an empty server", ratio(ours, empty), "x", 1.5, beside, most="p50")


async def allocate_during_reload(table: Table) -> None:
    """Allocate during a reload that changes each of 10,000 devices."""
    texts = configs.turned(10_000)
    busy, quiet = [], []
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(place())
        plugin = await stack.enter_async_context(agent(here, texts[0], *SERVE_ONLY))
        (socket,) = await sockets(here, 1, plugin)
        stream, ids, _ = await stack.enter_async_context(client.watching(socket))
        caller = stack.enter_context(client.Caller(socket))
        request = client.allocation(ids[:1])
        turns = itertools.cycle(reversed(texts))
        for counts in range(table.some(20, 2) + 1):
            await asyncio.sleep(_REST)
            begun = time.perf_counter()
            async with caller.calling("Allocate", request, _EVERY) as during:
                here.write_config(next(turns))
                await stream.next()
                await asyncio.sleep(_AFTER)
            lasted = time.perf_counter() - begun
            await stream.quiet(_REST)
            async with caller.calling("Allocate", request, _EVERY) as alone:
                await asyncio.sleep(lasted)
            if counts:  # the first round is a warm-up, which imports modules and allocates memory
                busy += during
                quiet += alone
    beside = f"p99 {number(p99(busy) * 1e3)} ms; at rest worst {number(max(quiet) * 1e3)} ms"
    table.add("Allocate while 10,000 devices are reloaded", max(busy) * 1e3, "ms", 100, beside, most="worst")


async def preferred(table: Table) -> None:
    """GetPreferredAllocation for linked devices and for replicas."""
    cases = (
        ("8 of 16 linked", configs.linked(16, 4), 8, 1.0),
        ("64 of 10,000 replicas", configs.replicated(1000, 10), 64, 50.0),
    )
    for what, config, size, budget in cases:
        async with place() as here, agent(here, config, *SERVE_ONLY) as plugin, empty_server(here) as floor:
            (socket,) = await sockets(here, 1, plugin)
            async with client.watching(socket) as (_, ids, _):
                requests = [client.preference(ids, size)]
            sides = [(socket, requests), (floor[0], requests)]
            rounds = await client.rounds_in_turn(sides, "GetPreferredAllocation", table.some(10, 3), table.some(20, 8))
            mine, empty = (statistics.median(flat(each)) * 1e3 for each in rounds)
        beside = f"empty server {number(empty)} ms"
        table.add(f"GetPreferredAllocation, {what}", mine, "ms", budget, beside, most="p50")


async def edit(table: Table) -> None:
    """The time until the new lists after an edit of all 8 resources, and of each of 10,000 devices."""
    eight = (configs.plain(8, 8), configs.plain(8, 9))
    ours, floor = await _edits(eight, 8, table.some(100, 4))
    beside = f"p50 {number(statistics.median(ours) * 1e3)} ms; {_as_many_bytes(floor)}"
    table.add("edit → new lists, 8 resources", p99(ours) * 1e3, "ms", 50, beside, most="p99")
    ours, floor = await _edits(configs.turned(10_000), 1, table.some(20, 2))
    beside = f"p50 {number(statistics.median(ours))} s; {_as_many_bytes(floor)}"
    table.add("reload of 10,000 devices", max(ours), "s", 1.5, beside, most="worst")


async def _edits(texts: tuple[str, str], resources: int, rounds: int) -> tuple[list[float], list[float]]:
    """Return the seconds from a change of the file to the last list, for the plugin and for an empty server."""
    ours, floor = [], []
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(place())
        plugin = await stack.enter_async_context(agent(here, texts[0], *SERVE_ONLY))
        found = await sockets(here, resources, plugin)
        lists = [await stack.enter_async_context(client.watching(each)) for each in found]
        empty = await stack.enter_async_context(empty_server(here, lists[0][2], here.config.parent))
        lists.append(await stack.enter_async_context(client.watching(empty[0])))
        streams = [stream for stream, *_ in lists]
        for text in itertools.islice(itertools.cycle(reversed(texts)), rounds):
            begun = time.perf_counter()
            here.write_config(text)
            moments = [moment for moment, _ in await asyncio.gather(*(each.next() for each in streams))]
            ours.append(max(moments[:-1]) - begun)
            floor.append(moments[-1] - begun)
            await asyncio.gather(*(each.quiet() for each in streams))
    return ours, floor


async def hotplug(table: Table) -> None:
    """The time until the new list after a device node appears or vanishes."""
    if os.geteuid() != 0:
        table.fail("hotplug", "making device nodes needs root")
        return
    ours: dict[str, list[float]] = {"appears": [], "vanishes": []}
    floor: dict[str, list[float]] = {"appears": [], "vanishes": []}
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(place())
        dev = here.root / "h" / "dev"
        node = dev / "ttyBENCH1"
        os.mknod(dev / "ttyBENCH0", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        more = ("--host-root", here.root / "h", *SERVE_ONLY)
        plugin = await stack.enter_async_context(agent(here, configs.globbed("/dev/ttyBENCH*"), *more))
        (socket,) = await sockets(here, 1, plugin)
        mine, _, size = await stack.enter_async_context(client.watching(socket))
        empty = await stack.enter_async_context(empty_server(here, size, dev))
        other, *_ = await stack.enter_async_context(client.watching(empty[0]))
        actions: list[tuple[str, Callable[[], None]]] = [
            ("appears", lambda: os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(1, 3))),
            ("vanishes", node.unlink),
        ]
        for what, act in actions * table.some(100, 4):
            begun = time.perf_counter()
            act()
            (moment, _), (its, _) = await asyncio.gather(mine.next(), other.next())
            ours[what].append(moment - begun)
            floor[what].append(its - begun)
            await asyncio.gather(mine.quiet(), other.quiet())
    for what, taken in ours.items():
        beside = f"p50 {number(statistics.median(taken) * 1e3)} ms; {_as_many_bytes(floor[what])}"
        table.add(f"device node {what} → new list", p99(taken) * 1e3, "ms", 50, beside, most="p99")


def _as_many_bytes(floor: list[float]) -> str:
    return f"empty server, p50 {number(statistics.median(floor) * 1e3)} ms"
