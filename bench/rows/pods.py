"""Rows of pods: from a pod's creation to its containers' start on the embedded kubelet.

That kubelet asks for a preference, calls Allocate and, if the plugin wants it, PreStartContainer, as a real one does.
It has no runtime: what images, sandboxes and networks take in a cluster comes on top.
"""

import time
from contextlib import AsyncExitStack
from typing import Any

from ..measured import configs, life, process
from ..table.row import Run, timed

_IN_A_ROUND = 10


async def pods(run: Run) -> None:
    """Pod start: a pod of one container with one device, on the embedded kubelet."""
    ours: list[list[float]] = []
    theirs: list[list[float]] = []
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(process.place())
        mine = await stack.enter_async_context(life.ours(one, configs.plain(1, 8), configs.resources(1)))
        sides = [(mine, configs.resource(0), ours)]
        if run.peer is not None:
            two = await stack.enter_async_context(process.place())
            other = await stack.enter_async_context(life.theirs(two, run.peer))
            sides.append((other, run.peer.resource, theirs))
        for side, resource, _ in sides:
            await side.registered()
            await _round(side, resource)
        for _ in range(run.some(30, 3)):
            for side, resource, taken in sides:
                taken.append(await _round(side, resource))
    run.add(timed("pod start", "1 container, 1 device", ours, peer=theirs or None))


async def _round(side: life.Life, resource: str) -> list[float]:
    """Seconds of some pods, one after the other."""
    taken = []
    for _ in range(_IN_A_ROUND):
        begun = time.perf_counter()
        status = await side.kubelet.run_pod(_manifest(resource))
        taken.append(time.perf_counter() - begun)
        assert status.phase.value == "Running", f"the pod is {status.phase.value}: {status.message}"
        await side.kubelet.delete_pod("bench")
    return taken


def _manifest(resource: str) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"limits": {resource: 1}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bench"}, "spec": {"containers": [container]}}
