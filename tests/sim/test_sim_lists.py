"""The effect of device lists, and of the end of the stream, on the node."""

import grpc

from vdev.sim import manifest

NPU = "acme.dev/npu"
GPU = "acme.dev/gpu"


async def test_unhealthy_while_used(kubelet, plugins, shows, device):
    """Conformance 14: a pod runs on when its device becomes unhealthy."""
    plugin = await plugins(NPU, ["d1"])
    await kubelet.run_pod(manifest("p", {NPU: 1}))
    plugin.list(device("d1", "Unhealthy"))
    await shows(kubelet, NPU, 1, 0)
    assert "Running" == kubelet.pod("p").phase.value
    await kubelet.delete_pod("p")
    kubelet.tick()
    await shows(kubelet, NPU, 1, 0)


async def test_four_devices_flip(kubelet, plugins, shows, device):
    """Conformance 15: allocatable follows four devices through 4, 3, 4, 2, 3, 4 while capacity stays 4."""
    plugin = await plugins(NPU, ["d1", "d2", "d3", "d4"])
    await shows(kubelet, NPU, 4, 4)
    for bad in ({"d1"}, set(), {"d2", "d3"}, {"d2"}, set()):
        plugin.list(*(device(f"d{i}", "Unhealthy" if f"d{i}" in bad else "Healthy") for i in range(1, 5)))
        await shows(kubelet, NPU, 4, 4 - len(bad))


async def test_stream_fails_at_once(kubelet, plugins, shows):
    """Conformance 16: a ListAndWatch that fails at once leaves 0/0 on the node, without a retry."""
    plugin = await plugins(NPU, ["d1"], register=False)
    plugin.fail_streams = (grpc.StatusCode.INTERNAL, "no stream")
    await plugin.register()
    await shows(kubelet, NPU, 0, 0)
    assert ["GetDevicePluginOptions", "ListAndWatch"] == plugin.names()


async def test_stream_fails_after_a_list(kubelet, plugins, shows, clock):
    """Conformance 17: a ListAndWatch that ends leaves 0/2, and 0/0 after the grace period, without a retry."""
    plugin = await plugins(NPU, ["d1", "d2"])
    plugin.end_streams()
    await shows(kubelet, NPU, 2, 0)
    clock.advance(250)
    await shows(kubelet, NPU, 2, 0)
    clock.advance(60)
    await shows(kubelet, NPU, 0, 0)
    assert 1 == len(plugin.requests("ListAndWatch"))


async def test_capacity_and_allocatable(kubelet, plugins, shows, device):
    """Conformance 31: a list replaces the previous one, and does not affect other resources."""
    plugin = await plugins(NPU, ["d1", "d2", device("d3", "Unhealthy")])
    await shows(kubelet, NPU, 3, 2)
    await plugins(GPU, ["g1"])
    plugin.list("d1", "d2")
    await shows(kubelet, NPU, 2, 2)
    plugin.list("d1", "d2", device("d3", "Unhealthy"))
    plugin.list("d1", device("d2", "Unhealthy"), device("d3", "Unhealthy"))
    await shows(kubelet, NPU, 3, 1)
    plugin.list(device("d2", "Unhealthy"), device("d3", "Unhealthy"))
    await shows(kubelet, NPU, 2, 0)
    await shows(kubelet, GPU, 1, 1)


async def test_everything_is_forgotten_after_the_grace(kubelet, plugins, shows, clock):
    """Conformance 48: a disconnect makes all devices unhealthy; after the grace period, the resource is unknown."""
    plugin = await plugins(NPU, ["d1"])
    await plugin.stop()
    await shows(kubelet, NPU, 1, 0)
    clock.advance(311)
    assert {} == kubelet.devices().capacity
    pod = await kubelet.run_pod(manifest("p", {NPU: 1}))
    assert f"OutOf{NPU}" == pod.reason
    assert (
        f"Pod was rejected: Node didn't have enough resource: {NPU}, requested: 1, used: 0, capacity: 0" == pod.message
    )


async def test_back_within_the_grace(kubelet, plugins, shows, clock):
    """A plugin that registers again within five minutes has its devices back with its first list."""
    plugin = await plugins(NPU, ["d1", "d2"])
    await plugin.stop()
    await shows(kubelet, NPU, 2, 0)
    clock.advance(290)
    await plugins(NPU, ["d1", "d2"])
    clock.advance(100)
    await shows(kubelet, NPU, 2, 2)


async def test_empty_list(kubelet, plugins, shows):
    """A resource without devices stays on the node with 0/0."""
    plugin = await plugins(NPU, ["d1"])
    plugin.list()
    await shows(kubelet, NPU, 0, 0)


async def test_any_other_health_is_unhealthy(kubelet, plugins, shows, device):
    """Only the word Healthy is healthy, and other words are findings."""
    await plugins(NPU, ["d1", device("d2", "healthy"), device("d3", "")])
    await shows(kubelet, NPU, 3, 1)
    assert ["health-text"] == [finding.code for finding in kubelet.errors]


async def test_duplicate_id_with_both_healths(kubelet, plugins, shows, device):
    """An id listed with both healths counts twice in capacity and once in allocatable, as in the real kubelet."""
    plugin = await plugins(NPU, ["d1"])
    plugin.list("d1", device("d1", "Unhealthy"))
    await shows(kubelet, NPU, 2, 1)
    assert ["duplicate-id-health"] == [finding.code for finding in kubelet.errors]


async def test_list_over_the_limit(kubelet, plugins, shows):
    """86 000 ids of 36 characters (4 214 000 bytes) end the stream with ResourceExhausted."""
    plugin = await plugins(NPU, ["d1"])
    plugin.list(*(f"{i:036}" for i in range(86_000)))
    await shows(kubelet, NPU, 1, 0)
    assert ["list-over-limit"] == [finding.code for finding in kubelet.errors]
