"""Restarts, crashes and reboots of the kubelet, its plugins and its pods."""

import asyncio
import socket

import grpc
import pytest

from vdev.pb import podresources_v1_pb2 as resources
from vdev.pb import podresources_v1_pb2_grpc as resources_grpc
from vdev.sim import KubeletPanic, Phase, manifest

NPU = "acme.dev/npu"


async def listed(kubelet):
    """The device ids in PodResources, by pod and container."""
    async with grpc.aio.insecure_channel(f"unix:{kubelet.pod_resources_socket}") as channel:
        answer = await resources_grpc.PodResourcesListerStub(channel).List(resources.ListPodResourcesRequest())
    return {
        (pod.name, container.name): sorted(id_ for entry in container.devices for id_ in entry.device_ids)
        for pod in answer.pod_resources
        for container in pod.containers
    }


async def again(plugin, *, devices=None):
    """Start a new server on a new socket and register, as a good plugin does after a kubelet restart."""
    await plugin.stop()
    if devices is not None:
        plugin.devices = devices
    await plugin.serve()
    await plugin.register()
    healthy = sum(device.health == "Healthy" for device in plugin.devices)
    await plugin.kubelet.wait_until(lambda: plugin.kubelet.node().allocatable.get(plugin.resource) == healthy)


def sockets(kubelet):
    """The names of the sockets in the plugins' directory."""
    return sorted(path.name for path in kubelet.device_plugin_dir.iterdir() if path.is_socket())


async def test_kubelet_restart_keeps_devices(kubelet, plugins, shows):
    """Conformance 4 and 8: during a kubelet restart, the pod keeps its device; the plugin brings the resource back."""
    plugin = await plugins(NPU, ["d1", "d2"])
    before = await kubelet.run_pod(manifest("p", {NPU: 1}))
    await kubelet.restart()
    await shows(kubelet, NPU, 0, 0)
    await again(plugin)
    await shows(kubelet, NPU, 2, 2)
    assert before == kubelet.pod("p")
    assert {("p", "main"): list(before.container().devices[NPU])} == await listed(kubelet)
    assert 1 == len(plugin.requests("Allocate"))


async def test_container_and_kubelet_restart(kubelet, plugins):
    """Conformance 3 and 5: container, kubelet and container restart: always the same device, without a new Allocate."""
    plugin = await plugins(NPU, ["d1", "d2"])
    before = await kubelet.run_pod(manifest("p", {NPU: 1}))
    restarted = (await kubelet.restart_container("p")).container()
    assert (before.container().devices, before.container().edits) == (restarted.devices, restarted.edits)
    await kubelet.restart()
    await again(plugin)
    after = await kubelet.restart_container("p")
    assert before.container().devices == after.container().devices
    assert 2 == after.container().restarts
    assert 1 == len(plugin.requests("Allocate"))


async def test_finished_pod_is_not_admitted_again(kubelet, plugins, shows):
    """Conformance 6: a succeeded pod is not admitted again after a kubelet restart."""
    plugin = await plugins(NPU, ["d1"])
    await kubelet.run_pod(manifest("p", {NPU: 1}))
    await kubelet.finish_pod("p")
    await plugin.stop()
    await shows(kubelet, NPU, 1, 0)
    await kubelet.restart()
    assert Phase.SUCCEEDED is kubelet.pod("p").phase
    assert {} == await listed(kubelet)


async def test_plugin_restart_keeps_devices(kubelet, plugins, shows):
    """Conformance 7: a pod keeps its device during a plugin restart."""
    plugin = await plugins(NPU, ["d1", "d2"])
    before = await kubelet.run_pod(manifest("p", {NPU: 1}))
    entry = await listed(kubelet)
    await plugin.stop()
    await shows(kubelet, NPU, 2, 0)
    await again(plugin)
    assert (before, entry) == (kubelet.pod("p"), await listed(kubelet))


async def test_pod_deleted_while_the_kubelet_is_down(kubelet, plugins):
    """Conformance 9: a pod that is deleted while the kubelet is down holds nothing."""
    await plugins(NPU, ["d1"])
    await kubelet.run_pod(manifest("p", {NPU: 1}))
    await kubelet.stop()
    await kubelet.delete_pod("p")
    await kubelet.start()
    assert {} == await listed(kubelet)


@pytest.mark.parametrize("devices", [1, 2])
async def test_reboot_before_the_plugin(kubelet, plugins, devices):
    """Conformance 11 and 21: after a reboot without the plugin, the pod fails and the node shows 0 devices."""
    await plugins(NPU, ["d1", "d2"])
    await kubelet.run_pod(manifest("p", {NPU: devices}))
    await kubelet.reboot()
    pod = kubelet.pod("p")
    text = f"no healthy devices present; cannot allocate unhealthy devices {NPU}"
    assert (
        Phase.FAILED,
        "UnexpectedAdmissionError",
        f"Pod was rejected: Allocate failed due to {text}, which is unexpected",
    ) == (pod.phase, pod.reason, pod.message)
    assert 0 == kubelet.node().allocatable[NPU]
    assert {} == await listed(kubelet)


async def test_reboot_after_the_plugin(kubelet, plugins):
    """If the plugin registers first, pods keep their devices after a reboot; with other ids, they fail."""
    plugin = await plugins(NPU, ["d1", "d2"])
    before = await kubelet.run_pod(manifest("p", {NPU: 1}))
    await kubelet.reboot(readmit=False)
    await again(plugin)
    await kubelet.readmit()
    assert (Phase.RUNNING, before.container().devices) == (kubelet.pod("p").phase, kubelet.pod("p").container().devices)
    await kubelet.reboot(readmit=False)
    plugin.devices[0].ID, plugin.devices[1].ID = "x1", "x2"
    await again(plugin)
    await kubelet.readmit()
    assert "previously allocated devices are no longer healthy" in kubelet.pod("p").message


