"""Device metrics of a fleet: a page for all nodes, a page per node, and the targets for Prometheus."""

import asyncio
import json
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.kit.fleet import add_claim, capacity
from tests.kit.well_agent import served as served_at
from vdev.fleet.view import FleetView
from vdev.observe.http import exporter

GPUS = """
version: v1
devices:
  - {name: h100, resource: nvidia.com/gpu, virtual: {preset: h100-sxm5-80gb, count: 2}}
  - {name: npu, resource: acme.dev/npu, virtual: {count: 2}}
  - {name: mi, resource: amd.com/gpu, virtual: {preset: mi300x, count: 1}}
telemetry: {}
fleet: {nodes: [{name: "n{1..3}"}]}
faults: {rules: [{name: lost, onNodes: n2, devices: [h100/1], xid: 79}]}
"""


@pytest.fixture
async def served(start, api_server, until):
    """A function that gets a path from a fleet of three nodes."""
    fleet = await start(GPUS)
    await until(lambda: all(["2", "2"] == capacity(api_server, f"n{number}") for number in (1, 3)))
    view = FleetView(fleet)
    app = exporter(view.devices_page, lambda: [*view.measured_nodes])
    async with served_at(app) as address:

        def ask(path):
            with urllib.request.urlopen(f"http://{address}{path}", timeout=20) as answer:
                return answer.read().decode()

        yield lambda path: asyncio.to_thread(ask, path)


def values(page, name):
    """The labels and the value of each sample of a metric."""
    families = text_string_to_metric_families(page)
    return [each.labels | {"value": each.value} for family in families for each in family.samples if each.name == name]


async def test_all_nodes_are_on_one_page(served):
    """Each sample has its node, also under the names of the vendors' exporters, and a fault shows on its node alone."""
    page = await served("/metrics")
    found = values(page, "DCGM_FI_DEV_XID_ERRORS")
    assert {("n1", "0"), ("n1", "1"), ("n2", "0"), ("n3", "0"), ("n3", "1")} <= {
        (each["node"], each["gpu"]) for each in found
    }
    assert [79.0] == [each["value"] for each in found if (each["node"], each["gpu"]) == ("n2", "1")]
    assert {"n1", "n2", "n3"} == {each["node"] for each in values(page, "gpu_package_power")}
    assert {"n1", "n2", "n3"} == {each["node"] for each in values(page, "vdev_device_power_watts")}
    assert 6 == len({each["UUID"] for each in found})


async def test_each_node_has_its_own_page(served):
    """The targets name the page and the node. The page has the node's devices alone."""
    targets = json.loads(await served("/targets"))
    assert ["n1", "n2", "n3"] == [each["labels"]["node"] for each in targets]
    page = await served(targets[0]["labels"]["__metrics_path__"])
    found = values(page, "DCGM_FI_DEV_GPU_TEMP")
    assert ({"n1"}, 2, False) == ({each["Hostname"] for each in found}, len(found), "node" in found[0])
    with pytest.raises(urllib.error.HTTPError, match="404"):
        await served("/nodes/n9/metrics")


LOADED = """
version: v1
devices:
  - name: h100
    resource: nvidia.com/gpu
    virtual: {preset: h100-sxm5-80gb, count: 2}
    advertise: [dra]
    telemetry: {pattern: steady, gpu: 30, memory: 10}
  - {name: npu, resource: acme.dev/npu, virtual: {count: 1}, telemetry: {pattern: steady, gpu: 40, always: true}}
telemetry: {podAnnotations: true}
fleet: {nodes: [{name: "n{1..2}"}]}
"""


async def page_of(fleet):
    """The metrics of all nodes."""
    return await asyncio.to_thread(FleetView(fleet).devices_page)


async def loads(fleet, wanted):
    """Wait until devices have these loads in percent, by node and device."""
    found = {}
    for _ in range(500):
        page = await page_of(fleet)
        found = {(each["node"], f"h{each['gpu']}"): each["value"] for each in values(page, "DCGM_FI_DEV_GPU_UTIL")}
        npus = [each for each in values(page, "vdev_device_utilization_ratio") if "npu" in str(each)]
        found |= {(each["node"], "npu"): round(each["value"] * 100) for each in npus}
        if wanted.items() <= found.items():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(found)


async def test_load_of_claimed_devices(start, api_server, until):
    """As on a node with a kubelet: a claim's pod loads its devices, and its annotation sets the load."""
    fleet = await start(LOADED)
    await until(lambda: fleet.is_settled and 2 == len(fleet.members))
    await loads(fleet, {("n1", "h0"): 0, ("n1", "npu"): 40, ("n2", "npu"): 40})
    await add_claim(api_server, "gpu-0", node="n1", pod="p")
    await loads(fleet, {("n1", "h0"): 30, ("n1", "h1"): 0})
    pod = {
        "metadata": {"name": "p", "namespace": "default", "annotations": {"vdev.dev/load": "75"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "x"}]},
    }
    await api_server.add("pods", pod, namespace="default")
    await loads(fleet, {("n1", "h0"): 75, ("n2", "h0"): 0})
    page = await page_of(fleet)
    (busy,) = [each for each in values(page, "DCGM_FI_DEV_GPU_UTIL") if each["value"] == 75]
    assert ("default", "p") == (busy["namespace"], busy["pod"])
    await api_server.edit("pods", "p", {"metadata": {"annotations": {"vdev.dev/load": "much"}}}, namespace="default")
    await loads(fleet, {("n1", "h0"): 30})
    await api_server.remove("resourceclaims", "c", namespace="default")
    await loads(fleet, {("n1", "h0"): 0})
