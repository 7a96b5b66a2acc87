"""Restarts, crashes and reboots: what stays, what goes, and what plugins see of it."""

import asyncio
import re
import socket
from pathlib import Path

import grpc
import pytest

from vdev.errors import SocketError
from vdev.pb import podresources_v1_pb2 as resources
from vdev.pb import podresources_v1_pb2_grpc as resources_grpc
from vdev.sim import Kubelet, KubeletPanic, Phase, Timings, manifest

NPU = "acme.dev/npu"


async def listed(kubelet):
    """What PodResources says: device ids by pod and container."""
    async with grpc.aio.insecure_channel(f"unix:{kubelet.pod_resources_socket}") as channel:
        answer = await resources_grpc.PodResourcesListerStub(channel).List(resources.ListPodResourcesRequest())
    return {
        (pod.name, container.name): sorted(id_ for entry in container.devices for id_ in entry.device_ids)
        for pod in answer.pod_resources
        for container in pod.containers
    }


async def again(plugin, *, devices=None):
    """What a good plugin does after a kubelet restart: a new server on a new socket, and a registration."""
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


async def test_container_restart_keeps_devices(kubelet, plugins):
    """Conformance 3: a restarted container has the same device, by the answer of the first Allocate."""
    plugin = await plugins(NPU, ["d1", "d2"])
    before = (await kubelet.run_pod(manifest("p", {NPU: 1}))).container()
    after = (await kubelet.restart_container("p")).container()
    assert (before.devices, before.edits, 1) == (after.devices, after.edits, after.restarts)
    assert 1 == len(plugin.requests("Allocate"))
    assert Phase.RUNNING is (await kubelet.run_pod(manifest("q", {NPU: 1}))).phase


async def test_kubelet_restart_keeps_devices(kubelet, plugins, shows):
    """Conformance 4: over a kubelet restart the pod runs on with its device; the resource is back with its plugin."""
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
    """Conformance 5: container restart, then kubelet restart, then container restart: always the same device."""
    plugin = await plugins(NPU, ["d1", "d2"])
    before = await kubelet.run_pod(manifest("p", {NPU: 1}))
    await kubelet.restart_container("p")
    await kubelet.restart()
    await again(plugin)
    after = await kubelet.restart_container("p")
    assert before.container().devices == after.container().devices
    assert 2 == after.container().restarts


async def test_finished_pod_is_not_admitted_again(kubelet, plugins, shows):
    """Conformance 6: a pod that succeeded stays so over a kubelet restart without its plugin."""
    plugin = await plugins(NPU, ["d1"])
    await kubelet.run_pod(manifest("p", {NPU: 1}))
    await kubelet.finish_pod("p")
    await plugin.stop()
    await shows(kubelet, NPU, 1, 0)
    await kubelet.restart()
    assert Phase.SUCCEEDED is kubelet.pod("p").phase
    assert {} == await listed(kubelet)


async def test_plugin_restart_keeps_devices(kubelet, plugins, shows):
    """Conformance 7: over a plugin restart the pod keeps its device and its entry."""
    plugin = await plugins(NPU, ["d1", "d2"])
    before = await kubelet.run_pod(manifest("p", {NPU: 1}))
    entry = await listed(kubelet)
    await plugin.stop()
    await shows(kubelet, NPU, 2, 0)
    await again(plugin)
    assert (before, entry) == (kubelet.pod("p"), await listed(kubelet))


async def test_kubelet_and_plugin_restart(kubelet, plugins):
    """Conformance 8: kubelet and plugin both restart, the pod does not: same pod, same device, 2/2."""
    plugin = await plugins(NPU, ["d1", "d2"])
    before = await kubelet.run_pod(manifest("p", {NPU: 1}))
    await kubelet.restart()
    await plugin.stop()
    await again(plugin)
    assert {("p", "main"): list(before.container().devices[NPU])} == await listed(kubelet)


async def test_pod_deleted_while_the_kubelet_is_down(kubelet, plugins):
    """Conformance 9: a pod deleted while the kubelet was down leaves nothing behind."""
    await plugins(NPU, ["d1"])
    await kubelet.run_pod(manifest("p", {NPU: 1}))
    await kubelet.stop()
    await kubelet.delete_pod("p")
    await kubelet.start()
    assert {} == await listed(kubelet)


