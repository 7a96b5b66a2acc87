"""Rows of a fleet: how long until its nodes are as the file says, over blind writes; an edit, a fault, idling, memory.

The API server is the simulated one, in a process of its own; blind writes are the very same requests, by the same
client with as many in flight, sent without looking. Both have a fresh server, in turns; beside the seconds stand those
of CPU, which others on the machine lengthen less. `python -m bench.rows.fleet NODES …` tells the growth as Markdown.
"""

import asyncio
import json
import math
import socket
import statistics
import sys
import time
import urllib.request
from collections.abc import Awaitable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from vdev import config
from vdev.api_server import ApiServerAddress
from vdev.core.fleet.made import MAKER
from vdev.fleet import dry_run
from vdev.kube import NODES, RESOURCE_SLICES, Api

from ..measured import process
from ..table.row import Run, sized, timed

_Found = TypeVar("_Found")
_IN_FLIGHT = 16
_QUIET = 2.5  # seconds without a write after which it is over
_IDLE = 10.0
_LONG = 900.0
_ROUNDS = {100: 3, 1000: 2}  # of starts and blind writes, by the most nodes; one where there are more
_PAGES = ("status", "metrics")
_CONFIG = """version: v1
devices:
  - name: h100
    resource: nvidia.com/gpu
    virtual: {{preset: h100-sxm5-80gb, count: {count}}}
    advertise: [device-plugin, dra]
node: {{labels: true, conditions: true}}
fleet: {{nodes: [{{name: "gpu-{{0..{last}}}", labels: {{pool: h100}}, capacity: {{cpu: 96, memory: 1Ti, pods: 110}}}}]}}
"""
_COUNT, _MORE = 8, 10
_FAULT = "faults: {rules: [{name: sick, onNodes: gpu-7, devices: [h100/2], health: Unhealthy}]}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One fleet: seconds, seconds of CPU of who writes, requests that write, MiB.

    `start_ratio` and `cpu_ratio` are medians over the rounds; `start` ends with the last write, `ready` is what of it
    went by before the first. `idle` is over ten seconds, `page` the longest of what it serves, in seconds and KiB.
    """

    nodes: int
    blind: float
    blind_cpu: float
    start: float
    start_cpu: float
    start_ratio: float
    cpu_ratio: float
    ready: float
    server_cpu: float
    writes: int
    idle_asked: int
    idle_cpu: float
    memory: float
    page: float
    page_size: float
    edit: float
    edit_cpu: float
    edit_writes: int
    fault: float
    fault_writes: int
    restart: float
    restart_writes: int
    restart_memory: float


@dataclass(frozen=True, slots=True)
class _Counts:
    """What the server was asked: all requests, those that write, and when the first and the last of these were."""

    asked: int
    writes: int
    first: float
    last: float


class _Counted:
    """The counting server."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.kubeconfig = directory / "kubeconfig"
        self._counts = directory / "counts"
        self.process = process.Process(
            [sys.executable, "-m", "bench.measured.counting_api", str(self.kubeconfig), str(self._counts)],
            log=directory / "server",
        )

    @property
    def counts(self) -> _Counts:
        """As of now."""
        found = json.loads(self._counts.read_text())
        asked = found["asked"]
        writes = sum(count for verb, count in asked.items() if verb not in ("get", "list", "watch"))
        return _Counts(sum(asked.values()), writes, found["firstWrite"], found["lastWrite"])

    async def up(self) -> None:
        """Wait for it."""
        await process.until(lambda: self.process.check() or self._counts.exists(), "the API server")

    async def quiet(self, least: int) -> _Counts:
        """The counts, once so many writes came and then none for a while."""

        def over() -> bool:
            found = self.counts
            return not self.process.check() and found.writes >= least and time.time() - found.last > _QUIET

        await process.until(over, f"{least} writes, then none", timeout=_LONG)
        return self.counts


