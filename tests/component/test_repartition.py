"""Layouts and sharing that change while pods hold devices."""

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


async def test_a_whole_device_waits_for_its_last_partition(kubelet, start_agent, shows):
    """A whole device is Unhealthy while a pod holds one of its old partitions."""
    agent = await start_agent(MIXED.format(layout="3g.20gb"))
    await shows(LARGE, 1, 1)
    await kubelet.run_pod(manifest("holder", {LARGE: 1}))
    await agent.has_named(kubelet)
    agent.edit(MIXED.format(layout="3g.20gb").replace('    partitions: {"0": [3g.20gb]}\n', ""))
    await shows("nvidia.com/gpu", 1, 0)
    await kubelet.delete_pod("holder")
    await shows("nvidia.com/gpu", 1, 1)
    assert [] == kubelet.errors


async def test_sharing_may_start_while_a_pod_holds_the_whole_device(kubelet, start_agent, shows):
    """The replicas of a device are Unhealthy while a pod holds it alone."""
    text = "devices: [{name: acme, resource: acme.dev/npu, virtual: {count: 2}}]\n"
    agent = await start_agent(text)
    await shows("acme.dev/npu", 2, 2)
    await kubelet.run_pod(manifest("holder", {"acme.dev/npu": 1}))
    await agent.has_named(kubelet)
    agent.edit(text + "sharing: {timeSlicing: {resources: [{name: acme.dev/npu, replicas: 3}]}}\n")
    await shows("acme.dev/npu", 7, 3)
    await kubelet.delete_pod("holder")
    await shows("acme.dev/npu", 6, 6)
    assert [] == kubelet.errors