@pytest.mark.parametrize("devices", [1, 2])
async def test_reboot_before_the_plugin(kubelet, plugins, devices):
    """Conformance 11 and 21: after a reboot pods come before plugins and fail; the node shows 0, nobody is listed."""
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
    """A plugin that registers before pods come back gives them their old devices; with other ids they fail."""
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


async def test_dead_container_at_kubelet_start(kubelet, plugins):
    """A pod whose container died while the kubelet was down is admitted again, and fails without its plugin."""
    await plugins(NPU, ["d1"])
    await kubelet.run_pod(manifest("p", {NPU: 1}))
    await kubelet.stop()
    await kubelet.kill_container("p")
    await kubelet.start()
    assert "no healthy devices present" in kubelet.pod("p").message


async def test_health_in_pod_status(kubelet, plugins, device):
    """Conformance 19 and 45: a held device's health shows in the pod's status at once, both ways."""
    plugin = await plugins(NPU, ["d1"])
    await kubelet.run_pod(manifest("p", {NPU: 1}))
    for health in ("Unhealthy", "Healthy"):
        plugin.list(device("d1", health))
        await kubelet.wait_until(lambda expected=health: kubelet.pod("p").container().health == {NPU: {"d1": expected}})
        expected = [{"name": NPU, "resources": [{"resourceID": "d1", "health": health}]}]
        assert expected == kubelet.pod("p").container().allocated_resources_status


async def test_health_of_app_containers_only(kubelet, plugins, device):
    """As 1.36 writes it: init containers and sidecars hold devices and never have allocatedResourcesStatus."""
    plugin = await plugins(NPU, ["d1", "d2"])
    document = manifest("p", {NPU: 1})
    limits = {"resources": {"limits": {NPU: 1}}}
    document["spec"]["initContainers"] = [
        {"name": "first", **limits},
        {"name": "side", "restartPolicy": "Always", **limits},
    ]
    pod = await kubelet.run_pod(document)
    assert [1, 1, 1] == [len(each.devices[NPU]) for each in pod.containers]
    plugin.list(device("d1", "Unhealthy"), device("d2", "Unhealthy"))
    await kubelet.wait_until(lambda: "Unhealthy" in str(kubelet.pod("p").container().health))
    seen = kubelet.pod("p")
    assert ([], []) == tuple(seen.container(name).allocated_resources_status for name in ("first", "side"))


async def test_health_of_a_container_that_never_started(kubelet, plugins, device, refusal):
    """Conformance 20: the same for a pod whose container waits."""
    plugin = await plugins(NPU, ["d1"], pre_start=True)

    async def fail(_request):
        raise refusal(grpc.StatusCode.INTERNAL, "cold")

    plugin.answer_pre_start = fail
    pod = await kubelet.run_pod(manifest("p", {NPU: 1}))
    assert (Phase.PENDING, "CreateContainerConfigError") == (pod.phase, pod.container().waiting)
    plugin.list(device("d1", "Unhealthy"))
    await kubelet.wait_until(lambda: kubelet.pod("p").container().health == {NPU: {"d1": "Unhealthy"}})


async def test_pod_status_only_when_health_changes(kubelet, plugins, device):
    """Conformance 46: a list that changes no health of a held device updates no pod; each flip does once."""
    plugin = await plugins(NPU, ["d1"])
    await kubelet.run_pod(manifest("p", {NPU: 1}))
    updates = []
    kubelet.journal.listen(lambda entry: updates.append(entry) if entry.event == "pod" else None)
    plugin.list("d1")
    plugin.list("d1", "d2")
    plugin.list(device("d1", "Unhealthy"), "d2")
    await kubelet.wait_until(lambda: (kubelet.node().capacity, kubelet.node().allocatable) == ({NPU: 2}, {NPU: 1}))
    assert 1 == len(updates)


async def test_dropped_device_leaves_the_status_standing(kubelet, plugins, shows):
    """A held id that is dropped is no news for the pod, but a finding."""
    plugin = await plugins(NPU, ["d1"])
    await kubelet.run_pod(manifest("p", {NPU: 1}))
    plugin.list()
    await shows(kubelet, NPU, 0, 0)
    assert {NPU: {"d1": "Healthy"}} == kubelet.pod("p").container().health
    assert ["held-device-dropped"] == [finding.code for finding in kubelet.errors]


