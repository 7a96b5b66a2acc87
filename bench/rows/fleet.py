"""Rows of a fleet: how long until its nodes are as the file says, over blind writes; an edit, a fault, idling, memory.

The API server is the simulated one, in a process of its own; blind writes are the very same requests, by the same
client with as many in flight, sent without looking. `python -m bench.rows.fleet NODES …` tells the growth as Markdown.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vdev import config
from vdev.api_server import ApiServerAddress
from vdev.core.fleet.made import MAKER
from vdev.fleet import dry_run
from vdev.kube import NODES, RESOURCE_SLICES, Api

from ..measured import process
from ..table.row import Run, sized, timed

_IN_FLIGHT = 16
_QUIET = 2.5  # seconds without a write after which it is over
_IDLE = 10.0
_LONG = 900.0
_CONFIG = """version: v1
devices:
  - name: h100
    resource: nvidia.com/gpu
    virtual: {{preset: h100-sxm5-80gb, count: {count}}}
    advertise: [device-plugin, dra]
node: {{labels: true, conditions: true}}
fleet: {{nodes: [{{name: "gpu-{{0..{last}}}", labels: {{pool: h100}}, capacity: {{cpu: 96, memory: 1Ti, pods: 110}}}}]}}
"""
_FAULT = "faults: {rules: [{name: sick, onNodes: gpu-7, devices: [h100/2], health: Unhealthy}]}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One fleet: seconds, requests, MiB, and seconds of CPU while idle for ten."""

    nodes: int
    blind: float
    start: float
    writes: int
    edit: float
    edit_writes: int
    fault: float
    fault_writes: int
    idle_writes: int
    idle_cpu: float
    cpu: float
    memory: float
    restart_writes: int
    restart_memory: float


class _Counted:
    """The counting server."""

    def __init__(self, directory: Path) -> None:
        self.kubeconfig = directory / "kubeconfig"
        self._counts = directory / "counts"
        self.process = process.Process(
            [sys.executable, "-m", "bench.measured.counting_api", str(self.kubeconfig), str(self._counts)],
            log=directory / "server",
        )

    @property
    def counts(self) -> tuple[int, float]:
        """How many writes there were, and when the last one was."""
        found = json.loads(self._counts.read_text())
        writes = sum(count for verb, count in found["asked"].items() if verb not in ("get", "list", "watch"))
        return writes, found["lastWrite"]

    async def up(self) -> None:
        """Wait for it."""
        await process.until(lambda: self.process.check() or self._counts.exists(), "the API server")

    async def quiet(self, least: int) -> tuple[int, float]:
        """As `counts`, once so many writes came and then none for a while."""

        def over() -> bool:
            writes, last = self.counts
            return not self.process.check() and writes >= least and time.time() - last > _QUIET

        await process.until(over, f"{least} writes, then none", timeout=_LONG)
        return self.counts


async def measure(nodes: int) -> Measured:
    """Everything, for so many nodes of eight devices."""
    async with process.place() as here:
        (here.root / "a").mkdir()
        blind = await _blind(here.root / "a", nodes)
        directory = here.root / "b"
        directory.mkdir()
        server = _Counted(directory)
        try:
            await server.up()
            here.write_config(_CONFIG.format(count=8, last=nodes - 1))
            fleet = _fleet(here, server, directory)
            begun = time.time()
            writes, last = await server.quiet(5 * nodes)
            start, cpu = last - begun, fleet.cpu()
            await asyncio.sleep(_IDLE)
            idle_writes, idle_cpu, memory = server.counts[0] - writes, fleet.cpu() - cpu, fleet.resident()
            edit, edit_writes = await _edited(here, server, _CONFIG.format(count=7, last=nodes - 1), nodes)
            text = _CONFIG.format(count=7, last=nodes - 1) + _FAULT
            fault, fault_writes = await _edited(here, server, text, 1)
            await asyncio.to_thread(fleet.end)
            before = server.counts[0]
            fleet = _fleet(here, server, directory)
            await process.until(lambda: "converged" in (directory / "fleet").read_text(), "a restart", timeout=_LONG)
            restart_writes, restart_memory = server.counts[0] - before, fleet.resident()
            await asyncio.to_thread(fleet.end)
        finally:
            await asyncio.to_thread(server.process.end)
    return Measured(
        nodes=nodes,
        blind=blind,
        start=start,
        writes=writes,
        edit=edit,
        edit_writes=edit_writes,
        fault=fault,
        fault_writes=fault_writes,
        idle_writes=idle_writes,
        idle_cpu=idle_cpu,
        cpu=cpu,
        memory=memory,
        restart_writes=restart_writes,
        restart_memory=restart_memory,
    )