async def measure(nodes: int) -> Measured:
    """Everything, for so many nodes of eight devices."""
    async with process.place() as here:
        rounds = next((each for most, each in _ROUNDS.items() if nodes <= most), 1)
        blind, starts = [], []
        for number in range(rounds):
            blind.append(_told(nodes, "blind", await _blind(here.root / f"blind-{number}", nodes)))
            fleet = _Running(here, here.root / f"fleet-{number}", nodes)
            try:
                starts.append(_told(nodes, "start", await fleet.start()))
                if number == rounds - 1:
                    later = _told(nodes, "later", await fleet.later())
            finally:
                await fleet.end()
    pairs = [(start.seconds / no.seconds, start.cpu / no.cpu) for no, start in zip(blind, starts, strict=True)]
    return Measured(
        nodes=nodes,
        blind=statistics.median(each.seconds for each in blind),
        blind_cpu=statistics.median(each.cpu for each in blind),
        start=statistics.median(each.seconds for each in starts),
        start_cpu=statistics.median(each.cpu for each in starts),
        start_ratio=statistics.median(each[0] for each in pairs),
        cpu_ratio=statistics.median(each[1] for each in pairs),
        **later,
    )


def _told(nodes: int, what: str, found: _Found) -> _Found:
    """The same, told at once: with thousands of nodes all of it takes minutes."""
    print(f"{nodes} nodes: {what}: {found}", file=sys.stderr, flush=True)
    return found


@dataclass(frozen=True, slots=True)
class _Taken:
    """Seconds that something took, and what of the CPU."""

    seconds: float
    cpu: float


class _Running:
    """A server, and a fleet of so many nodes on it."""

    def __init__(self, here: process.Place, directory: Path, nodes: int) -> None:
        self._here, self._directory, self._last = here, directory, nodes - 1
        self._server = _Counted(directory)
        self._fleet: process.Process | None = None
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._http = f"127.0.0.1:{free.getsockname()[1]}"

    async def end(self) -> None:
        """All of it."""
        if self._fleet is not None:
            await asyncio.to_thread(self._fleet.end)
        await asyncio.to_thread(self._server.process.end)

    async def start(self) -> _Taken:
        """Until everything was written."""
        await self._server.up()
        self._here.write_config(_CONFIG.format(count=_COUNT, last=self._last))
        self._begun = time.time()
        self._run()
        self._counts = await self._server.quiet(5 * (self._last + 1))
        assert self._fleet is not None
        return _Taken(self._counts.last - self._begun, self._fleet.cpu())

    def _run(self) -> None:
        flags = (
            "--kubeconfig",
            self._server.kubeconfig,
            "--run-dir",
            self._directory / "run",
            "--http-address",
            self._http,
        )
        command = [sys.executable, "-m", "vdev", "fleet", str(self._here.config), *map(str, flags)]
        self._fleet = process.Process(command, log=self._directory / "log")

    async def later(self) -> dict[str, Any]:
        """Idling, an edit, a fault, another controller; by the names of `Measured`."""
        assert self._fleet is not None
        server_cpu, counts, cpu = self._server.process.cpu(), self._server.counts, self._fleet.cpu()
        await asyncio.sleep(_IDLE)
        idle_asked, idle_cpu = self._server.counts.asked - counts.asked, self._fleet.cpu() - cpu
        memory = self._fleet.resident()
        page, size = await asyncio.to_thread(_slowest_page, self._http)
        edit, edit_writes = await self._edited(_CONFIG.format(count=_MORE, last=self._last), 3 * (self._last + 1))
        fault, fault_writes = await self._edited(_CONFIG.format(count=_MORE, last=self._last) + _FAULT, 2)
        await asyncio.to_thread(self._fleet.end)
        before, begun = self._server.counts.writes, time.time()
        self._run()
        await process.until(self._is_converged, "a restart", timeout=_LONG)
        return {
            "ready": self._counts.first - self._begun,
            "server_cpu": server_cpu,
            "writes": counts.writes,
            "idle_asked": idle_asked,
            "idle_cpu": idle_cpu,
            "memory": memory,
            "page": page,
            "page_size": size,
            "edit": edit.seconds,
            "edit_cpu": edit.cpu,
            "edit_writes": edit_writes,
            "fault": fault.seconds,
            "fault_writes": fault_writes,
            "restart": time.time() - begun,
            "restart_writes": self._server.counts.writes - before,
            "restart_memory": self._fleet.resident(),
        }

    def _is_converged(self) -> bool:
        return "converged" in (self._directory / "log").read_text()

    async def _edited(self, text: str, least: int) -> tuple[_Taken, int]:
        assert self._fleet is not None
        before, begun, cpu = self._server.counts.writes, time.time(), self._fleet.cpu()
        self._here.write_config(text)
        counts = await self._server.quiet(before + least)
        return _Taken(counts.last - begun, self._fleet.cpu() - cpu), counts.writes - before


