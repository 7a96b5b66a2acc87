"""A kubelet that learns of its pods long after its start, because it cannot reach its API server."""

import pytest

from vdev.sim import Kubelet, Timings, manifest

WHOLE, HALF = "acme.dev/mig-2x", "acme.dev/mig-1x"


def cut(layout):
    return f"""
flags: {{migStrategy: mixed}}
devices:
  - name: acme
    resource: acme.dev/npu
    virtual:
      count: 1
      memory: 4Gi
      partitioning:
        slices: 2
        profiles: {{1x: {{slices: 1, memory: 2Gi}}, 2x: {{slices: 2, memory: 4Gi}}}}
    partitions: {{"0": [{layout}]}}
"""


@pytest.fixture
async def kubelet(directory):
    """A kubelet that lists no pods for longer than the agent's grace period."""
    timings = Timings(boot=0.01, lead=0.01, sources=2.5)
    async with Kubelet(directory / "kubelet", rate_limit=False, timings=timings) as running:
        yield running


@pytest.mark.long
async def test_nothing_is_released_before_the_kubelet_knows_its_pods(kubelet, start_agent, shows):
    """New partitions that overlap a held one stay Unhealthy until the pod is certainly gone."""
    agent = await start_agent(cut("2x"), kubelet_grace=2.0)
    await kubelet.run_pod(manifest("holder", {WHOLE: 1}))
    agent.edit(cut("1x, 1x"))
    await shows(HALF, 2, 0)
    await kubelet.restart(wait=False)
    holders, readings = agent.agent.holders, set()
    while not kubelet.ready:
        agent.agent.holders.ask()
        await kubelet.journal.next_change(at_most=0.05)
        readings.add(holders.known.answered_at)
        assert not any(slot.health.healthy for slot in agent.agent.reconciler.advertised.resources[HALF].slots)
    assert 3 < len(readings)
    await kubelet.delete_pod("holder")
    await kubelet.run_pod(manifest("next"))  # until then the checkpoint keeps the last pod
    await shows(HALF, 2, 2)
    assert [] == kubelet.errors
