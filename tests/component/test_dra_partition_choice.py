"""Partition layouts that a label of the node selects, with partitions that are allocated to claims."""

import pytest

from tests.kit.dra_node import dra_kubelet, runs, until_published
from tests.kit.dra_objects import claim, device_class, exactly, pod

pytest.importorskip("cel_expr_python", reason="cel-expr-python, which evaluates selectors, is not installed")

CONFIG = """
version: v1
flags: {migStrategy: mixed}
devices:
  - name: a100
    resource: nvidia.com/gpu
    advertise: [dra]
    virtual: {preset: a100-sxm4-40gb, count: 2}
    partitions: {fromLabel: nvidia.com/mig.config, default: all-3g.20gb}
"""
MIG, LABEL = "mig.nvidia.com", "nvidia.com/mig.config"


@pytest.fixture
async def kubelet(directory, api_server):
    """A kubelet that uses the claims and slices of the API server."""
    mig = device_class(MIG, "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'mig'")
    async with dra_kubelet(directory, api_server, mig) as running:
        yield running


@pytest.fixture
def published(api_server):
    """The profile of each published device."""

    def profiles():
        found = [device for each in api_server.all("resourceslices") for device in each["spec"].get("devices") or ()]
        return sorted(each["attributes"].get("profile", {}).get("string", "") for each in found)

    return profiles


@pytest.fixture
def choose(api_server):
    """Set the label on the Node."""

    async def choose(value):
        await api_server.edit("nodes", "node-1", {"metadata": {"labels": {LABEL: value}}}, manager="kubectl")

    return choose


@pytest.fixture
def state(api_server):
    """The state label of the Node."""
    return lambda: api_server.object("nodes", "node-1")["metadata"].get("labels", {}).get(f"{LABEL}.state")


@pytest.fixture
def held(start_agent, account, api_server, kubelet, published):
    """Start an agent with the default layout, and a pod that claims a partition."""

    async def start(text=CONFIG):
        agent = await start_agent(text, api_server=account, wait=False)
        await until_published(agent, api_server)
        await api_server.until(lambda: ["3g.20gb"] * 4 == published())
        await kubelet.objects.create("ResourceClaim", claim("c", exactly(MIG)))
        await runs(kubelet, pod("holder", claims=["c"]))
        return agent

    return start


async def test_claimed_partitions_are_kept(held, start_agent, account, api_server, kubelet, published, choose, state):
    """A layout without the claimed partition fails with the pod's name, also after a restart, until the pod is gone."""
    agent = await held()
    await choose("all-1g.5gb")
    await api_server.until(lambda: "failed" == state())
    (problem,) = agent.agent.layouts.problems
    assert "pod default/holder holds 3g.20gb at slice 0 of device 0 of a100" in problem.message
    assert ["3g.20gb"] * 4 == published()
    await agent.stop()
    agent = await start_agent(CONFIG, api_server=account, wait=False)
    await until_published(agent, api_server)
    assert ["3g.20gb"] * 4 == published()
    await choose("all-2g.10gb")
    await api_server.until(lambda: "2g.10gb" in str(agent.agent.layouts.problems))
    (problem,) = agent.agent.layouts.problems
    assert "pod default/holder holds" in problem.message
    await kubelet.delete_pod("holder")
    await api_server.until(lambda: not any(each["claims"] for each in agent.agent.dra.document()))
    await choose("all-1g.5gb")
    await api_server.until(lambda: ["1g.5gb"] * 14 == published())
    await api_server.until(lambda: "success" == state())
