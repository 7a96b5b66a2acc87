"""Registrations on kubelet.sock, and a second one of a resource, in 1.36 and in 1.37."""

import asyncio

import grpc
import pytest

from tests.sim.conftest import shows
from vdev.pb import deviceplugin_v1beta1_pb2 as api
from vdev.sim import Kubelet, ManualClock, Timings, manifest

NPU = "acme.dev/npu"


async def refused(plugin, **request):
    """The error of a refused registration."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await plugin.register(**request)
    assert grpc.StatusCode.UNKNOWN is caught.value.code()
    return caught.value.details()


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


@pytest.mark.parametrize("endpoint", ["none.sock", "x" * 108])
async def test_no_server_behind_the_endpoint(short_dir, plugins, endpoint):
    """The registration fails once the dial times out, also if a path over 107 bytes can never be dialed."""
    async with Kubelet(short_dir, timings=Timings(dial=0.3)) as kubelet:
        plugin = await plugins(NPU, ["d1"], on=kubelet, serve=False)
        assert "failed to dial device plugin: context deadline exceeded" == await refused(plugin, endpoint=endpoint)
        assert {} == kubelet.node().capacity


async def test_options_of_the_request_are_ignored(kubelet, plugins):
    """Only the options of GetDevicePluginOptions count; a difference is a finding."""
    plugin = await plugins(NPU, ["d1"], register=False)
    await plugin.register(options=api.DevicePluginOptions(pre_start_required=True))
    await kubelet.wait_until(lambda: kubelet.devices().capacity)
    await kubelet.run_pod(manifest("p", {NPU: 1}))
    assert [] == plugin.requests("PreStartContainer")
    assert ["options-differ"] == [finding.code for finding in kubelet.findings]


async def test_options_fail(kubelet, plugins):
    """Conformance 12: a failing GetDevicePluginOptions fails the registration, and nothing else is called."""
    plugin = await plugins(register=False)
    plugin.failures["GetDevicePluginOptions"] = (grpc.StatusCode.INTERNAL, "no options today")
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


@pytest.fixture
async def newer(short_dir):
    """A kubelet with 1.37's behavior."""
    async with Kubelet(short_dir, clock=ManualClock(), compat="1.37") as kubelet:
        yield kubelet


@pytest.mark.parametrize(("pre_start", "preferred"), [(False, False), (True, True)])
async def test_reregistration(kubelet, plugins, pre_start, preferred):
    """Conformance 30: a second and a third instance with other devices replace the list, whatever their options."""
    await plugins(NPU, ["d1", "d2"], pre_start=pre_start, preferred=preferred)
    await plugins(NPU, ["d1", "d2", "d3"], pre_start=pre_start, preferred=preferred)
    await shows(kubelet, NPU, 3, 3)
    await plugins(NPU, ["d3"], pre_start=pre_start, preferred=preferred)
    await shows(kubelet, NPU, 1, 1)


async def test_old_stream_takes_the_new_connection_down(kubelet, plugins):
    """1.36: the end of the old instance's stream closes the new instance's connection."""
    old = await plugins(NPU, ["d1"])
    new = await plugins(NPU, ["d1", "d2"])
    await old.stop()
    await shows(kubelet, NPU, 2, 0)
    await kubelet.wait_until(lambda: not new.streams)
    assert "registered-while-streaming" in [finding.code for finding in kubelet.findings]


async def test_old_stream_leaves_the_new_connection_alone(newer, plugins):
    """1.37: the end of the old instance's stream changes nothing for the new instance."""
    old = await plugins(NPU, ["d1"], on=newer)
    new = await plugins(NPU, ["d1", "d2"], on=newer)
    await old.stop()
    new.list("d1", "d2", "d3")
    await shows(newer, NPU, 3, 3)
    assert 1 == len(new.streams)


async def test_failed_reregistration_orphans_the_old_stream(kubelet, plugins):
    """1.36: after a failed second registration, the kubelet does not notice the end of the first plugin."""
    old = await plugins(NPU, ["d1"])
    new = await plugins(NPU, ["d1"], register=False)
    new.failures["GetDevicePluginOptions"] = (grpc.StatusCode.UNAVAILABLE, "not yet")
    with pytest.raises(grpc.aio.AioRpcError, match="failed to get device plugin options"):
        await new.register()
    await old.stop()
    await kubelet.wait_until(lambda: not old.streams)
    third = await plugins("acme.dev/other", ["o1"])
    third.list("o1", "o2")
    await shows(kubelet, "acme.dev/other", 2, 2)
    await shows(kubelet, NPU, 1, 1)


async def test_late_listener(short_dir, plugins):
    """A plugin may start to listen after it registered, within the dial timeout."""
    async with Kubelet(short_dir, clock=ManualClock(), timings=Timings(dial=20)) as kubelet:
        plugin = await plugins(NPU, ["d1"], on=kubelet, serve=False)
        async with asyncio.TaskGroup() as group:
            group.create_task(plugin.register(), name="register")
            await kubelet.wait_until(lambda: kubelet.metrics.registrations[NPU])
            await plugin.serve()
        await shows(kubelet, NPU, 1, 1)
        await plugin.stop()


async def test_impatient_plugin(kubelet, plugins):
    """A plugin whose own deadline ends its registration is not registered, and can register again."""
    plugin = await plugins(NPU, ["d1"], register=False)
    release = plugin.hold("GetDevicePluginOptions")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await plugin.register(deadline=0.2)
    assert grpc.StatusCode.DEADLINE_EXCEEDED is caught.value.code()
    assert {} == kubelet.node().capacity
    release.set()
    await plugin.register()
    await shows(kubelet, NPU, 1, 1)
