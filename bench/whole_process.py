"""Benchmarks of the whole process: start, memory, and a comparison with another plugin on the same kind of kubelet."""

import asyncio
import functools
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

from bench import client, configs, programs
from bench.programs import Place, Process, place, until
from bench.table import Table, flat, number, ratio
from vdev.sim import Kubelet

_SETTLE = 5  # seconds of idle time before memory is read
_WORK = 2000  # calls before memory is read


async def start(table: Table) -> None:
    """The time from the start of the process until the kubelet has the lists of all resources."""
    names = [configs.resource(each) for each in range(8)]
    ours, floor = [], []
    for _ in range(table.some(10, 2)):
        async with (
            place() as here,
            Kubelet(here.kubelet) as kubelet,
            programs.agent(here, configs.plain(8, 8)) as plugin,
        ):
            ours.append(await _registered(kubelet, names, plugin))
        async with place() as here:
            begun = time.perf_counter()
            async with programs.empty_server(here) as (socket, _):
                with client.Caller(socket) as caller:
                    await asyncio.to_thread(caller.call, "GetDevicePluginOptions")
            floor.append(time.perf_counter() - begun)
    beside = f"worst {number(max(ours))} s; empty server answers after {number(statistics.median(floor))} s"
    table.add("start → registered, 8 resources", statistics.median(ours), "s", 1, beside, most="p50")


async def _registered(kubelet: Kubelet, names: Sequence[str], plugin: Process) -> float:
    """Return the seconds from the plugin's start until the node has these resources."""
    await kubelet.wait_until(lambda: plugin.check() or all(kubelet.node().capacity.get(each) for each in names))
    return time.perf_counter() - plugin.started


async def memory(table: Table) -> None:
    """The resident memory after some calls: of the device plugin alone, and with DRA, labels and metrics."""
    async with place() as here, programs.empty_server(here) as (socket, empty):
        await _work([socket])
        floor = f"empty server {number(empty.resident())} MiB"
    async with place() as here, Kubelet(here.kubelet), programs.agent(here, configs.plain(8, 8)) as plugin:
        await _work(await programs.sockets(here, 8, plugin))
        await asyncio.sleep(table.some(_SETTLE, 2))
        table.add("resident memory, device plugin alone, 8 resources", plugin.resident(), "MiB", 75, floor)
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(place())
        await stack.enter_async_context(programs.cluster(here))
        address = programs.free_address()
        more = ("--kubeconfig", here.kubeconfig, "--http-address", address)
        plugin = await stack.enter_async_context(programs.agent(here, configs.with_everything(), *more))
        await _work(await programs.sockets(here, 8, plugin))
        await until(lambda: plugin.check() or programs.page(address, "readyz"), "readiness", every=0.1)
        programs.page(address, "metrics")
        await asyncio.sleep(table.some(_SETTLE, 2))
        table.add("resident memory with DRA, labels and metrics", plugin.resident(), "MiB", 95, floor)


async def _work(sockets: Sequence[Path]) -> None:
    for socket in sockets:
        with client.Caller(socket) as caller:
            await asyncio.to_thread(caller.call, "GetDevicePluginOptions")
            await asyncio.to_thread(caller.times, "GetDevicePluginOptions", [b""], _WORK // len(sockets))


async def peer(table: Table, command: str, resource: str) -> None:
    """Compare vdev with any other device plugin: start, a restart of the kubelet, Allocate, memory."""
    sides = (
        (functools.partial(programs.agent, config=configs.plain(1, 8)), configs.resource(0)),
        (functools.partial(programs.peer, command=command), resource),
    )
    starts: list[list[float]] = [[], []]
    for _ in range(table.some(10, 2)):
        for taken, (begin, name) in zip(starts, sides, strict=True):
            async with place() as here, Kubelet(here.kubelet) as kubelet, begin(here) as plugin:
                taken.append(await _registered(kubelet, [name], plugin))
    ours, theirs = map(statistics.median, starts)
    table.add("start → registered, 1 resource", ours, "s", None, f"peer {number(theirs)} s", most="p50")
    async with AsyncExitStack() as stack:
        nodes = [await _node(stack, begin, name) for begin, name in sides]
        restarts = [[await _restarted(*each[:3]) for _ in range(table.some(8, 2))] for each in nodes]
        ours, theirs = map(statistics.median, restarts)
        table.add("kubelet restart → registered", ours, "s", None, f"peer {number(theirs)} s", most="p50")
        requests = []
        for *_, here in nodes:
            (socket, *_) = await programs.sockets(here, 1, nodes[0][2])
            async with client.watching(socket) as (_, ids, _):
                requests.append((socket, [client.allocation(ids[:1])]))
        rounds = await client.rounds_in_turn(requests, "Allocate", table.some(12, 3), table.some(160, 32))
        ours, theirs = (statistics.median(flat(each)) * 1e6 for each in rounds)
        beside = f"peer {number(theirs)} µs; ratio {number(ratio(*rounds))}"
        table.add("Allocate of 1 device", ours, "µs", None, beside, most="p50")
        await asyncio.sleep(table.some(_SETTLE, 2))
        ours, theirs = (each[2].resident() for each in nodes)
        table.add("resident memory, 1 resource", ours, "MiB", None, f"peer {number(theirs)} MiB")


async def _node(
    stack: AsyncExitStack, begin: Callable[[Place], AbstractAsyncContextManager[Process]], name: str
) -> tuple[Kubelet, str, Process, Place]:
    """Start a plugin with its own kubelet, and wait until it is registered."""
    here = await stack.enter_async_context(place())
    kubelet = await stack.enter_async_context(Kubelet(here.kubelet))
    plugin = await stack.enter_async_context(begin(here))
    await _registered(kubelet, [name], plugin)
    return kubelet, name, plugin, here


async def _restarted(kubelet: Kubelet, name: str, plugin: Process) -> float:
    """Stop the kubelet for a second. Returns the seconds from its start until it has a healthy device again."""
    await kubelet.stop()
    await asyncio.sleep(1.0)
    begun = time.perf_counter()
    await kubelet.start()
    await kubelet.wait_until(lambda: plugin.check() or kubelet.node().allocatable.get(name))
    return time.perf_counter() - begun