def _fleet(here: process.Place, server: _Counted, directory: Path) -> process.Process:
    flags = ("--kubeconfig", str(server.kubeconfig), "--run-dir", str(directory / "run"))
    return process.Process([sys.executable, "-m", "vdev", "fleet", str(here.config), *flags], log=directory / "fleet")


async def _edited(here: process.Place, server: _Counted, text: str, least: int) -> tuple[float, int]:
    before, begun = server.counts[0], time.time()
    here.write_config(text)
    writes, last = await server.quiet(before + least)
    return last - begun, writes - before


async def _blind(directory: Path, nodes: int) -> float:
    """Seconds for the same requests, made beforehand."""
    server = _Counted(directory)
    try:
        await server.up()
        file = directory / "vdev.yaml"
        file.write_text(_CONFIG.format(count=8, last=nodes - 1))
        made = list(dry_run.objects(config.load([file]).spec))
        found = [each for each in made if each["kind"] == "Node"]
        slices = [each for each in made if each["kind"] != "Node"]
        async with Api(ApiServerAddress(kubeconfig=server.kubeconfig), at_once=_IN_FLIGHT) as api:
            await api.version()
            begun = time.perf_counter()
            for work in ([_node(api, each) for each in found], [_slice(api, each) for each in slices]):
                await asyncio.gather(*work)
            return time.perf_counter() - begun
    finally:
        await asyncio.to_thread(server.process.end)


async def _node(api: Api, document: Any) -> None:
    """As a fleet does it: the Node, its capacity, then labels and devices."""
    name, metadata, status = document["metadata"]["name"], document["metadata"], document["status"]
    own = {"pool": "h100", "vdev.dev/made-by": MAKER}
    plain = {key: value for key, value in status["capacity"].items() if "." not in key}
    first: tuple[Awaitable[Any], ...] = (
        api.apply(NODES, name, {"metadata": {**metadata, "labels": own}}, force=True, manager=MAKER),
        api.apply(
            NODES,
            name,
            {"status": {"capacity": plain, "allocatable": plain}},
            force=True,
            manager=MAKER,
            subresource="status",
        ),
    )
    for each in first:
        await each
    labels = {key: value for key, value in metadata["labels"].items() if key.startswith("nvidia.com/")}
    await api.apply(NODES, name, {"metadata": {"labels": labels}})
    devices = {key: value for key, value in status["capacity"].items() if "." in key}
    change = {"status": {"capacity": devices, "allocatable": devices}}
    await api.apply(NODES, name, change, force=True, subresource="status")


async def _slice(api: Api, document: Any) -> None:
    metadata = {key: value for key, value in document["metadata"].items() if key != "ownerReferences"}
    await api.create(RESOURCE_SLICES, {**document, "metadata": metadata})


async def fleet(run: Run) -> None:
    """A hundred nodes, and a thousand."""
    for nodes in (20,) if run.quick else (100, 1000):
        found = await measure(nodes)
        what = f"{nodes} nodes of 8 devices"
        over = found.start / found.blind
        run.add(timed("fleet", f"{what}: start → all written ({found.writes} writes)", [[found.start]]))
        run.add(timed("fleet", f"{what}: the same writes, blind; ours takes {over:.2f} times that", [[found.blind]]))
        run.add(timed("fleet", f"{what}: an edit of all ({found.edit_writes} writes)", [[found.edit]]))
        run.add(timed("fleet", f"{what}: a fault of one ({found.fault_writes} writes)", [[found.fault]]))
        idle = f"{what}: idle for 10 s: {found.idle_writes} writes, {found.idle_cpu:.2f} s of CPU"
        run.add(sized("fleet", idle, "MiB", found.memory, None, None, 400.0))


def main() -> None:
    """The curve."""
    rows = [asyncio.run(measure(int(each))) for each in sys.argv[1:]]
    names = [name for name in Measured.__slots__ if name != "nodes"]
    print("| nodes | " + " | ".join(f"{each.nodes}" for each in rows) + " |\n|---|" + "--:|" * len(rows))
    for name in names:
        print(f"| {name} | " + " | ".join(f"{getattr(each, name):.4g}" for each in rows) + " |")
    print("| start over blind | " + " | ".join(f"{each.start / each.blind:.2f}" for each in rows) + " |")


if __name__ == "__main__":
    main()