async def test_health_in_pod_status(kubelet, plugins, device):
    """Conformance 19 and 45: the health of a held device is in the pod's status at once."""
    plugin = await plugins(NPU, ["d1"])
    await kubelet.run_pod(manifest("p", {NPU: 1}))
    for health in ("Unhealthy", "Healthy"):
        plugin.list(device("d1", health))
        await kubelet.wait_until(lambda expected=health: kubelet.pod("p").container().health == {NPU: {"d1": expected}})
        expected = [{"name": NPU, "resources": [{"resourceID": "d1", "health": health}]}]
        assert expected == kubelet.pod("p").container().allocated_resources_status


async def test_pre_start_at_each_start(kubelet, plugins):
    """PreStartContainer is called before each container start, without a new Allocate."""
    plugin = await plugins(NPU, ["d1", "d2", "d3"], pre_start=True)
    await kubelet.run_pod(manifest("p", {NPU: 2}))
    await kubelet.restart_container("p")
    first, second = (set(request.devices_ids) for request in plugin.requests("PreStartContainer"))
    assert first == second == set(kubelet.pod("p").container().devices[NPU])
    assert 1 == len(plugin.requests("Allocate"))


async def test_pre_start_that_fails_is_tried_again(kubelet, plugins, clock, refusal):
    """The container waits with the plugin's message, and later containers wait for an init container."""
    plugin = await plugins(NPU, ["d1"], pre_start=True)

    async def fail(_request):
        raise refusal(grpc.StatusCode.INTERNAL, "reset failed")

    answer, plugin.answer_pre_start = plugin.answer_pre_start, fail
    document = manifest("p", {NPU: 1})
    document["spec"]["initContainers"] = [{"name": "first", "resources": {"limits": {NPU: 1}}}]
    first = (await kubelet.run_pod(document)).container("first")
    said = "device plugin PreStartContainer rpc failed with err: rpc error: code = Internal desc = reset failed"
    assert ("CreateContainerConfigError", said) == (first.waiting, first.message)
    clock.advance(10)
    await kubelet.wait_until(lambda: 2 == len(plugin.requests("PreStartContainer")))
    plugin.answer_pre_start = answer
    async with asyncio.timeout(30):
        while Phase.RUNNING is not kubelet.pod("p").phase:
            clock.advance(1)  # the next attempt may not be waiting for its time yet
            await kubelet.journal.next_change(at_most=0.01)
    assert 4 == len(plugin.requests("PreStartContainer"))
    assert [f"Error: {said}"] * 2 == [event.message for event in kubelet.events]


async def test_checkpoint(kubelet, plugins):
    """Conformance 33: the checkpoint has holders with their responses, and resources with their healthy ids."""
    plugin = await plugins(NPU, ["d1"])
    await plugins("acme.dev/gpu", ["g1"])

    async def answer(_request):
        cdi = plugin_api().CDIDevice(name="acme.dev/npu=d1")
        response = plugin_api().ContainerAllocateResponse(cdi_devices=[cdi])
        return plugin_api().AllocateResponse(container_responses=[response])

    plugin.answer_allocate = answer
    before = await kubelet.run_pod(manifest("p", {NPU: 1, "acme.dev/gpu": 1}))
    await kubelet.restart()
    after = await kubelet.restart_container("p")
    assert before.container().edits == after.container().edits
    assert {NPU: 0, "acme.dev/gpu": 0} == kubelet.devices().capacity


def plugin_api():
    from vdev.pb import deviceplugin_v1beta1_pb2

    return deviceplugin_v1beta1_pb2


async def test_broken_checkpoint_counts_as_none(kubelet, plugins):
    """An unreadable checkpoint is a finding, and is ignored."""
    await plugins(NPU, ["d1"])
    await kubelet.run_pod(manifest("p", {NPU: 1}))
    await kubelet.stop()
    (kubelet.device_plugin_dir / "kubelet_internal_checkpoint").write_text("{")
    await kubelet.start()
    assert {} == kubelet.devices().capacity
    assert ["checkpoint-unreadable"] == [finding.code for finding in kubelet.findings]


async def test_crash_leaves_a_stale_socket(kubelet, plugins):
    """After a crash, kubelet.sock remains and refuses connections, and the plugin's stream has ended."""
    plugin = await plugins(NPU, ["d1"])
    await kubelet.crash()
    assert plugin.endpoint in sockets(kubelet)
    with socket.socket(socket.AF_UNIX) as probe, pytest.raises(ConnectionRefusedError):
        probe.connect(str(kubelet.socket))
    await kubelet.wait_until(lambda: not plugin.streams)


async def test_dropped_during_allocate_panics(kubelet, plugins):
    """If a device is dropped during its Allocate, the kubelet panics and stays down until it is started."""
    plugin = await plugins(NPU, ["d1"])
    answer = plugin.answer_allocate

    async def drop(request):
        plugin.list()
        await kubelet.wait_until(lambda: kubelet.devices().capacity == {NPU: 0})
        return await answer(request)

    plugin.answer_allocate = drop
    with pytest.raises(KubeletPanic, match="d1 was dropped"):
        await kubelet.run_pod(manifest("p", {NPU: 1}))
    assert not kubelet.alive
    assert {"panic", "held-device-dropped"} == {finding.code for finding in kubelet.errors}
    await kubelet.start()
    assert kubelet.alive
