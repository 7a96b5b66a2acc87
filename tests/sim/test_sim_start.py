"""A kubelet that starts: the time before it knows its pods, and the checkpoint."""

import asyncio
import base64
import json

import grpc
import pytest

from tests.sim.conftest import device, listed, shows
from vdev.pb import deviceplugin_v1beta1_pb2 as api
from vdev.sim import Kubelet, LeapClock, Phase, Timings, manifest

NPU = "acme.dev/npu"
SOURCES = 3600.0  # seconds; longer than a test, so pods are known only when a test advances the clock


@pytest.fixture
async def kubelet(clock):
    """A kubelet that learns of its pods when the test advances the clock."""
    timings = Timings(boot=0.01, lead=0.01, sources=SOURCES)
    async with Kubelet(clock=clock, rate_limit=False, timings=timings) as running:
        yield running


def checkpoint(kubelet):
    """The checkpoint, as a plugin reads it."""
    return json.loads((kubelet.device_plugin_dir / "kubelet_internal_checkpoint").read_text())


def remembered(kubelet):
    """The device ids in the checkpoint."""
    entries = checkpoint(kubelet)["Data"]["PodDeviceEntries"] or []
    return sorted(id_ for entry in entries for ids in entry["DeviceIDs"].values() for id_ in ids)


async def restart(kubelet, *plugins):
    """Restart the kubelet; plugins register as soon as they can."""
    await kubelet.restart(wait=False)
    for plugin in plugins:
        await plugin.again()
    await kubelet.wait_until(lambda: all(kubelet.node().allocatable.get(each.resource) for each in plugins))


async def test_pods_are_not_known_at_once(kubelet, plugins, clock):
    """PodResources is unavailable, then lists no pod while plugins already register, then lists all pods."""
    plugin = await plugins(NPU, ["d1", "d2"])
    await kubelet.run_pod(manifest("a", {NPU: 1}))
    before = await listed(kubelet)
    await kubelet.stop()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await listed(kubelet)
    assert grpc.StatusCode.UNAVAILABLE is caught.value.code()
    await kubelet.start(wait=False)
    assert {} == await listed(kubelet)
    await plugin.again()
    await kubelet.wait_until(lambda: kubelet.node().allocatable.get(NPU) == 2)
    assert {} == await listed(kubelet)
    assert len(before["a"]) == len(remembered(kubelet)) == 1
    clock.advance(SOURCES)
    await kubelet.wait_until(lambda: kubelet.ready)
    assert before == await listed(kubelet)


async def test_a_new_pod_waits_with_the_old_ones(kubelet, plugins, clock):
    """A pod that is created in that time is admitted after the old pods."""
    plugin = await plugins(NPU, ["d1", "d2"])
    await kubelet.run_pod(manifest("old", {NPU: 1}))
    await restart(kubelet, plugin)
    async with asyncio.TaskGroup() as group:
        new = group.create_task(kubelet.run_pod(manifest("new", {NPU: 1})), name="new pod")
        await kubelet.wait_until(lambda: len(kubelet.pods()) == 2)
        assert Phase.PENDING is kubelet.pod("new").phase
        assert 1 == len(plugin.requests("Allocate"))
        clock.advance(SOURCES)
    assert Phase.RUNNING is new.result().phase
    assert {"old", "new"} == (await listed(kubelet)).keys()


async def test_a_pod_in_admission_is_named(kubelet, plugins):
    """PodResources lists a pod during its admission, with the devices that it has so far."""
    plugin = await plugins(NPU, ["d1", "d2"])
    answer, seen = plugin.answer_allocate, []

    async def look_first(request):
        seen.append(len((await listed(kubelet))["p"]))
        return await answer(request)

    plugin.answer_allocate = look_first
    pod = await kubelet.run_pod(manifest("p", a={NPU: 1}, b={NPU: 1}))
    assert [0, 1] == seen
    assert {"d1", "d2"} == {pod.container(name).devices[NPU][0] for name in ("a", "b")}  # a List frees nothing of it


