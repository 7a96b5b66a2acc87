"""A removed device stays listed while a pod may hold it, and is removed soon otherwise."""

import asyncio

import pytest

from vdev.sim import manifest

NPU = "acme.dev/npu"


def config(count, resource=NPU):
    return f"version: v1\ndevices:\n  - {{name: acme, resource: {resource}, virtual: {{count: {count}}}}}\n"


async def test_a_held_device_stays_until_its_pod_is_gone(kubelet, start_agent, shows):
    """After its removal from the file it is Unhealthy, in the list and in the pod's status."""
    agent = await start_agent(config(3))
    await kubelet.run_pod(manifest("a", {NPU: 3}))
    agent.edit(config(1))
    await shows(NPU, 3, 1)
    shown = kubelet.pod("a").container().allocated_resources_status
    health = {each["resourceID"]: each["health"] for each in shown[0]["resources"]}
    assert {"acme-0": "Healthy", "acme-1": "Unhealthy", "acme-2": "Unhealthy"} == health
    await agent.settled(kubelet)
    assert {"acme-1", "acme-2"} == {key[1] for key in agent.agent.reconciler.previous.retired}
    await agent.has_named(kubelet, 3)
    await kubelet.delete_pod("a")
    await shows(NPU, 1, 1)
    assert [] == kubelet.errors


async def test_free_devices_are_removed_soon(kubelet, start_agent, shows):
    """They are listed as Unhealthy for a moment only, while a held device stays."""
    agent = await start_agent(config(3))
    await kubelet.run_pod(manifest("a", {NPU: 1}))
    held = kubelet.pod("a").container().devices[NPU][0]
    await agent.has_named(kubelet)
    agent.edit(config(3).replace("acme.dev/npu", "acme.dev/other"))
    await kubelet.wait_until(lambda: kubelet.node().capacity.get("acme.dev/other") == 2, what="the free devices moved")
    assert [held] == [slot.id for slot in agent.agent.reconciler.advertised.resources[NPU].slots]
    await kubelet.delete_pod("a")
    await shows("acme.dev/other", 3, 3)
    await shows(NPU, 0, 0)
    assert [] == kubelet.errors


async def test_a_device_that_comes_back_is_healthy_at_once(kubelet, start_agent, shows):
    """Undoing an edit undoes its effects."""
    agent = await start_agent(config(2))
    await kubelet.run_pod(manifest("a", {NPU: 2}))
    agent.edit(config(1))
    await shows(NPU, 2, 1)
    agent.edit(config(2))
    await shows(NPU, 2, 2)
    await agent.settled(kubelet)
    assert {} == dict(agent.agent.reconciler.previous.retired)
    assert [] == kubelet.errors


async def test_without_pod_resources_devices_stay_for_ten_minutes(kubelet, start_agent, shows, directory):
    """If the holders are unknown, removed devices stay listed for this time."""
    agent = await start_agent(config(2), pod_resources_socket=directory / "none.sock")
    agent.edit(config(1))
    await shows(NPU, 2, 1)
    await agent.serves(2, kubelet)
    await kubelet.wait_until(lambda: agent.agent.holders.known.silent_since, what="a question in vain")
    agent.clock.advance(9 * 60)
    agent.edit(config(1).replace("count: 1", "count: 1, memory: 1Gi"))
    await agent.serves(3, kubelet)
    assert 2 == kubelet.node().capacity[NPU]
    agent.clock.advance(60)
    await shows(NPU, 1, 1)
    assert [] == kubelet.errors


@pytest.mark.parametrize("comes_back", [False, True])
async def test_the_end_does_not_wait_for_a_removed_resource(kubelet, start_agent, shows, comes_back):
    """A stop does not wait until the kubelet has read the empty list of a resource, even if the resource is back."""
    agent = await start_agent(config(1), empty_list=600.0)
    agent.edit(config(1, resource="acme.dev/other"))
    await shows(NPU, 0, 0)
    await shows("acme.dev/other", 1, 1)
    if comes_back:
        agent.edit(config(1))
        await shows("acme.dev/other", 0, 0)
    async with asyncio.timeout(30):
        assert 0 == await agent.stop()


async def test_reconciliations_for_other_reasons_send_no_more_lists(kubelet, start_agent, shows):
    """The list of a resource that waits for a device is sent again at intervals, because the kubelet then writes."""
    agent = await start_agent(config(2), retire_recheck=1e6, retire_settle=60.0)
    pod = manifest("a")
    pod["spec"]["initContainers"] = [{"name": "init", "image": "x", "resources": {"limits": {NPU: 2}}}]
    await kubelet.run_pod(pod)
    agent.edit(config(1))
    await shows(NPU, 2, 1)
    await agent.settled(kubelet)
    assert {"acme-1"} == {key[1] for key in agent.agent.reconciler.previous.retired}
    lists = len(kubelet.journal.of("listed"))
    for _ in range(10):
        agent.agent.pending.add()
        await agent.agent.pending.is_done.wait()
    assert len(kubelet.journal.of("listed")) - lists <= 1
