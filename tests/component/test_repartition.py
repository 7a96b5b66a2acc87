"""Layouts that change while pods hold devices."""

from vdev.sim import Phase, manifest

MIXED = """
flags: {{migStrategy: mixed}}
devices:
  - name: a100
    resource: nvidia.com/gpu
    virtual: {{preset: a100-sxm4-40gb, count: 1}}
    partitions: {{"0": [{layout}]}}
"""
SMALL, MEDIUM, LARGE = (f"nvidia.com/mig-{profile}" for profile in ("1g.5gb", "2g.10gb", "3g.20gb"))


def health(agent, resource):
    """The health of each device that the kubelet sees, by profile and slice."""
    slots = agent.agent.reconciler.advertised.resources[resource].slots
    return {f"{slot.device.profile}@{slot.device.slices.start}": slot.health.healthy for slot in slots}


async def test_an_overlapping_partition_waits_for_the_pod(kubelet, start_agent, shows):
    """A new partition on slices that a pod holds is Unhealthy until the pod ends; others are available at once."""
    agent = await start_agent(MIXED.format(layout="3g.20gb@4, 2g.10gb@0"))
    await shows(LARGE, 1, 1)
    assert Phase.RUNNING == (await kubelet.run_pod(manifest("holder", {LARGE: 1}))).phase
    (held,) = kubelet.pod("holder").container().devices[LARGE]
    agent.edit(MIXED.format(layout="1g.5gb@4, 1g.5gb@2, 2g.10gb@0"))
    await shows(SMALL, 2, 1)
    assert {"1g.5gb@4": False, "1g.5gb@2": True} == health(agent, SMALL)
    assert {"2g.10gb@0": True} == health(agent, MEDIUM)
    (waiting,) = (
        slot for slot in agent.agent.reconciler.advertised.resources[SMALL].slots if slot.device.slices.start == 4
    )
    await agent.calls_unhealthy(kubelet, SMALL, waiting.id, f"overlaps {held}, which pod default/holder still holds")
    assert {LARGE: 0} == {LARGE: kubelet.node().allocatable[LARGE]}
    await kubelet.delete_pod("holder")
    await shows(SMALL, 2, 2)
    await shows(LARGE, 0, 0)
    assert [] == kubelet.errors


async def test_a_partition_that_stays_is_not_touched(kubelet, start_agent, shows):
    """A partition of both layouts keeps its id, its health and its pod."""
    agent = await start_agent(MIXED.format(layout="3g.20gb@4, 2g.10gb@0"))
    await shows(LARGE, 1, 1)
    before = set(agent.agent.reconciler.advertised.resources[LARGE].by_id)
    registrations = agent.agent.lists.services[LARGE].registrations
    agent.edit(MIXED.format(layout="1g.5gb@0, 3g.20gb@4"))
    await shows(SMALL, 1, 1)
    assert before == set(agent.agent.reconciler.advertised.resources[LARGE].by_id)
    assert registrations == agent.agent.lists.services[LARGE].registrations
    assert [] == kubelet.errors
