"""The effect of device lists, and of the end of the stream, on the node."""

import grpc
import pytest

from tests.sim.conftest import device, shows
from vdev.sim import Kubelet, ManualClock, manifest

NPU = "acme.dev/npu"
GPU = "acme.dev/gpu"


async def test_unhealthy_while_used(kubelet, plugins):
    """Conformance 14: a pod runs on when its device becomes unhealthy."""
    plugin = await plugins(NPU, ["d1"])
    await kubelet.run_pod(manifest("p", {NPU: 1}))
    plugin.list(device("d1", "Unhealthy"))
    await shows(kubelet, NPU, 1, 0)
    assert "Running" == kubelet.pod("p").phase.value
    await kubelet.delete_pod("p")
    kubelet.tick()
    await shows(kubelet, NPU, 1, 0)


async def test_stream_fails_at_once(kubelet, plugins):
    """Conformance 16: a ListAndWatch that fails at once leaves 0/0 on the node, without a retry."""
    plugin = await plugins(NPU, ["d1"], register=False)
    plugin.failures["ListAndWatch"] = (grpc.StatusCode.INTERNAL, "no stream")
    await plugin.register()
    await shows(kubelet, NPU, 0, 0)
    assert ["GetDevicePluginOptions", "ListAndWatch"] == plugin.names()


async def test_capacity_and_allocatable(kubelet, plugins):
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


async def test_a_resource_is_forgotten_after_the_grace_period(kubelet, plugins, clock):
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


@pytest.mark.parametrize(
    ("devices", "numbers", "code"),
    [
        (["d1", device("d1", "Unhealthy")], (2, 1), "duplicate-id-health"),
        (["d1", device("d2", "healthy"), device("d3", "")], (3, 1), "health-text"),
    ],
)
async def test_lists_with_mistakes(kubelet, plugins, devices, numbers, code):
    """As in the real kubelet, an id with both healths counts twice in capacity. Only the word Healthy is healthy."""
    plugin = await plugins(NPU, ["d1"])
    plugin.list(*devices)
    await shows(kubelet, NPU, *numbers)
    assert [code] == [finding.code for finding in kubelet.errors]


async def test_list_below_the_limit(kubelet, plugins):
    """85 000 ids of 36 characters (4 165 000 bytes) pass, with a warning."""
    await plugins(NPU, [f"{i:036}" for i in range(85_000)])
    await shows(kubelet, NPU, 85_000, 85_000)
    assert ["list-near-limit"] == [finding.code for finding in kubelet.findings]


async def test_list_over_the_limit(kubelet, plugins):
    """86 000 ids of 36 characters (4 214 000 bytes) end the stream with ResourceExhausted."""
    plugin = await plugins(NPU, ["d1"])
    plugin.list(*(f"{i:036}" for i in range(86_000)))
    await shows(kubelet, NPU, 1, 0)
    assert ["list-over-limit"] == [finding.code for finding in kubelet.errors]


async def test_node_status_only_each_tick(short_dir, plugins):
    """Without `status_on_change` the node status follows only the ten-second tick, the device manager at once."""
    clock = ManualClock()
    async with Kubelet(short_dir, clock=clock, status_on_change=False) as kubelet:
        plugin = await plugins(NPU, None, on=kubelet)
        await kubelet.wait_until(lambda: plugin.streams)
        plugin.list("d1")
        await kubelet.wait_until(lambda: kubelet.devices().capacity == {NPU: 1})
        clock.advance(9)
        assert {} == kubelet.node().capacity
        clock.advance(1)
        assert {NPU: 1} == kubelet.node().capacity
