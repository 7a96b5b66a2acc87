"""Restarts, crashes and reboots of the kubelet, its plugins and its pods."""

import asyncio
import socket
from pathlib import Path

import grpc
import pytest

from tests.sim.conftest import device, listed, shows
from vdev.errors import SocketError
from vdev.sim import Kubelet, KubeletPanic, Phase, manifest

NPU = "acme.dev/npu"


async def again(plugin):
    """Start it again, and wait until the node shows its devices."""
    await plugin.again()
    healthy = sum(device.health == "Healthy" for device in plugin.devices)
    await plugin.kubelet.wait_until(lambda: plugin.kubelet.node().allocatable.get(plugin.resource) == healthy)


def sockets(kubelet):
    """The names of the sockets in the plugins' directory."""
    return sorted(path.name for path in kubelet.device_plugin_dir.iterdir() if path.is_socket())


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


async def test_finished_pod_is_not_admitted_again(kubelet, plugins):
    """Conformance 6: a succeeded pod is not admitted again after a kubelet restart."""
    plugin = await plugins(NPU, ["d1"])
    await kubelet.run_pod(manifest("p", {NPU: 1}))
    await kubelet.finish_pod("p")
    await plugin.stop()
    await shows(kubelet, NPU, 1, 0)
    await kubelet.restart()
    assert Phase.SUCCEEDED is kubelet.pod("p").phase
    assert {} == await listed(kubelet)


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


async def test_health_in_pod_status(kubelet, plugins):
    """Conformance 19 and 45: the health of a held device is in the pod's status at once."""
    plugin = await plugins(NPU, ["d1"])
    await kubelet.run_pod(manifest("p", {NPU: 1}))
    for health in ("Unhealthy", "Healthy"):
        plugin.list(device("d1", health))
        await kubelet.wait_until(lambda expected=health: kubelet.pod("p").container().health == {NPU: {"d1": expected}})
        expected = [{"name": NPU, "resources": [{"resourceID": "d1", "health": health}]}]
        assert expected == kubelet.pod("p").container().allocated_resources_status


async def test_pod_status_only_when_health_changes(kubelet, plugins):
    """Conformance 46: a list updates a pod only if the health of its device has changed."""
    plugin = await plugins(NPU, ["d1"])
    await kubelet.run_pod(manifest("p", {NPU: 1}))
    updates = []
    kubelet.journal.listen(lambda entry: updates.append(entry) if entry.event == "pod" else None)
    plugin.list("d1")
    plugin.list("d1", "d2")
    plugin.list(device("d1", "Unhealthy"), "d2")
    await kubelet.wait_until(lambda: (kubelet.node().capacity, kubelet.node().allocatable) == ({NPU: 2}, {NPU: 1}))
    assert 1 == len(updates)


async def test_dropped_device_does_not_change_the_pod_status(kubelet, plugins):
    """A held id that is dropped does not change the pod's status, but is a finding."""
    plugin = await plugins(NPU, ["d1"])
    await kubelet.run_pod(manifest("p", {NPU: 1}))
    plugin.list()
    await shows(kubelet, NPU, 0, 0)
    assert {NPU: {"d1": "Healthy"}} == kubelet.pod("p").container().health
    assert ["held-device-dropped"] == [finding.code for finding in kubelet.errors]


async def test_pre_start_at_each_start(kubelet, plugins):
    """PreStartContainer is called before each container start, without a new Allocate."""
    plugin = await plugins(NPU, ["d1", "d2", "d3"], pre_start=True)
    await kubelet.run_pod(manifest("p", {NPU: 2}))
    await kubelet.restart_container("p")
    first, second = (set(request.devices_ids) for request in plugin.requests("PreStartContainer"))
    assert first == second == set(kubelet.pod("p").container().devices[NPU])
    assert 1 == len(plugin.requests("Allocate"))


async def test_pre_start_that_fails_is_tried_again(kubelet, plugins, clock):
    """The container waits with the plugin's message, and later containers wait for an init container."""
    plugin = await plugins(NPU, ["d1"], pre_start=True)
    plugin.failures["PreStartContainer"] = (grpc.StatusCode.INTERNAL, "reset failed")
    document = manifest("p", {NPU: 1})
    document["spec"]["initContainers"] = [{"name": "first", "resources": {"limits": {NPU: 1}}}]
    first = (await kubelet.run_pod(document)).container("first")
    said = "device plugin PreStartContainer rpc failed with err: rpc error: code = Internal desc = reset failed"
    assert ("CreateContainerConfigError", said) == (first.waiting, first.message)
    clock.advance(10)
    await kubelet.wait_until(lambda: 2 == len(plugin.requests("PreStartContainer")))
    plugin.failures.clear()
    async with asyncio.timeout(30):
        while Phase.RUNNING is not kubelet.pod("p").phase:
            clock.advance(1)  # the next attempt may not be waiting for its time yet
            await kubelet.journal.next_change(at_most=0.01)
    assert 4 == len(plugin.requests("PreStartContainer"))
    assert [f"Error: {said}"] * 2 == [event.message for event in kubelet.events]


