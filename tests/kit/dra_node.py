"""A node for tests of DRA: a kubelet that uses the claims and slices of the API server."""

import contextlib

from tests.kit import quick
from vdev.sim import Kubelet, Phase
from vdev.sim.api.store import ApiObjects


@contextlib.asynccontextmanager
async def dra_kubelet(directory, api_server, *classes, **options):
    """The kubelet of node-1, in a cluster that has these DeviceClasses."""
    await api_server.add("nodes", {"metadata": {"name": "node-1"}}, manager="kubelet")
    objects = ApiObjects(api_server.objects)
    options = {"rate_limit": False, "timings": quick.KUBELET, "cdi_dir": directory / "cdi"} | options
    options |= {"node_name": "node-1", "strict": True, "objects": objects}
    async with Kubelet(directory / "kubelet", **options) as running:
        for each in classes:
            await objects.create("DeviceClass", each)
        yield running


async def until_published(agent, api_server):
    """Wait until all drivers of an agent are registered and published."""

    def is_ready():
        rows = agent.agent.dra.document()
        return rows and all(each["slices"] and each["state"] == "registered" for each in rows)

    await api_server.until(lambda: agent.task.done() or is_ready())


async def runs(kubelet, manifest):
    """Create a pod and wait until it runs. The scheduler retries when slices are published."""
    created = await kubelet.run_pod(manifest)
    name = created.spec.name
    await kubelet.wait_until(lambda: kubelet.pod(name).phase is Phase.RUNNING, what=f"pod {name}: {created.message}")
    return kubelet.pod(name)
