"""Benchmarks with the API server of `vdev.sim` in its own process: the preparation of a claim, and a fleet."""

import asyncio
import json
import statistics
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from lightkube import AsyncClient, KubeConfig
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from lightkube.resources.core_v1 import Node
from lightkube.types import PatchType

from bench import configs, programs
from bench.programs import Place, Process, place, until
from bench.table import Table, number, ratio
from vdev.pb import dra_v1_pb2, dra_v1_pb2_grpc

_CLAIMS = create_namespaced_resource("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims")
_SLICES = create_global_resource("resource.k8s.io", "v1", "ResourceSlice", "resourceslices")
_CLAIM = "bench"
_STATUS = 0.1  # seconds in which the driver writes the status of a claim
_AT_ONCE = 16  # concurrent requests of the client without reads
_IDLE = 10.0  # seconds for which the writes of an unchanged fleet are counted
_LONG = 900.0  # seconds until a fleet must be complete


@asynccontextmanager
async def _client(here: Place) -> AsyncIterator[AsyncClient]:
    config = KubeConfig.from_file(here.kubeconfig).get()
    client = AsyncClient(config=config, field_manager="bench", trust_env=False)
    try:
        yield client
    finally:
        await client.close()


async def claim(table: Table) -> None:
    """The preparation of a claim for one device. The floor is the GET of the claim, which the driver also makes."""
    async with place() as here, programs.cluster(here), _client(here) as api:
        uid = await _allocated_claim(api)
        async with programs.agent(here, configs.for_claims(), "--kubeconfig", here.kubeconfig) as plugin:
            socket = here.kubelet / "plugins_registry" / f"{configs.DOMAIN}-reg.sock"
            await until(lambda: plugin.check() or socket.exists(), "the driver's socket")
            async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
                stub = dra_v1_pb2_grpc.DRAPluginStub(channel)
                named = dra_v1_pb2.Claim(namespace="default", name=_CLAIM, uid=uid)

                async def prepare() -> None:
                    answer = await stub.NodePrepareResources(dra_v1_pb2.NodePrepareResourcesRequest(claims=[named]))
                    _check(answer.claims[uid].error)

                async def unprepare() -> None:
                    answer = await stub.NodeUnprepareResources(dra_v1_pb2.NodeUnprepareResourcesRequest(claims=[named]))
                    _check(answer.claims[uid].error)

                gets, prepares = [], []
                for counts in range(table.some(200, 5) + 1):
                    get = await _seconds(lambda: api.get(_CLAIMS, _CLAIM, namespace="default"))
                    taken = await _seconds(prepare)
                    await asyncio.sleep(_STATUS)
                    await unprepare()
                    await asyncio.sleep(_STATUS)
                    if counts:  # the first round is a warm-up, which opens connections and imports modules
                        gets.append(get)
                        prepares.append(taken)
    prepared, got = (statistics.median(each) * 1e3 for each in (prepares, gets))
    beside = f"{number(prepared)} ms; the GET alone {number(got)} ms"
    table.add("claim prepared, over the GET of the claim", prepared - got, "ms", 10, beside, most="p50")


async def _allocated_claim(api: AsyncClient) -> str:
    """Create a claim with an allocated device of the node. Returns its uid."""
    request = {"name": "main", "exactly": {"deviceClassName": "any"}}
    spec = {"devices": {"requests": [request]}}
    metadata = {"name": _CLAIM, "namespace": "default"}
    made = await api.create(_CLAIMS.from_dict({"metadata": metadata, "spec": spec}))
    result = {"request": "main", "driver": configs.DOMAIN, "pool": "bench", "device": "d0-0"}
    status = {"allocation": {"devices": {"results": [result]}}}
    await api.patch(_CLAIMS.Status, _CLAIM, {"status": status}, namespace="default", patch_type=PatchType.MERGE)
    uid: str = made.metadata.uid
    return uid


def _check(error: str) -> None:
    if error:
        raise RuntimeError(f"claim {_CLAIM}: {error}")


async def _seconds(call: Callable[[], Awaitable[object]]) -> float:
    begun = time.perf_counter()
    await call()
    return time.perf_counter() - begun


