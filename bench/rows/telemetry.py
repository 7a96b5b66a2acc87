"""Rows of telemetry: a scrape of the metrics of 10 000 devices, and Allocate during scrapes."""

import asyncio
import socket
import time
import urllib.request
from contextlib import AsyncExitStack

from ..measured import client, configs, process
from ..table.row import Run, timed
from .calls import SERVE_ONLY, allocation

_DEVICES = 10_000
_WITHIN = 60.0  # seconds


async def telemetry(run: Run) -> None:
    """From the request to the last byte, and Allocates beside it."""
    port = await asyncio.to_thread(_free_port)
    url = f"http://127.0.0.1:{port}/metrics"
    config = (
        f'version: v1\ntelemetry: {{address: "127.0.0.1:{port}"}}\ndevices:\n'
        f"  - {{name: d0, resource: {configs.resource(0)}, "
        f"virtual: {{preset: a100-sxm4-40gb, count: {_DEVICES}}}, telemetry: {{always: true}}}}\n"
    )
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(process.place())
        agent = await stack.enter_async_context(process.agent(here, config, *SERVE_ONLY))
        (path,) = await process.sockets(here, configs.resources(1), agent)
        async with client.watching(path) as stream:
            first = (await stream.next())[1]
        device = first[first.index(b"GPU-") :][:40].decode()
        size = await _scraped(url)
        scrapes = [[await _seconds(url)] for _ in range(run.some(10, 2))]
        what = f"{_DEVICES:,} devices, {size // 2**20} MiB".replace(",", " ")
        run.add(timed("scrape of devices", what, scrapes, median_limit=1000.0))
        request = allocation([device])
        with client.Caller(path) as caller:
            await asyncio.to_thread(caller.call, "Allocate", request)
            alone = await asyncio.to_thread(caller.times, "Allocate", request, run.some(400, 50))
            during: list[float] = []
            for _ in range(run.some(5, 1)):
                scrape = asyncio.create_task(_seconds(url))
                while not scrape.done():
                    during += await asyncio.to_thread(caller.times, "Allocate", request, 10)
                await scrape
        note = "the floor is Allocate of the same agent while nobody scrapes"
        run.add(timed("scrape of devices", "Allocate meanwhile", [during], [alone], p99_limit=25.0, note=note))


async def _scraped(url: str) -> int:
    """Ask until it is served; the bytes of a scrape."""
    deadline = time.perf_counter() + _WITHIN
    while True:
        try:
            return len(await asyncio.to_thread(_get, url))
        except OSError:
            if time.perf_counter() > deadline:
                raise
            await asyncio.sleep(0.1)


async def _seconds(url: str) -> float:
    begun = time.perf_counter()
    await asyncio.to_thread(_get, url)
    return time.perf_counter() - begun


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=_WITHIN) as answer:
        body: bytes = answer.read()
    return body


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port