async def test_broken_checkpoint_is_ignored(kubelet, plugins):
    """An unreadable checkpoint is a finding."""
    await plugins(NPU, ["d1"])
    await kubelet.run_pod(manifest("p", {NPU: 1}))
    await kubelet.stop()
    (kubelet.device_plugin_dir / "kubelet_internal_checkpoint").write_text("{")
    await kubelet.start()
    assert {} == kubelet.devices().capacity
    assert ["checkpoint-unreadable"] == [finding.code for finding in kubelet.findings]


async def test_new_node_sets_extended_resources_to_zero(kubelet, plugins):
    """Conformance 43: without a checkpoint, the node counts as new and its extended resources are zero."""
    await plugins(NPU, ["d1"])
    await kubelet.stop()
    (kubelet.device_plugin_dir / "kubelet_internal_checkpoint").unlink()
    assert {NPU: 1} == kubelet.node().capacity
    await kubelet.start()
    await shows(kubelet, NPU, 0, 0)


async def test_crash_leaves_a_stale_socket(kubelet, plugins):
    """After a crash, kubelet.sock remains and refuses connections, and the plugin's stream has ended."""
    plugin = await plugins(NPU, ["d1"])
    await kubelet.crash()
    assert plugin.endpoint in sockets(kubelet)
    with socket.socket(socket.AF_UNIX) as probe, pytest.raises(ConnectionRefusedError):
        probe.connect(str(kubelet.socket))
    await kubelet.wait_until(lambda: not plugin.streams)


async def test_start_removes_sockets_only(kubelet, plugins):
    """A start removes all sockets, also those of running plugins, but no files and directories."""
    await plugins(NPU, ["d1"])
    (kubelet.device_plugin_dir / "notes").write_text("mine")
    (kubelet.device_plugin_dir / "dir").mkdir()
    await kubelet.restart()
    names = sorted(path.name for path in kubelet.device_plugin_dir.iterdir())
    assert ["dir", "kubelet.sock", "kubelet_internal_checkpoint", "notes"] == names


async def test_a_socket_never_changes(kubelet, monkeypatch):
    """The times of a kubelet's socket never change, because plugins identify a kubelet by them."""
    seen, linked = {}, Path.hardlink_to

    def link(self, target):
        linked(self, target)
        if self == kubelet.socket:
            seen["at first"] = kubelet.socket.stat()

    monkeypatch.setattr(Path, "hardlink_to", link)
    await kubelet.restart()
    seen["later"] = kubelet.socket.stat()
    await kubelet.crash()
    seen["after the end"] = kubelet.socket.stat()
    assert 1 == len({(each.st_ino, each.st_nlink, each.st_ctime_ns) for each in seen.values()}), seen


async def test_directories_that_are_refused(kubelet, short_dir):
    """Another kubelet runs there, the paths of sockets are too long, or a real kubelet has its checkpoint there."""
    real = short_dir / "device-plugins"
    real.mkdir()
    (real / "kubelet_internal_checkpoint").write_text('{"Data": {}, "Checksum": 1}')
    for root, text in (
        (kubelet.root, "another kubelet is running here"),
        (short_dir / ("x" * 100), "at most 107 are allowed"),
        (short_dir, "belongs to a real kubelet"),
    ):
        with pytest.raises(SocketError, match=text):
            async with Kubelet(root):
                pass
    assert ["kubelet.sock"] == sockets(kubelet)


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


async def test_deleted_during_the_admission_of_another_pod(kubelet, plugins):
    """A pod that waits for its admission and is deleted is not admitted."""
    plugin = await plugins(NPU, ["d1", "d2"])
    go = plugin.hold("Allocate")
    async with asyncio.TaskGroup() as group:
        group.create_task(kubelet.run_pod(manifest("first", {NPU: 1})), name="first pod")
        await kubelet.wait_until(lambda: plugin.requests("Allocate"))
        group.create_task(kubelet.run_pod(manifest("second", {NPU: 1})), name="second pod")
        await kubelet.wait_until(lambda: len(kubelet.pods()) == 2)
        await asyncio.sleep(0.05)  # it waits now
        await kubelet.delete_pod("second")
        go.set()
    assert 1 == len(plugin.requests("Allocate"))


async def test_crash_during_allocate(kubelet, plugins):
    """If the kubelet crashes during an Allocate, the pod stays Pending and is admitted after the next start."""
    plugin = await plugins(NPU, ["d1"])
    plugin.hold("Allocate")
    async with asyncio.TaskGroup() as group:
        run = group.create_task(kubelet.run_pod(manifest("p", {NPU: 1})), name="run pod")
        await kubelet.wait_until(lambda: plugin.requests("Allocate"))
        await kubelet.crash()
    assert Phase.PENDING is run.result().phase
    await kubelet.start()
    assert "no healthy devices present" in kubelet.pod("p").message