def _slowest_page(address: str) -> tuple[float, float]:
    """Seconds and KiB of the page that takes longest."""
    found = []
    for path in _PAGES:
        begun = time.perf_counter()
        with urllib.request.urlopen(f"http://{address}/{path}") as answer:
            size = len(answer.read()) / 1024
        found.append((time.perf_counter() - begun, size))
    return max(found)


async def _blind(directory: Path, nodes: int) -> _Taken:
    """For the same requests, made beforehand."""
    server = _Counted(directory)
    try:
        await server.up()
        file = directory / "vdev.yaml"
        file.write_text(_CONFIG.format(count=_COUNT, last=nodes - 1))
        made = list(dry_run.objects(config.load([file]).spec))
        found = [each for each in made if each["kind"] == "Node"]
        slices = [each for each in made if each["kind"] != "Node"]
        async with Api(ApiServerAddress(kubeconfig=server.kubeconfig), at_once=_IN_FLIGHT) as api:
            await api.version()
            begun, cpu = time.perf_counter(), time.process_time()
            for work in ([_node(api, each) for each in found], [_slice(api, each) for each in slices]):
                await asyncio.gather(*work)
            return _Taken(time.perf_counter() - begun, time.process_time() - cpu)
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
        run.add(
            timed(
                "fleet",
                f"{what}: start → all written ({found.writes} writes)",
                [[found.start]],
                [[found.blind]],
                ratio_limit=1.5,
                note="the floor: the same writes, blind, by the same client; of CPU ours takes "
                f"{found.cpu_ratio:.2f} times as much",
            )
        )
        run.add(timed("fleet", f"{what}: an edit of all ({found.edit_writes} writes)", [[found.edit]]))
        run.add(timed("fleet", f"{what}: a fault of one ({found.fault_writes} writes)", [[found.fault]]))
        idle = f"{what}: idle for 10 s: {found.idle_asked} requests, {found.idle_cpu:.2f} s of CPU"
        run.add(sized("fleet", idle, "MiB", found.memory, None, None, 400.0))


def main() -> None:
    """The curve; the last column is the exponent between the first and the last point: 1 is linear."""
    rows = [asyncio.run(measure(int(each))) for each in sys.argv[1:]]
    print("| | " + " | ".join(f"{each.nodes} nodes" for each in rows) + " | grows with |")
    print("|---|" + "--:|" * (len(rows) + 1))
    for name in (each.name for each in fields(Measured) if each.name != "nodes"):
        values = [getattr(each, name) for each in rows]
        cells = [f"{each:,}" if isinstance(each, int) else f"{each:.3g}" for each in values]
        print(f"| {name.replace('_', ' ')} | " + " | ".join([*cells, _exponent(rows, values)]) + " |")


def _exponent(rows: list[Measured], values: list[float]) -> str:
    if min(values) <= 0 or len(values) == 1:
        return ""
    return f"n^{math.log(values[-1] / values[0]) / math.log(rows[-1].nodes / rows[0].nodes):.2f}"


if __name__ == "__main__":
    main()