async def fleet(table: Table) -> None:
    """The creation of a fleet of 2,000 nodes, compared with the same writes without reads, and its later writes."""
    nodes, ours, blind = table.some(2000, 20), list[list[float]](), list[list[float]]()
    idle = 0.0
    for _ in range(table.some(3, 1)):
        async with place() as here, programs.api_server(here):
            here.write_config(configs.fleet(nodes))
            seconds, blind_cpu = await _blind(here)
            blind.append([seconds])
        async with place() as here, programs.api_server(here):
            here.write_config(configs.fleet(nodes))
            address = programs.free_address()
            flags = ("--kubeconfig", here.kubeconfig, "--run-dir", here.root / "run", "--http-address", address)
            async with programs.running(programs.vdev("fleet", here.config, *flags), here.root / "log") as controller:
                ours.append([await _converged(controller, address, nodes)])
                cpu, writes = controller.cpu(), _metric(address, "vdev_fleet_writes_total")
                await asyncio.sleep(_IDLE)
                idle += _metric(address, "vdev_fleet_writes_total") - writes
                resident = controller.resident()
    what = f"fleet of {nodes:,} nodes x 8 devices"
    ratios = ", ".join(number(mine / other) for (mine,), (other,) in zip(ours, blind, strict=True))
    beside = (
        f"each round {ratios}; the last one {number(ours[-1][0])} s, {writes:.0f} writes; blind {number(blind[-1][0])} "
        f"s; of CPU {number(cpu)} and {number(blind_cpu)} s; {number(resident)} MiB"
    )
    table.add(f"{what}, over blind writes", ratio(ours, blind), "x", 2, beside, most="p50")
    table.add(f"{what}, while nothing changes for {_IDLE:g} s", idle, "writes", 0)


async def _converged(controller: Process, address: str, nodes: int) -> float:
    """Return the seconds from the controller's start until all nodes match the file."""

    def value(name: str) -> float:
        controller.check()
        return _metric(address, name)

    # The page takes CPU time of the controller, so it is read often only at the end.
    behind = 'vdev_fleet_nodes{state="behind"}'
    await until(lambda: value(behind) < nodes / 4, "most of the fleet", timeout=_LONG, every=1.0)
    await until(lambda: value("vdev_fleet_converged") == 1, "the fleet", timeout=_LONG, every=0.2)
    return time.perf_counter() - controller.started


def _metric(address: str, name: str) -> float:
    """Read a metric by its name and labels; NaN if it is not served."""
    for line in programs.page(address, "metrics").splitlines():
        if line.startswith(f"{name} "):
            return float(line.split()[1])
    return float("nan")


async def _blind(here: Place) -> tuple[float, float]:
    """Make the writes of a fleet without any reads. Returns the elapsed time and the CPU time in seconds."""
    objects = await asyncio.to_thread(_objects, here.config)
    nodes = [each for each in objects if each["kind"] == "Node"]
    slices = [each for each in objects if each["kind"] == "ResourceSlice"]
    free = asyncio.Semaphore(_AT_ONCE)
    async with _client(here) as api:
        begun, cpu = time.perf_counter(), time.process_time()
        async with asyncio.TaskGroup() as group:
            for each in nodes:
                group.create_task(_node(api, each, free))
        async with asyncio.TaskGroup() as group:
            for each in slices:
                group.create_task(_slice(api, each, free))
        return time.perf_counter() - begun, time.process_time() - cpu


def _objects(config: Path) -> list[dict[str, Any]]:
    """Return the objects that the fleet would create."""
    command = [*map(str, programs.vdev("fleet", "--dry-run", "-o", "json", config))]
    printed = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    items: list[dict[str, Any]] = json.loads(printed)["items"]
    return items


async def _node(api: AsyncClient, document: dict[str, Any], free: asyncio.Semaphore) -> None:
    """Write a Node in the steps of a fleet: the Node, its capacity, its labels, its devices."""
    name, labels, status = document["metadata"]["name"], document["metadata"]["labels"], document["status"]["capacity"]
    steps = (
        (Node, {"metadata": {"annotations": document["metadata"].get("annotations", {})}}, "bench-node"),
        (Node.Status, _capacity(status, devices=False), "bench-node"),
        (Node, {"metadata": {"labels": labels}}, "bench"),
        (Node.Status, _capacity(status, devices=True), "bench"),
    )
    async with free:
        for resource, body, manager in steps:
            full = {"apiVersion": "v1", "kind": "Node", **body}
            await api.patch(resource, name, full, patch_type=PatchType.APPLY, field_manager=manager, force=True)


def _capacity(amounts: dict[str, str], *, devices: bool) -> dict[str, Any]:
    mine = {key: value for key, value in amounts.items() if ("/" in key) is devices}
    return {"status": {"capacity": mine, "allocatable": mine}}


async def _slice(api: AsyncClient, document: dict[str, Any], free: asyncio.Semaphore) -> None:
    async with free:
        await api.create(_SLICES.from_dict(document))