async def test_checkpoint_form(kubelet, plugins):
    """The checkpoint has the real kubelet's form: keys, NUMA nodes as text, the response in base64, mode 0600."""
    await plugins(NPU, [device("d1", numa=[0, 1]), device("sick", "Unhealthy")])
    assert checkpoint(kubelet)["Data"] == {"PodDeviceEntries": None, "RegisteredDevices": {NPU: ["d1"]}}
    await kubelet.run_pod(manifest("p", {NPU: 1}))
    document = checkpoint(kubelet)
    assert {"Data", "Checksum"} == document.keys()
    (entry,) = document["Data"]["PodDeviceEntries"]
    response = api.ContainerAllocateResponse.FromString(base64.b64decode(entry.pop("AllocResp")))
    assert {"STUB_DEVICES": "d1"} == dict(response.envs)
    uid = kubelet.pod("p").spec.uid
    expected = {"PodUID": uid, "ContainerName": "main", "ResourceName": NPU, "DeviceIDs": {"0": ["d1"], "1": ["d1"]}}
    assert expected == entry
    assert {NPU: ["d1"]} == document["Data"]["RegisteredDevices"]
    path = kubelet.device_plugin_dir / "kubelet_internal_checkpoint"
    assert 0o600 == path.stat().st_mode & 0o777


async def test_checkpoint_is_an_upper_bound(kubelet, plugins, clock):
    """The devices of an ended pod stay in the checkpoint until the next Allocate, also after a restart."""
    plugin = await plugins(NPU, ["d1", "d2"])
    await kubelet.run_pod(manifest("gone", {NPU: 2}))
    await kubelet.run_pod(manifest("plain"))
    await kubelet.delete_pod("gone")
    await listed(kubelet)
    assert ["d1", "d2"] == remembered(kubelet)
    await restart(kubelet, plugin)
    clock.advance(SOURCES)
    await kubelet.wait_until(lambda: kubelet.ready)
    assert ["d1", "d2"] == remembered(kubelet)
    pod = await kubelet.run_pod(manifest("next", {NPU: 1}))
    assert list(pod.container().devices[NPU]) == remembered(kubelet)


async def test_two_pods_on_one_piece_of_hardware(short_dir, plugins):
    """It is a finding if two pods hold ids of the same hardware, even of different resources."""
    same = {frozenset({"whole", "half"})}
    async with Kubelet(short_dir, clock=LeapClock(), overlaps=lambda *ids: frozenset(ids) in same) as kubelet:
        for id_ in ("whole", "half", "other"):
            await plugins(f"acme.dev/{id_}", [id_], on=kubelet)
        for name in ("whole", "other"):
            await kubelet.run_pod(manifest(name, {f"acme.dev/{name}": 1}))
        assert [] == kubelet.findings
        await kubelet.run_pod(manifest("half", {"acme.dev/half": 1}))
        (found,) = kubelet.errors
        assert ("device-on-two-pods", "acme.dev/half") == (found.code, found.resource)
        assert "pod default/half got 'half', and pod default/whole holds 'whole'" in found.message


async def test_a_device_is_given_twice(kubelet, plugins, clock):
    """A kubelet that frees the devices of an ended pod forgets those of an Allocate in flight: no plugin's fault."""
    plugin = await plugins(NPU, ["d1", "d2", "d3"], preferred=True)
    clock.advance(SOURCES)
    await kubelet.run_pod(manifest("old", {NPU: 1}))
    go = plugin.hold("Allocate")
    running = asyncio.create_task(kubelet.run_pod(manifest("slow", {NPU: 1})))
    await kubelet.wait_until(lambda: 2 == len(plugin.requests("Allocate")))
    await kubelet.finish_pod("old")
    await listed(kubelet)
    go.set()
    await running
    assert Phase.RUNNING is (await kubelet.run_pod(manifest("next", {NPU: 2}))).phase
    (found,) = kubelet.findings
    assert ("device-given-twice", NPU, "warning") == (found.code, found.resource, found.severity.value)
    assert kubelet.errors == []


async def test_a_finished_init_container_uses_nothing(kubelet, plugins):
    """The device of a finished init container may be dropped from the list, and does not count as held."""
    plugin = await plugins(NPU, ["d1", "d2"])
    document = manifest("p", {})
    document["spec"]["initContainers"] = [{"name": "first", "resources": {"limits": {NPU: 1}}}]
    await kubelet.run_pod(document)
    ((id_,),) = kubelet.pod("p").container("first").devices.values()
    other = "d2" if id_ == "d1" else "d1"
    assert Phase.FAILED is (await kubelet.run_pod(manifest("both", {NPU: 2}))).phase
    plugin.list(other)
    await shows(kubelet, NPU, 1, 1)
    assert {NPU: {other: "Healthy"}} == kubelet.listed()
    assert [] == kubelet.findings
    await plugin.stop()
    await shows(kubelet, NPU, 1, 0)
    assert {} == kubelet.listed()
