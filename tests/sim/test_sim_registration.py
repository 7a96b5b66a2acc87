"""Registrations on kubelet.sock."""

import grpc
import pytest

from vdev.pb import deviceplugin_v1beta1_pb2 as api
from vdev.sim import Kubelet, Timings, manifest

NPU = "acme.dev/npu"


async def refused(plugin, **request):
    """The error of a refused registration."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await plugin.register(**request)
    assert grpc.StatusCode.UNKNOWN is caught.value.code()
    return caught.value.details()


async def test_capacity_appears(kubelet, plugins):
    """A registered plugin's devices become the node's capacity and allocatable."""
    await plugins(NPU, ["d1", "d2"])
    assert (2, 2) == (kubelet.node().capacity[NPU], kubelet.node().allocatable[NPU])


async def test_wrong_version(plugins):
    """An unknown version is refused, before the name is checked."""
    plugin = await plugins(register=False)
    assert 'requested API version "v1" is not supported by kubelet. Supported version is ["v1beta1"]' == await refused(
        plugin, version="v1", name="nonsense"
    )


async def test_invalid_name(kubelet, plugins):
    """A name without a domain is refused, and the attempt is counted."""
    plugin = await plugins(register=False)
    assert 'the ResourceName "gpu" is invalid' == await refused(plugin, name="gpu")
    assert 1 == kubelet.metrics.registrations["gpu"]
    assert [] == plugin.calls


async def test_nobody_serves(short_dir, plugin_class):
    """A registration without a server behind its endpoint fails once the dial times out."""
    async with Kubelet(short_dir, timings=Timings(dial=0.3)) as kubelet:
        plugin = plugin_class(kubelet, NPU, ["d1"])
        assert "failed to dial device plugin: context deadline exceeded" == await refused(plugin)
        assert {} == kubelet.node().capacity


async def test_options_of_the_request_are_ignored(kubelet, plugins):
    """Only the options of GetDevicePluginOptions count; a difference is a finding."""
    plugin = await plugins(NPU, ["d1"], register=False)
    await plugin.register(options=api.DevicePluginOptions(pre_start_required=True))
    await kubelet.wait_until(lambda: kubelet.devices().capacity)
    await kubelet.run_pod(manifest("p", {NPU: 1}))
    assert [] == plugin.requests("PreStartContainer")
    assert ["options-differ"] == [finding.code for finding in kubelet.findings]


async def test_options_fail(kubelet, plugins, refusal):
    """Conformance 12: a failing GetDevicePluginOptions fails the registration, and nothing else is called."""
    plugin = await plugins(register=False)

    async def fail():
        raise refusal(grpc.StatusCode.INTERNAL, "no options today")

    plugin.answer_options = fail
    expected = "failed to get device plugin options: rpc error: code = Internal desc = no options today"
    assert expected == await refused(plugin)
    assert ["GetDevicePluginOptions"] == plugin.names()
    assert NPU not in kubelet.node().capacity


async def test_no_list_no_resource(kubelet, plugins):
    """A plugin without a list has no resource on the node."""
    plugin = await plugins(NPU, None)
    await kubelet.wait_until(lambda: plugin.streams)
    kubelet.tick()
    assert {} == kubelet.node().capacity