async def test_pre_start_at_each_start(kubelet, plugins):
    """PreStartContainer comes before every container start, with the same ids, without a new Allocate."""
    plugin = await plugins(NPU, ["d1", "d2", "d3"], pre_start=True)
    await kubelet.run_pod(manifest("p", {NPU: 2}))
    await kubelet.restart_container("p")
    first, second = (set(request.devices_ids) for request in plugin.requests("PreStartContainer"))
    assert first == second == set(kubelet.pod("p").container().devices[NPU])
    assert 1 == len(plugin.requests("Allocate"))


async def test_pre_start_that_fails_is_tried_again(kubelet, plugins, clock, refusal):
    """The container waits with the plugin's words, an init container as well; what comes after them waits, too."""
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


async def test_pre_start_with_the_plugin_down(kubelet, plugins, shows):
    """With its plugin down a restart waits; after a kubelet restart, not knowing the options, it silently goes on."""
    plugin = await plugins(NPU, ["d1"], pre_start=True)
    await kubelet.run_pod(manifest("p", {NPU: 1}))
    await plugin.stop()
    await shows(kubelet, NPU, 1, 0)
    container = (await kubelet.restart_container("p")).container()
    assert "CreateContainerConfigError" == container.waiting
    assert container.message.startswith("device plugin PreStartContainer rpc failed with err: endpoint ")
    assert re.search(r"endpoint &\{.* acme.dev/npu .*\} has been stopped$", container.message)
    assert Phase.RUNNING is kubelet.pod("p").phase


async def test_pre_start_is_skipped_until_the_plugin_is_back(kubelet, plugins):
    """Between a kubelet restart and the plugin's registration PreStartContainer is silently skipped."""
    plugin = await plugins(NPU, ["d1"], pre_start=True)
    await kubelet.run_pod(manifest("p", {NPU: 1}))
    await kubelet.restart()
    assert (await kubelet.restart_container("p")).container().running
    assert 1 == len(plugin.requests("PreStartContainer"))


async def test_checkpoint(kubelet, plugins):
    """Conformance 33: holders and registered resources survive on disk, CDI names included, healthy ids only."""
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
    """The device plugin API's messages."""
    from vdev.pb import deviceplugin_v1beta1_pb2

    return deviceplugin_v1beta1_pb2


async def test_broken_checkpoint_counts_as_none(kubelet, plugins):
    """A checkpoint that cannot be read is said and ignored."""
    await plugins(NPU, ["d1"])
    await kubelet.run_pod(manifest("p", {NPU: 1}))
    await kubelet.stop()
    (kubelet.device_plugin_dir / "kubelet_internal_checkpoint").write_text("{")
    await kubelet.start()
    assert {} == kubelet.devices().capacity
    assert ["checkpoint-unreadable"] == [finding.code for finding in kubelet.findings]


async def test_new_node_zeroes_what_it_showed(kubelet, plugins, shows):
    """Conformance 43: without any checkpoint the node counts as new, and its extended resources as zero."""
    await plugins(NPU, ["d1"])
    await kubelet.stop()
    (kubelet.device_plugin_dir / "kubelet_internal_checkpoint").unlink()
    assert {NPU: 1} == kubelet.node().capacity
    await kubelet.start()
    await shows(kubelet, NPU, 0, 0)


async def test_starts_and_stops_twice(kubelet):
    """Conformance 29: a kubelet starts, stops, and stopping it once more is fine."""
    assert kubelet.alive
    await kubelet.stop()
    await kubelet.stop()
    assert not kubelet.alive
    await kubelet.start()
    assert ["kubelet.sock"] == sockets(kubelet)


async def test_crash_leaves_a_stale_socket(kubelet, plugins):
    """After a crash kubelet.sock is still there and refuses; the plugin's stream has ended."""
    plugin = await plugins(NPU, ["d1"])
    await kubelet.crash()
    assert plugin.endpoint in sockets(kubelet)
    with socket.socket(socket.AF_UNIX) as probe, pytest.raises(ConnectionRefusedError):
        probe.connect(str(kubelet.socket))
    await kubelet.wait_until(lambda: not plugin.streams)


async def test_start_removes_sockets_only(kubelet, plugins):
    """A start unlinks every socket, also of live plugins; files and directories stay."""
    await plugins(NPU, ["d1"])
    (kubelet.device_plugin_dir / "notes").write_text("mine")
    (kubelet.device_plugin_dir / "dir").mkdir()
    await kubelet.restart()
    names = sorted(path.name for path in kubelet.device_plugin_dir.iterdir())
    assert ["dir", "kubelet.sock", "kubelet_internal_checkpoint", "notes"] == names


