"""Rows of Dynamic Resource Allocation: slices published and repaired, a claim prepared, memory with it on.

The API server is the one of the tests, on loopback in the process that measures: storing a thousand devices is a part
of what is measured, holding them against Kubernetes' schemas is not. The kubelet that the driver registers with is the
embedded one; claims are prepared from here.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from tests.kit.api_server import ApiServer
from tests.kit.dra import claim
from vdev.api_server import ApiServerAddress
from vdev.kube.api import Api
from vdev.kube.kinds import RESOURCE_CLAIMS
from vdev.pb import dra_v1_pb2, dra_v1_pb2_grpc

from ..measured import configs, life, process
from ..measured.client import TIMEOUT
from ..table.row import Run, sized, timed
from . import node

_CLAIM, _NAMESPACE = "bench", "default"
_LABEL = "bench.dev/dra"
_QUIET = 1.0  # seconds after which the next wipe may come: slices that are wiped again and again are let be for a while
_IN_A_ROUND = 10  # calls of one side before the other has its turn


@dataclass(frozen=True, slots=True)
class _Node:
    """An agent that serves DRA, and what it talks to."""

    here: process.Place
    server: ApiServer
    agent: process.Process

    async def published(self, count: int) -> None:
        """Return once slices with so many devices are there."""

        def there() -> bool:
            self.agent.check()
            return complete([each["spec"] for each in self.server.all("resourceslices")], count)

        await process.until(there, f"slices with {count} devices")

    async def wipe(self) -> None:
        """Delete all slices, as the kubelet does when it starts."""
        kind = self.server.kind("resourceslices")
        for each in self.server.all(kind.plural):
            self.server.objects.delete(kind, "", each["metadata"]["name"])
        await self.server.objects.tell()

    def is_labelled(self) -> bool:
        """Whether the label of the configuration is on the Node."""
        return _LABEL in self.server.object("nodes", node.NODE)["metadata"].get("labels", {})

    async def socket(self) -> Path:
        """The socket on which claims are prepared, once it is there."""
        found = self.here.kubelet / "plugins" / configs.DOMAIN / "dra.sock"
        await process.until(lambda: self.agent.check() or found.exists(), "the driver's socket")
        return found


def complete(specs: list[dict[str, Any]], count: int) -> bool:
    """Whether these slices are a whole pool, of one generation, with so many devices."""
    pools = [each["pool"] for each in specs]
    return (
        sum(len(each.get("devices", ())) for each in specs) == count
        and len({each["generation"] for each in pools}) == 1
        and all(each["resourceSliceCount"] == len(specs) for each in pools)
    )


async def dra(run: Run) -> None:
    """ResourceSlices published, and published again after a wipe; a claim prepared; memory with DRA and labels."""
    starts, wipes = [], []
    for count in (8, 100, 1000):
        what = f"{count:,} devices".replace(",", " ")
        taken = []
        for _ in range(run.some(6, 1)):
            async with _node(_one(count)) as here:
                await here.published(count)
                taken.append([time.perf_counter() - here.agent.started])
        starts.append(timed("DRA, start → all ResourceSlices", what, taken, unit="s"))
        wipes.append(timed("DRA, slices wiped → published again", what, await _wipes(run, count), p99_limit=1000.0))
    for row in (*starts, *wipes):
        run.add(row)
    await _prepare(run)
    await _memory(run)


async def _wipes(run: Run, count: int) -> list[list[float]]:
    taken = []
    async with _node(_one(count)) as here:
        await here.published(count)
        for _ in range(run.some(12, 2)):
            await asyncio.sleep(_QUIET)
            begun = time.perf_counter()
            await here.wipe()
            await here.published(count)
            taken.append([time.perf_counter() - begun])
    return taken


async def _prepare(run: Run) -> None:
    """A claim of one device, prepared anew each time; the floor is the GET of the claim, which is a part of it."""
    async with _node(_one(8)) as here:
        await here.published(8)
        document = claim(_CLAIM, ("main", "d0-0"), driver=configs.DOMAIN, pool=node.NODE)
        status = document.pop("status")
        made = await here.server.add("resourceclaims", document, namespace=_NAMESPACE, status=status)
        named = dra_v1_pb2.Claim(namespace=_NAMESPACE, name=_CLAIM, uid=made["metadata"]["uid"])
        channel = grpc.aio.insecure_channel(f"unix:{await here.socket()}")
        async with channel, Api(ApiServerAddress(kubeconfig=here.here.root / "kubeconfig")) as api:
            stub = dra_v1_pb2_grpc.DRAPluginStub(channel)

            async def get() -> None:
                await api.get(RESOURCE_CLAIMS, _CLAIM, namespace=_NAMESPACE)

            async def prepare() -> None:
                request = dra_v1_pb2.NodePrepareResourcesRequest(claims=[named])
                _check((await stub.NodePrepareResources(request, timeout=TIMEOUT)).claims)

            async def told(*, prepared: bool) -> None:
                def is_told() -> bool:
                    now = here.server.object("resourceclaims", _CLAIM, _NAMESPACE)["status"]
                    return here.agent.check() or bool(now.get("devices")) is prepared

                await process.until(is_told, "the claim's status")

            async def undo() -> None:
                """Unprepare, when the agent has written the claim's status, and let it write that again."""
                await told(prepared=True)
                request = dra_v1_pb2.NodeUnprepareResourcesRequest(claims=[named])
                _check((await stub.NodeUnprepareResources(request, timeout=TIMEOUT)).claims)
                await told(prepared=False)

            for _ in range(_IN_A_ROUND):  # connections are open and modules are loaded before anything is timed
                await get()
                await prepare()
                await undo()
            gets, prepared = [], []
            for _ in range(run.some(30, 2)):
                gets.append([await _seconds(get) for _ in range(_IN_A_ROUND)])
                prepared.append([])
                for _ in range(_IN_A_ROUND):
                    prepared[-1].append(await _seconds(prepare))
                    await undo()
    note = "the floor is a GET of the claim with the agent's own client, over loopback; the plugin makes one as well"
    run.add(timed("DRA, prepare", "a claim of one device", prepared, gets, over_limit=5.0, note=note))


