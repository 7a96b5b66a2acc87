"""Rows of ListAndWatch: the first list, one device's change, a reload, a device node that comes and goes.

Each is the time from the event (the call, the file in its place, the node made) to the last byte of the list, beside an
empty server that sends as many bytes at the same event.
"""

import asyncio
import os
import stat
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from ..measured import client, configs, process
from ..measured.client import Stream
from ..table.row import Run, timed

_SERVE_ONLY = ("--kubelet-socket", "")
_QUIET = 0.25  # seconds without a list after which the next event may come
_SIZES = (10, 1000, 10_000, 70_000)


async def first(run: Run) -> None:
    """The first list: from the call to its last byte."""
    for devices in _SIZES:
        async with AsyncExitStack() as stack:
            here = await stack.enter_async_context(process.place())
            agent = await stack.enter_async_context(process.agent(here, configs.plain(1, devices), *_SERVE_ONLY))
            (socket,) = await process.sockets(here, configs.resources(1), agent)
            size = len(await _first(socket))
            empty = await stack.enter_async_context(process.floor(here, size=size))
            ours, floor = [], []
            for _ in range(run.some(40, 5)):
                ours.append([await _first_seconds(socket)])
                floor.append([await _first_seconds(empty)])
            limit = 5.0 if devices == 10_000 else None
            what = f"{devices:,} devices in {size:,} bytes".replace(",", " ")
            run.add(timed("first list", what, ours, floor, median_limit=limit))


async def update(run: Run) -> None:
    """One device changes: from a file that a probe reads to the list that says so."""
    for devices in _SIZES:
        async with AsyncExitStack() as stack:
            here = await stack.enter_async_context(process.place())
            state = here.root / "p" / "state"
            state.parent.mkdir()
            put(state, "ok")
            config = configs.with_probed(devices, str(state))
            agent = await stack.enter_async_context(process.agent(here, config, *_SERVE_ONLY))
            (socket,) = await process.sockets(here, configs.resources(1), agent)
            size = len(await _first(socket))
            empty = await stack.enter_async_context(process.floor(here, size=size, directory=state.parent))
            watched = await stack.enter_async_context(settled(socket))
            yardstick = await stack.enter_async_context(settled(empty))
            ours, floor = [], []
            for _ in range(run.some(20, 4)):
                begun = time.perf_counter()
                put(state, "bad")
                floor.append([(await yardstick.next())[0] - begun])
                ours.append([(await watched.next())[0] - begun])
                put(state, "ok")
                await watched.next()
                await quiet([watched, yardstick])
            what = f"1 of {devices:,} devices".replace(",", " ")
            run.add(timed("one device changes", what, ours, floor))


async def reload(run: Run) -> None:
    """A reload, by the size of its difference: from the file in its place to the last list that it changes."""
    eight, nine = (configs.plain(8, count) for count in (8, 9))
    many = configs.of_many(256, 8)
    cases = (
        _Reload("all 8 resources change", 8, (eight, nine), 8, 100, 25.0),
        _Reload("1 of 8 changes", 8, (eight, configs.of_many(8, 9)), 1, 100, 25.0),
        _Reload("1 of 256 entries changes", 256, (many, configs.of_many(256, 9)), 1, 20, None),
        _Reload("all 256 entries change", 256, (many, configs.plain(256, 9)), 256, 10, None),
        _Reload("1 of 70 000 devices comes or goes", 1, configs.with_one_more(70_000), 1, 20, None),
        _Reload("all 70 000 devices change", 1, configs.turned(70_000), 1, 10, 1000.0),
    )
    for case in cases:
        await _reload(run, case)


@dataclass(frozen=True, slots=True)
class _Reload:
    """Two texts that take turns, and how many of the first resources differ between them."""

    what: str
    resources: int
    texts: tuple[str, str]
    changing: int
    rounds: int
    limit: float | None


async def _reload(run: Run, case: _Reload) -> None:
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(process.place())
        agent = await stack.enter_async_context(process.agent(here, case.texts[0], *_SERVE_ONLY))
        sockets = await process.sockets(here, configs.resources(case.resources), agent)
        streams = [await stack.enter_async_context(client.watching(each)) for each in sockets[: max(case.changing, 8)]]
        await quiet(streams)
        size = len(await _first(sockets[0]))
        empty = await stack.enter_async_context(process.floor(here, size=size, directory=here.config.parent))
        yardstick = await stack.enter_async_context(settled(empty))
        ours, floor = [], []
        for number in range(run.some(case.rounds, 2)):
            begun = time.perf_counter()
            here.write_config(case.texts[(number + 1) % 2])
            lists = await asyncio.gather(*(each.next() for each in (*streams[: case.changing], yardstick)))
            moments = [moment for moment, _ in lists]
            ours.append([max(moments[:-1]) - begun])
            floor.append([moments[-1] - begun])
            await quiet([*streams, yardstick])
    run.add(timed("reload", case.what, ours, floor, p99_limit=case.limit))


async def hotplug(run: Run) -> None:
    """Hot-plug: from a device node that is made, or removed, to the list that says so."""
    if not _can_mknod():
        run.skip("hot-plug", "making device nodes needs root")
        return
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(process.place())
        node = here.host / "dev" / "ttyBENCH1"
        os.mknod(here.host / "dev" / "ttyBENCH0", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        extra = ("--host-root", str(here.host), *_SERVE_ONLY)
        agent = await stack.enter_async_context(process.agent(here, configs.globbed("/dev/ttyBENCH*"), *extra))
        (socket,) = await process.sockets(here, configs.resources(1), agent)
        watched = await stack.enter_async_context(settled(socket))
        empty = await stack.enter_async_context(process.floor(here, size=40, directory=node.parent))
        yardstick = await stack.enter_async_context(settled(empty))

        def appear() -> None:
            os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(1, 3))

        actions: list[tuple[str, Callable[[], None]]] = [("appears", appear), ("vanishes", node.unlink)]
        ours: dict[str, list[list[float]]] = {name: [] for name, _ in actions}
        floor: dict[str, list[list[float]]] = {name: [] for name, _ in actions}
        for _ in range(run.some(100, 10)):
            for name, act in actions:
                begun = time.perf_counter()
                act()
                (mine, _), (theirs, _) = await asyncio.gather(watched.next(), yardstick.next())
                ours[name].append([mine - begun])
                floor[name].append([theirs - begun])
                await quiet([watched, yardstick])
        for name, _ in actions:
            run.add(timed("hot-plug", f"a device node {name}", ours[name], floor[name], p99_limit=25.0))


def _can_mknod() -> bool:
    return os.geteuid() == 0


def put(path: Path, text: str) -> None:
    """Replace a file at once."""
    fresh = path.parent.parent / "fresh"
    fresh.write_text(text)
    fresh.rename(path)


@asynccontextmanager
async def settled(socket: Path) -> AsyncIterator[Stream]:
    """A stream whose first list has been read."""
    async with client.watching(socket) as stream:
        await stream.next()
        await stream.until_quiet(_QUIET)
        yield stream


async def quiet(streams: list[Stream]) -> None:
    """Return once none of them has news."""
    await asyncio.gather(*(each.until_quiet(_QUIET) for each in streams))


async def _first(socket: Path) -> bytes:
    async with client.watching(socket) as stream:
        return (await stream.next())[1]


async def _first_seconds(socket: Path) -> float:
    """Over a connection that is open already, as the kubelet's is: it has asked for the options before."""
    async with client.connected(socket) as connection:
        begun = time.perf_counter()
        async with connection.watch() as stream:
            return (await stream.next())[0] - begun
