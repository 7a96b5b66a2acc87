"""Rows of the node's side: memory with labels and Events on, and how soon an edit's label is on the Node.

The API server is the one of the tests, on loopback in the process that measures: its part of a time is a few
milliseconds.
"""

import asyncio
import json
import time
from pathlib import Path

from tests.kit.api_server import ApiServer

from ..measured import configs, life, process
from ..table.row import Run, sized, timed

NODE = "bench"
_LABEL = "bench.dev/round"
_ON = "node: {labels: true, events: true}\n"
_QUIET = 0.5  # seconds after which the next edit may come


async def node(run: Run) -> None:
    """Memory with labels and Events on, and how soon an edit's label is on the Node."""
    names = configs.resources(8)
    async with process.place() as here, ApiServer(schemas=False) as server:
        await server.add("nodes", {"metadata": {"name": NODE}})
        extra = ("--kubeconfig", str(kubeconfig(here.root / "kubeconfig", server.address)))
        async with life.ours(here, _config(0), names, *extra) as mine:
            await mine.registered()
            await _labelled(mine, server, 0)
            await asyncio.sleep(run.some(5, 2))
            what = "8 resources, labels and Events on"
            run.add(sized("memory, idle", what, "MiB", mine.process.resident(), None, None, 70.0))
            run.add(sized("memory, idle, not backed by files", what, "MiB", mine.process.own(), None, None))
            taken = []
            for number in range(1, run.some(50, 4) + 1):
                await asyncio.sleep(_QUIET)
                begun = time.perf_counter()
                here.write_config(_config(number))
                await _labelled(mine, server, number)
                taken.append([time.perf_counter() - begun])
    run.add(timed("node labels", "an edit → its label is on the Node", taken))


async def _labelled(mine: life.Life, server: ApiServer, number: int) -> None:
    def there() -> bool:
        mine.process.check()
        return server.object("nodes", NODE)["metadata"].get("labels", {}).get(_LABEL) == f"r{number}"

    await process.until(there, "the label")


def _config(number: int) -> str:
    """Eight resources, the first of which has the label."""
    entries = [configs.virtual(each, 8, more=[f"labels: {{{_LABEL}: r{number}}}"] * (each == 0)) for each in range(8)]
    return configs.devices(*entries, flags=_ON)


def kubeconfig(file: Path, address: str) -> Path:
    """The file, which now names the server at this address."""
    document = {
        "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": {"server": address}}],
        "users": [{"name": "bench", "user": {"token": "secret"}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    }
    file.write_text(json.dumps(document))
    return file
