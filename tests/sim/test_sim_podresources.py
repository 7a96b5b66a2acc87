"""The PodResources API: its answers and the rate limit."""

import grpc
import pytest

from tests.sim.conftest import device, shows
from vdev.pb import podresources_v1_pb2 as v1
from vdev.pb import podresources_v1_pb2_grpc as v1_grpc
from vdev.sim import Kubelet, ManualClock, manifest

NPU = "acme.dev/npu"


@pytest.fixture
async def channel(kubelet):
    """A connection to the kubelet's PodResources socket."""
    async with grpc.aio.insecure_channel(f"unix:{kubelet.pod_resources_socket}") as opened:
        yield opened


@pytest.fixture
def api(channel):
    """The v1 client."""
    return v1_grpc.PodResourcesListerStub(channel)


async def test_list_shape(kubelet, plugins, api):
    """There is an entry per device and NUMA node; without topology, the field is missing."""
    await plugins(NPU, [device("d1", numa=[0, 1]), device("d2")])
    await kubelet.run_pod(manifest("p", {NPU: 2}))
    answer = await api.List(v1.ListPodResourcesRequest())
    (pod,) = answer.pod_resources
    (container,) = pod.containers
    assert ("p", "default", "main") == (pod.name, pod.namespace, container.name)
    assert [("d1", [0]), ("d1", [1]), ("d2", None)] == sorted(
        (entry.device_ids[0], [node.ID for node in entry.topology.nodes] if entry.HasField("topology") else None)
        for entry in container.devices
    )
    assert {NPU} == {entry.resource_name for entry in container.devices}


async def test_listed_pods(kubelet, plugins, api):
    """Conformance 10: List has pods without devices and sidecars, but no regular init containers and no ended pods."""
    await plugins(NPU, ["d1", "d2", "d3"])
    await kubelet.run_pod(manifest("plain"))
    document = manifest("p", {NPU: 1})
    document["spec"]["initContainers"] = [
        {"name": "first", "resources": {"limits": {NPU: 1}}},
        {"name": "side", "restartPolicy": "Always", "resources": {"limits": {NPU: 1}}},
    ]
    await kubelet.run_pod(document)
    await kubelet.run_pod(manifest("refused", {NPU: 9}))
    await kubelet.run_pod(manifest("over", {NPU: 1}))
    await kubelet.finish_pod("over")
    answer = await api.List(v1.ListPodResourcesRequest())
    assert {"plain": {"main": 0}, "p": {"side": 1, "main": 1}} == {
        pod.name: {container.name: len(container.devices) for container in pod.containers}
        for pod in answer.pod_resources
    }


async def test_get(kubelet, plugins, api):
    """Get answers UNKNOWN for a pod that does not exist or has ended."""
    await plugins(NPU, ["d1"])
    await kubelet.run_pod(manifest("p", {NPU: 1}))
    answer = await api.Get(v1.GetPodResourcesRequest(pod_name="p", pod_namespace="default"))
    assert "d1" == answer.pod_resources.containers[0].devices[0].device_ids[0]
    await kubelet.finish_pod("p")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await api.Get(v1.GetPodResourcesRequest(pod_name="p", pod_namespace="default"))
    assert (grpc.StatusCode.UNKNOWN, "pod p in namespace default not found") == (
        caught.value.code(),
        caught.value.details(),
    )


async def test_allocatable(kubelet, plugins, api):
    """GetAllocatableResources lists healthy devices, including held ones, and none of a lost plugin."""
    plugin = await plugins(NPU, ["d1", device("d2", "Unhealthy"), "d3"])
    await kubelet.run_pod(manifest("p", {NPU: 1}))

    async def ids():
        answer = await api.GetAllocatableResources(v1.AllocatableResourcesRequest())
        return [entry.device_ids[0] for entry in answer.devices]

    assert ["d1", "d3"] == await ids()
    await plugin.stop()
    await shows(kubelet, NPU, 3, 0)
    assert [] == await ids()


async def test_rate_limit(short_dir):
    """A tight loop of calls exceeds the limit, with the real server's code and text."""
    async with (
        Kubelet(short_dir, clock=ManualClock()) as kubelet,
        grpc.aio.insecure_channel(f"unix:{kubelet.pod_resources_socket}") as channel,
    ):
        stub = v1_grpc.PodResourcesListerStub(channel)

        async def loop():
            for _ in range(10_000):
                await stub.List(v1.ListPodResourcesRequest())

        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await loop()
        assert (grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit") == (
            caught.value.code(),
            caught.value.details(),
        )
