"""ResourceSlices on older releases of Kubernetes: disabled feature gates, and no API group."""

import pytest

from tests.kit.api_server import ApiServer
from tests.kit.releases import Release
from vdev.sim.api.kinds import KINDS

CONFIG = """
version: v1
devices:
  - name: h100
    resource: nvidia.com/gpu
    advertise: [dra]
    virtual: {preset: h100-sxm5-80gb, count: 2}
    dra: {partitions: dynamic}
  - {name: npu, resource: acme.dev/npu, advertise: [dra], virtual: {count: 2}}
  - {name: plain, resource: acme.dev/plain, virtual: {count: 1}}
sharing: {timeSlicing: {resources: [{name: acme.dev/npu, replicas: 4}]}}
"""


@pytest.fixture
async def api_server(request):
    """A server of the release in the test's parameter; if it is None, one without the group `resource.k8s.io`."""
    release = request.param
    kinds = KINDS if release else tuple(each for each in KINDS if each.group != "resource.k8s.io")
    async with ApiServer(release=release or Release((1, 33)), kinds=kinds) as server:
        await server.add("nodes", {"metadata": {"name": "node-1"}}, manager="kubelet")
        yield server


def slices(api_server, driver):
    """The slices of a driver."""
    return [each for each in api_server.all("resourceslices") if each["spec"]["driver"] == driver]


def is_whole(found):
    """Whether slices are a complete pool."""
    return bool(found) and all(each["spec"]["pool"]["resourceSliceCount"] == len(found) for each in found)


@pytest.mark.parametrize("api_server", [Release((1, 34))], indirect=True, ids=["1.34"])
async def test_disabled_feature_gates(start_agent, account, api_server, kubelet, shows):
    """Problems name the gates of dropped fields, slices are not rewritten, and the device plugin goes on."""
    agent = await start_agent(CONFIG, api_server=account, wait=False)
    await shows("acme.dev/plain", 1, 1)

    def problems():
        return " ".join(str(each) for each in agent.agent.reconciler.problems)

    await api_server.until(lambda: "DRAConsumableCapacity" in problems())
    await api_server.until(lambda: "DRAPartitionableDevices" in problems())
    await api_server.until(lambda: all(is_whole(slices(api_server, each)) for each in ("acme.dev", "gpu.nvidia.com")))
    await api_server.bookmark()
    await agent.settled(kubelet)
    assert not [each for each in api_server.asked if each.verb in ("update", "patch")]


@pytest.mark.parametrize("api_server", [None], indirect=True, ids=["1.33"])
async def test_without_the_group(start_agent, account, api_server, shows):
    """With 1.33 or older there is a problem, and the device plugin goes on."""
    agent = await start_agent(CONFIG, api_server=account, wait=False)
    await shows("acme.dev/plain", 1, 1)
    await api_server.until(lambda: any("resource.k8s.io" in str(each) for each in agent.agent.reconciler.problems))
