"""Rows of the whole process: how soon it is registered, after its own start and after the kubelet's, and its size."""

import asyncio
import time

from ..measured import client, configs, life, process
from ..table.row import Run, sized, timed


async def start(run: Run) -> None:
    """From the start of the process to the kubelet's having every resource's first list."""
    for count, limit in ((1, None), (8, 0.7), (64, 1.0)):
        ours, floor = [], []
        for _ in range(run.some(10, 2)):
            async with process.place() as here:
                ours.append([await _ours(here, count)])
            async with process.place() as here:
                floor.append([await _floor(here)])
        what = f"{count} resource{'s' * (count > 1)}"
        run.add(timed("start → registered", what, ours, floor, unit="s", median_limit=limit))
    if run.peer is not None:
        mine, theirs = [], []
        for _ in range(run.some(10, 2)):
            async with process.place() as here:
                mine.append([await _ours(here, 1)])
            async with process.place() as here, life.theirs(here, run.peer) as other:
                theirs.append([await other.registered() - other.process.started])
        run.add(timed("peer", "start → registered, 1 resource", mine, peer=theirs, unit="s"))


async def restart(run: Run) -> None:
    """From the kubelet's start to its having every resource again; it was away for a second."""
    for count in (8, 64):
        async with process.place() as here:
            names = configs.resources(count)
            async with life.ours(here, configs.plain(count, 8), names) as mine:
                await mine.registered()
                taken = [[await mine.restart_kubelet()] for _ in range(run.some(8, 2))]
        run.add(timed("kubelet restart → registered", f"{count} resources", taken, unit="s"))
    if run.peer is not None:
        async with process.place() as one, process.place() as two:
            async with life.ours(one, configs.plain(1, 8), configs.resources(1)) as mine:
                await mine.registered()
                ours = [[await mine.restart_kubelet()] for _ in range(run.some(8, 2))]
            async with life.theirs(two, run.peer) as other:
                await other.registered()
                theirs = [[await other.restart_kubelet()] for _ in range(run.some(8, 2))]
        run.add(timed("peer", "kubelet restart → registered, 1 resource", ours, peer=theirs, unit="s"))


async def size(run: Run) -> None:
    """Memory and threads, idle and after work; CPU over an idle minute."""
    settle, idle = run.some(5, 2), run.some(60, 5)
    async with process.place() as here, process.floor_process(here) as (socket, empty):
        with client.Caller(socket) as caller:
            await asyncio.to_thread(caller.times, "Allocate", b"", 10)
        floor, own, threads = empty.resident(), empty.own(), empty.threads()
        cpu = empty.cpu()
        await asyncio.sleep(idle)
        floor_cpu = empty.cpu() - cpu
    cases = (("8 resources, 8 devices each", 8, 8, 58.0), ("10 000 devices", 1, 10_000, 68.0))
    for what, count, devices, limit in cases:
        async with process.place() as here:
            names = configs.resources(count)
            async with life.ours(here, configs.plain(count, devices), names) as mine:
                await mine.registered()
                await asyncio.sleep(settle)
                agent = mine.process
                run.add(sized("memory, idle", what, "MiB", agent.resident(), floor, None, limit))
                run.add(sized("memory, idle, not backed by files", what, "MiB", agent.own(), own, None))
                run.add(sized("threads, idle", what, "threads", agent.threads(), threads, None))
                cpu = agent.cpu()
                await asyncio.sleep(idle)
                run.add(sized("CPU while idle", f"{what}, {idle} s", "s", agent.cpu() - cpu, floor_cpu or None, None))
                await _work(mine, names)
                run.add(sized("memory, after 2 000 calls", what, "MiB", agent.resident(), floor, None))
                run.add(sized("threads, after 2 000 calls", what, "threads", agent.threads(), threads, None))
    if run.peer is not None:
        await _sizes_with_peer(run, settle, idle)


async def _sizes_with_peer(run: Run, settle: int, idle: int) -> None:
    assert run.peer is not None
    async with process.place() as one, process.place() as two:
        mine_context = life.ours(one, configs.plain(1, 8), configs.resources(1))
        async with mine_context as mine, life.theirs(two, run.peer) as other:
            await mine.registered()
            await other.registered()
            await asyncio.sleep(settle)
            before = mine.process.cpu(), other.process.cpu()
            await asyncio.sleep(idle)
            a, b = mine.process, other.process
            run.add(sized("peer", "memory, idle, 1 resource", "MiB", a.resident(), None, b.resident()))
            run.add(sized("peer", "threads, idle, 1 resource", "threads", a.threads(), None, b.threads()))
            cpu = a.cpu() - before[0], b.cpu() - before[1]
            run.add(sized("peer", f"CPU while idle, {idle} s", "s", cpu[0], None, cpu[1] or None))


async def _ours(here: process.Place, count: int) -> float:
    async with life.ours(here, configs.plain(count, 8), configs.resources(count)) as mine:
        return await mine.registered() - mine.process.started


async def _floor(here: process.Place) -> float:
    """From the start of an empty server to its first answer."""
    begun = time.perf_counter()
    async with process.floor(here) as socket, client.connected(socket):
        return time.perf_counter() - begun


async def _work(mine: life.Life, names: list[str]) -> None:
    """Two thousand calls, spread over the resources, sixteen at a time."""
    for name in names:
        count = 2000 // len(names)
        await client.times_of_many(mine.socket(name), "GetDevicePluginOptions", [b""], count, callers=16)
