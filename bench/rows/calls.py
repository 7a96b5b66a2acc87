"""Rows of single calls: Allocate and GetPreferredAllocation."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from vdev.pb import deviceplugin_v1beta1_pb2 as pb

from ..measured import client, configs, life, process
from ..table.row import Run, timed

SERVE_ONLY = ("--kubelet-socket", "")  # no kubelet at all: the client here is the only one, as the kubelet is in life


async def allocate(run: Run) -> None:
    """Allocate: one and eight ids, through an environment variable and through CDI, one caller and sixteen."""
    rounds, count = run.some(12, 3), run.some(160, 32)
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(process.place())
        empty = await stack.enter_async_context(process.floor(here))
        threaded = await stack.enter_async_context(process.floor(here, "sync"))
        sockets: dict[str, Path] = {}
        for name, config in (("envvar", configs.plain(1, 16)), ("CDI", configs.cdi(16))):
            own = await stack.enter_async_context(process.place())
            agent = await stack.enter_async_context(process.agent(own, config, *SERVE_ONLY))
            (sockets[name],) = await process.sockets(own, configs.resources(1), agent)
        for name, socket in sockets.items():
            for ids in (1, 8):
                requests = _in_turn(16, ids)
                for callers in (1, 16):
                    sides = await interleaved([socket, empty], "Allocate", requests, rounds, count, callers)
                    what = f"{ids} id{'s' * (ids > 1)}, {name}, {callers} caller{'s' * (callers > 1)}"
                    limit = 1.2 if callers == 1 and ids == 1 else None
                    run.add(timed("Allocate", what, sides[0], sides[1], unit="us", ratio_limit=limit))
        sides = await interleaved([threaded, empty], "Allocate", [allocation(["d0-0"])], rounds, count, 1)
        note = "an empty server again, with threads instead of asyncio: how much the choice of floor matters"
        run.add(timed("Allocate", "empty threaded server, 1 caller", sides[0], sides[1], unit="us", note=note))


async def preferred(run: Run) -> None:
    """GetPreferredAllocation in the sizes of the budgets."""
    cases = (
        ("8 of 16 linked", configs.linked(16, 4), [f"d0-{n}" for n in range(16)], 8, 1.0),
        ("16 of 128 linked", configs.linked(128, 8), [f"d0-{n}" for n in range(128)], 16, 10.0),
        ("64 of 10 000 replicas", configs.replicated(1000, 10), _replicas(1000, 10), 64, 20.0),
    )
    rounds, count = run.some(10, 3), run.some(20, 8)
    async with process.place() as here, process.floor(here) as empty:
        for what, config, ids, size, limit in cases:
            async with process.place() as own, process.agent(own, config, *SERVE_ONLY) as agent:
                (socket,) = await process.sockets(own, configs.resources(1), agent)
                each = pb.ContainerPreferredAllocationRequest(available_deviceIDs=ids, allocation_size=size)
                request = pb.PreferredAllocationRequest(container_requests=[each]).SerializeToString()
                with client.Caller(socket) as caller:
                    raw = await asyncio.to_thread(caller.call, "GetPreferredAllocation", request)
                chosen = pb.PreferredAllocationResponse.FromString(raw).container_responses[0].deviceIDs
                assert len(chosen) == size, f"{what}: {len(chosen)} preferred"
                sides = await interleaved([socket, empty], "GetPreferredAllocation", [request], rounds, count, 1)
                run.add(timed("GetPreferredAllocation", what, *sides, unit="ms", median_limit=limit))


async def peer(run: Run) -> None:
    """What can be asked of any plugin: Allocate of one device, beside ours under the same kind of kubelet."""
    assert run.peer is not None
    rounds, count = run.some(12, 3), run.some(160, 32)
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(process.place())
        empty = await stack.enter_async_context(process.floor(here))
        one = await stack.enter_async_context(process.place())
        other = await stack.enter_async_context(process.place())
        mine = await stack.enter_async_context(life.ours(one, configs.plain(1, 8), configs.resources(1)))
        theirs = await stack.enter_async_context(life.theirs(other, run.peer))
        await mine.registered()
        await theirs.registered()
        async with client.watching(theirs.socket(run.peer.resource)) as stream:
            listed = pb.ListAndWatchResponse.FromString((await stream.next())[1])
        request = {
            mine.socket(configs.resource(0)): allocation(["d0-0"]),
            empty: allocation(["d0-0"]),
            theirs.socket(run.peer.resource): allocation([listed.devices[0].ID]),
        }
        sides: list[list[list[float]]] = [[] for _ in request]
        for _ in range(rounds):
            for side, (socket, bytes_) in zip(sides, request.items(), strict=True):
                side.append(await _round(socket, "Allocate", [bytes_], count, 1))
        run.add(timed("peer", "Allocate, 1 id, registered", *sides, unit="us"))


def allocation(ids: Sequence[str]) -> bytes:
    each = pb.ContainerAllocateRequest(devices_ids=ids)
    return pb.AllocateRequest(container_requests=[each]).SerializeToString()


def _in_turn(devices: int, size: int) -> list[bytes]:
    """Requests for so many of the devices each, another lot every time, as pods that come one after the other."""
    return [allocation([f"d0-{(first + number) % devices}" for number in range(size)]) for first in range(devices)]


def _replicas(devices: int, replicas: int) -> list[str]:
    return [f"d0-{number}::{replica}" for number in range(devices) for replica in range(replicas)]


async def interleaved(
    sockets: Sequence[Path], method: str, requests: Sequence[bytes], rounds: int, count: int, callers: int
) -> list[list[list[float]]]:
    """Per socket its rounds of durations; the sockets take turns, after one round that does not count."""
    sides: list[list[list[float]]] = [[] for _ in sockets]
    for number in range(rounds + 1):
        for side, socket in zip(sides, sockets, strict=True):
            taken = await _round(socket, method, requests, count, callers)
            if number:
                side.append(taken)
    return sides


async def _round(socket: Path, method: str, requests: Sequence[bytes], count: int, callers: int) -> list[float]:
    if callers > 1:
        return await client.times_of_many(socket, method, requests, count, callers=callers)
    with client.Caller(socket) as caller:
        await asyncio.to_thread(caller.call, method, requests[0])
        return await asyncio.to_thread(caller.times, method, requests, count)