async def test_a_socket_never_changes(kubelet, monkeypatch):
    """A plugin may know a kubelet by the times of its socket: there is one from when it is seen until it is gone."""
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


async def test_two_kubelets_in_one_directory(kubelet):
    """A second kubelet in the directory of a live one is refused, and the first goes on."""
    with pytest.raises(SocketError, match="another kubelet is running here"):
        async with Kubelet(kubelet.root):
            pass
    assert ["kubelet.sock"] == sockets(kubelet)


async def test_too_long_a_directory(short_dir):
    """A directory whose sockets would have too long a path is refused at once, with the numbers."""
    with pytest.raises(SocketError, match="at most 107 are allowed"):
        async with Kubelet(short_dir / ("x" * 100)):
            pass


async def test_real_kubelets_directory(short_dir):
    """The directory of a real kubelet, recognised by its checkpoint, is left alone."""
    directory = short_dir / "device-plugins"
    directory.mkdir()
    (directory / "kubelet_internal_checkpoint").write_text('{"Data": {}, "Checksum": 1}')
    with pytest.raises(SocketError, match="belongs to a real kubelet"):
        async with Kubelet(short_dir):
            pass


async def test_dropped_during_allocate_panics(kubelet, plugins):
    """A device dropped while its Allocate is in flight: the kubelet panics and is down until it is started again."""
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


async def test_crash_during_allocate(kubelet, plugins):
    """A kubelet that dies while it waits for Allocate leaves the pod pending, and its next start takes it up."""
    plugin = await plugins(NPU, ["d1"])

    async def hang(_request):
        await asyncio.Event().wait()

    plugin.answer_allocate = hang
    async with asyncio.TaskGroup() as group:
        run = group.create_task(kubelet.run_pod(manifest("p", {NPU: 1})), name="run pod")
        await kubelet.wait_until(lambda: plugin.requests("Allocate"))
        await kubelet.crash()
    assert Phase.PENDING is run.result().phase
    await kubelet.start()
    assert "no healthy devices present" in kubelet.pod("p").message


async def test_run_pod_while_the_kubelet_is_down(kubelet):
    """A pod made while the kubelet is down runs once it is up."""
    await kubelet.stop()
    assert Phase.PENDING is (await kubelet.run_pod(manifest("p"))).phase
    await kubelet.start()
    assert Phase.RUNNING is kubelet.pod("p").phase


async def test_real_time(short_dir, plugin_class):
    """With no clock given the machine's is used, and the tick comes by itself."""
    from vdev.sim import Timings

    async with Kubelet(short_dir, status_on_change=False, timings=Timings(tick=0.05)) as kubelet:
        plugin = await (await plugin_class(kubelet, NPU, ["d1"]).serve()).register()
        await kubelet.wait_until(lambda: kubelet.node().capacity == {NPU: 1})
        await plugin.stop()


async def test_who_is_cancelled_at_the_start_leaves_no_server(directory, monkeypatch):
    """Not even the one that listens already, of which the code that starts it never hears."""
    listening, make = asyncio.Queue(), grpc.aio.server

    def serving():
        made = make()
        begin = made.start

        async def start():
            await begin()
            listening.put_nowait(made)
            await asyncio.Event().wait()

        made.start = start
        return made

    monkeypatch.setattr(grpc.aio, "server", serving)
    starting = asyncio.create_task(Kubelet(directory / "node").start())
    async with asyncio.timeout(30):
        server = await listening.get()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert not await server.wait_for_termination(1)  # it did not have to wait for that long


@pytest.fixture
def servers(monkeypatch):
    """All that gRPC makes during the test."""
    made, make = [], grpc.aio.server

    def kept():
        made.append(make())
        return made[-1]

    monkeypatch.setattr(grpc.aio, "server", kept)
    return made


async def test_who_is_cancelled_while_pods_are_awaited_leaves_no_server(directory, servers):
    """The kubelet serves already, and nobody else would end it."""
    kubelet = Kubelet(directory / "node", timings=Timings(boot=0.01, lead=0.01, sources=1000))
    await kubelet.start()
    await kubelet.stop()
    async with asyncio.timeout(30):
        entering = asyncio.create_task(kubelet.__aenter__())
        await kubelet.wait_until(lambda: kubelet.alive)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        assert not kubelet.alive
        for server in servers:
            assert not await server.wait_for_termination(1)  # it did not have to wait for that long
