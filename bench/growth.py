"""How cost grows with devices and with resources: `python -m bench.growth [--svg FILE] [--json FILE] [--quick]`.

One resource with 10 to 70 000 devices, then 1 to 256 resources with 8 devices each; the agent serves without a kubelet,
so that what grows is its own. For each curve the exponent between its last two points is told: 1 is linear.
"""

import argparse
import asyncio
import json
import math
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

from .measured import client, configs, process
from .rows.lists import put, quiet
from .table.row import Run
from .table.stats import summary
from .table.svg import Curve, Panel, drawing

_SERVE_ONLY = ("--kubelet-socket", "")
_DEVICES = (10, 100, 1000, 10_000, 70_000)
_RESOURCES = (1, 4, 16, 64, 256)
Points = dict[str, list[tuple[float, float]]]


async def by_devices(run: Run) -> Points:
    """Milliseconds and MiB for one resource of so many devices."""
    points: Points = {
        name: [] for name in ("start → first list", "reload", "one device changes", "first list", "memory")
    }
    for devices in _DEVICES:
        async with AsyncExitStack() as stack:
            here = await stack.enter_async_context(process.place())
            state = here.root / "p" / "state"
            state.parent.mkdir()
            put(state, "ok")
            agent = await stack.enter_async_context(
                process.agent(here, configs.with_probed(devices, str(state)), *_SERVE_ONLY)
            )
            (socket,) = await process.sockets(here, configs.resources(1), agent)
            stream = await stack.enter_async_context(client.watching(socket))
            moment, _ = await stream.next()
            points["start → first list"].append((devices, (moment - agent.started) * 1e3))
            await stream.until_quiet(0.3)
            points["memory"].append((devices, agent.resident()))
            points["first list"].append((devices, await _first(socket, run.some(9, 2))))
            taken = []
            for _ in range(run.some(7, 2)):
                begun = time.perf_counter()
                put(state, "bad")
                taken.append((await stream.next())[0] - begun)
                put(state, "ok")
                await stream.next()
                await quiet([stream])
            points["one device changes"].append((devices, summary(taken).median * 1e3))
            taken = []
            for number in range(run.some(4, 2)):
                begun = time.perf_counter()
                here.write_config(configs.with_probed(devices + (number + 1) % 2, str(state)))
                taken.append((await stream.next())[0] - begun)
                await quiet([stream])
            points["reload"].append((devices, summary(taken).median * 1e3))
            run.say(
                f"{devices} devices: " + ", ".join(f"{name} {values[-1][1]:.3g}" for name, values in points.items())
            )
    return points


async def by_resources(run: Run) -> Points:
    """Milliseconds and MiB for so many resources of 8 devices."""
    points: Points = {name: [] for name in ("start → all lists", "reload of all", "reload of one", "memory")}
    for count in _RESOURCES:
        async with AsyncExitStack() as stack:
            here = await stack.enter_async_context(process.place())
            agent = await stack.enter_async_context(process.agent(here, configs.plain(count, 8), *_SERVE_ONLY))
            found = await process.sockets(here, configs.resources(count), agent)
            streams = [await stack.enter_async_context(client.watching(each)) for each in found]
            moments = [(await each.next())[0] for each in streams]
            points["start → all lists"].append((count, (max(moments) - agent.started) * 1e3))
            await asyncio.gather(*(each.until_quiet(0.3) for each in streams))
            points["memory"].append((count, agent.resident()))
            for name, some in (("reload of all", streams), ("reload of one", streams[:1])):
                taken = []
                for number in range(run.some(6, 2)):
                    size = 9 if number % 2 == 0 else 8
                    texts = [configs.virtual(each, size if each < len(some) else 8) for each in range(count)]
                    text = configs.devices(*texts)
                    begun = time.perf_counter()
                    here.write_config(text)
                    lists = await asyncio.gather(*(each.next() for each in some))
                    taken.append(max(moment for moment, _ in lists) - begun)
                    await quiet(streams)
                points[name].append((count, summary(taken).median * 1e3))
            run.say(
                f"{count} resources: " + ", ".join(f"{name} {values[-1][1]:.3g}" for name, values in points.items())
            )
    return points


async def _first(socket: Path, count: int) -> float:
    taken = []
    for _ in range(count):
        async with client.connected(socket) as connection:
            begun = time.perf_counter()
            async with connection.watch() as stream:
                taken.append((await stream.next())[0] - begun)
    return summary(taken).median * 1e3


def exponent(points: list[tuple[float, float]]) -> float:
    """The slope of the curve's last piece on logarithmic axes: 1 is linear, 2 quadratic."""
    (x, y), (x2, y2) = points[-2:]
    return math.log(y2 / y) / math.log(x2 / x)


def panels(devices: Points, resources: Points) -> list[Panel]:
    """Times and memory, by devices and by resources."""
    result = []
    for what, points in (("devices of one resource", devices), ("resources of 8 devices", resources)):
        times = [Curve(name, values) for name, values in points.items() if name != "memory"]
        result.append(Panel(f"time by {what.split()[0]}", what, "ms", times))
        result.append(Panel(f"memory by {what.split()[0]}", what, "MiB", [Curve("resident", points["memory"])]))
    return result


def main() -> int:
    """Measure, draw, and tell the numbers and exponents as Markdown."""
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the curves there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the points there")
    parser.add_argument("--quick", action="store_true", help="a few samples of each")
    options = parser.parse_args()
    run = Run(quick=options.quick)
    devices = asyncio.run(by_devices(run))
    resources = asyncio.run(by_resources(run))
    for head, points in (("devices", devices), ("resources", resources)):
        sizes = [f"{x:,.0f}".replace(",", " ") for x, _ in next(iter(points.values()))]
        print(f"\n| {head} | " + " | ".join(sizes) + " | exponent at the end |\n|---|" + "--:|" * (len(sizes) + 1))
        for name, values in points.items():
            unit = "MiB" if name == "memory" else "ms"
            cells = [f"{y:.0f}" if y >= 100 else f"{y:.3g}" for _, y in values]
            print(f"| {name}, {unit} | " + " | ".join(cells) + f" | {exponent(values):.2f} |")
    if options.svg:
        options.svg.write_text(drawing(panels(devices, resources)))
    if options.json:
        options.json.write_text(json.dumps({"devices": devices, "resources": resources}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