async def _memory(run: Run) -> None:
    """With the eight resources that the other budgets speak of, and labels on the Node."""
    entries = [configs.virtual(each, 8, more=["advertise: [dra]", f'labels: {{{_LABEL}: "on"}}']) for each in range(8)]
    async with _node(configs.devices(*entries, flags="node: {labels: true}\n")) as here:
        await here.published(64)
        await here.socket()
        await process.until(lambda: here.agent.check() or here.is_labelled(), "the label")
        await asyncio.sleep(run.some(5, 2))
        what = "8 resources for DRA, labels on"
        run.add(sized("memory, idle", what, "MiB", here.agent.resident(), None, None, 70.0))
        run.add(sized("memory, idle, not backed by files", what, "MiB", here.agent.own(), None, None))


def _one(count: int) -> str:
    """One resource of so many devices, for DRA."""
    return configs.devices(configs.virtual(0, count, more=["advertise: [dra]"]))


@asynccontextmanager
async def _node(config: str) -> AsyncIterator[_Node]:
    async with process.place() as here, ApiServer(schemas=False) as server:
        await server.add("nodes", {"metadata": {"name": node.NODE}})
        extra = ("--kubeconfig", str(node.kubeconfig(here.root / "kubeconfig", server.address)))
        async with life.ours(here, config, (), *extra) as mine:
            yield _Node(here, server, mine.process)


async def _seconds(call: Callable[[], Awaitable[None]]) -> float:
    begun = time.perf_counter()
    await call()
    return time.perf_counter() - begun


def _check(answers: Mapping[str, Any]) -> None:
    """Raise RuntimeError unless there is one answer without an error."""
    errors = [each.error for each in answers.values()] or ["no answer for the claim"]
    if any(errors):
        raise RuntimeError(f"claim {_NAMESPACE}/{_CLAIM}: {errors[0]}")
