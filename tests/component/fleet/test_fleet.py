"""Nodes without a kubelet: their objects on the API server."""

import asyncio
import gc
import urllib.request
import weakref
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.kit.fleet import (
    CONFIG,
    NPU,
    RACKS,
    add_claim,
    add_kubelet,
    add_pod,
    allocatable,
    capacity,
    devices,
    node,
    slices,
    taints,
)
from tests.kit.well_agent import served
from vdev.aio.clock import LeapClock
from vdev.fleet.cluster import SeenNode
from vdev.fleet.view import FleetView
from vdev.kube.errors import Conflict
from vdev.kube.objects import timestamp


async def test_made_nodes_are_complete(start, api_server, until):
    """Labels, taints, KWOK's annotation, other capacity, devices, conditions, and slices that the Node owns."""
    await start()
    await until(lambda: all(slices(api_server, f"gpu-{number}") for number in range(3)))
    await until(lambda: all(["4", "4"] == capacity(api_server, f"gpu-{number}") for number in range(3)))
    await until(lambda: "nvidia.com/gpu.product" in node(api_server, "gpu-1")["metadata"]["labels"])
    found = node(api_server, "gpu-1")
    labels = found["metadata"]["labels"]
    assert ("h100", "zone-1") == (labels["pool"], labels["topology.kubernetes.io/zone"])
    assert "NVIDIA-H100-80GB-HBM3" == labels["nvidia.com/gpu.product"]
    assert "fake" == found["metadata"]["annotations"]["kwok.x-k8s.io/node"]
    assert [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}] == found["spec"]["taints"]
    assert {"cpu": "96", "memory": "1Ti", "pods": "110", NPU: "4"} == found["status"]["capacity"]
    assert ["NpuHealthy"] == [each["type"] for each in found["status"]["conditions"]]
    (owner,) = api_server.all("resourceslices")[0]["metadata"]["ownerReferences"]
    assert "Node" == owner["kind"]
    found = [device for each in api_server.all("resourceslices") for device in each["spec"].get("devices") or ()]
    assert 6 == len({device["attributes"]["uuid"]["string"] for device in found})


async def test_a_selector_chooses_existing_nodes(start, api_server, until):
    """Other Nodes are not touched. The devices of a Node that is no longer selected are removed from it."""
    await api_server.add("nodes", {"metadata": {"name": "other"}})
    await api_server.add("nodes", {"metadata": {"name": "kwok-1", "labels": {"type": "kwok"}}})
    before = node(api_server, "other")
    fleet = await start()
    await until(lambda: ["4", "4"] == capacity(api_server, "kwok-1"))
    assert (before, []) == (node(api_server, "other"), slices(api_server, "kwok-1"))
    await api_server.edit("nodes", "other", {"metadata": {"labels": {"type": "kwok"}}}, manager="kubectl")
    await until(lambda: ["4", "4"] == capacity(api_server, "other"))
    applier = weakref.ref(fleet.members["other"].appliers[0])
    await api_server.edit("nodes", "other", {"metadata": {"labels": {"type": None}}}, manager="kubectl")
    await until(lambda: [None, None] == capacity(api_server, "other"))
    await until(lambda: "other" not in fleet.members)
    await until(lambda: gc.collect() >= 0 and applier() is None)


async def test_edits_of_the_file(start, api_server, until, directory):
    """Nodes and devices follow the file. A bad edit is reported and changes nothing."""
    fleet = await start()
    await until(lambda: all(["4", "4"] == capacity(api_server, f"gpu-{number}") for number in range(3)))
    file = directory / "vdev.yaml"
    file.write_text(CONFIG.replace("{0..2}", "{0..1}").replace("count: 4", "count: 5"))
    await until(lambda: not node(api_server, "gpu-2"))
    await until(lambda: ["5", "5"] == capacity(api_server, "gpu-0"))
    file.write_text(CONFIG.replace("count: 4", "count: x"))
    await until(lambda: fleet.refused)
    assert ["5", "5"] == capacity(api_server, "gpu-0")
    file.write_text(CONFIG.replace("labels: {pool: h100, ", "labels: {tier: a, "))
    await until(lambda: "pool" not in node(api_server, "gpu-0")["metadata"]["labels"])
    assert "a" == node(api_server, "gpu-0")["metadata"]["labels"]["tier"]
    await until(lambda: not fleet.refused and ["4", "4"] == capacity(api_server, "gpu-2"))


async def test_nothing_is_written_without_a_change(start, api_server, until):
    """Neither the first controller nor the next one writes."""
    first = await start()
    await until(lambda: first.is_settled and all(slices(api_server, f"gpu-{number}") for number in range(3)))
    await first.stop()
    writes = api_server.writes
    second = await start()
    await until(lambda: second.is_settled and 3 == len(second.members))
    await api_server.edit("nodes", "gpu-0", {"metadata": {"annotations": {"who": "me"}}}, manager="kubectl")
    await until(lambda: "who" in second.cluster.node("gpu-0").document["metadata"]["annotations"])
    await until(lambda: second.is_settled)
    assert writes == api_server.writes


async def test_changes_by_other_clients_stay(start, api_server, until, directory):
    """Foreign labels and taints stay if the file's taints change, even if the annotation about taints is damaged."""
    await start()
    await until(lambda: ["4", "4"] == capacity(api_server, "gpu-0"))
    foreign = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}
    taints = [*node(api_server, "gpu-0")["spec"]["taints"], foreign]
    nonsense = {"vdev.dev/taints": "[" * 100_000}
    change = {"metadata": {"labels": {"a": "b"}, "annotations": nonsense}, "spec": {"taints": taints}}
    await api_server.edit("nodes", "gpu-0", change, manager="kube-controller-manager")
    text = CONFIG.replace("value: fake, effect: NoSchedule", "value: other, effect: NoSchedule")
    (directory / "vdev.yaml").write_text(text)
    await until(lambda: "other" in str(node(api_server, "gpu-0")["spec"]["taints"]))
    found = node(api_server, "gpu-0")
    assert [foreign, {"key": "kwok.x-k8s.io/node", "effect": "NoSchedule", "value": "other"}] == found["spec"]["taints"]
    assert "b" == found["metadata"]["labels"]["a"]


async def test_a_deleted_node_is_created_again(start, api_server, until):
    """It gets its devices again, and a new uid."""
    await start()
    await until(lambda: ["4", "4"] == capacity(api_server, "gpu-0"))
    uid = node(api_server, "gpu-0")["metadata"]["uid"]
    await api_server.remove("nodes", "gpu-0")
    await until(lambda: ["4", "4"] == capacity(api_server, "gpu-0"))
    assert uid != node(api_server, "gpu-0")["metadata"]["uid"]


async def test_a_selected_node_with_a_kubelet_is_left_to_its_agent(start, api_server, until):
    """Otherwise two writers would overwrite each other's status forever. Some distributions build the kubelet into
    another program, and KWOK's `kubeletVersion` is not that of a kubelet.
    """
    versions = {"kwok-1": "fake", "kwok-2": "fake-v1.33.0", "kwok-3": "kwok-v0.8.0"}
    managers = ("kubelet", "k3s", "kubelite")
    for name in (*versions, *managers):
        await api_server.add("nodes", {"metadata": {"name": name, "labels": {"type": "kwok"}}})
    for name, version in versions.items():
        await add_kubelet(api_server, name, version, manager="kwok")
    fleet = await start()
    for name in (*versions, *managers):
        await until(lambda name=name: ["4", "4"] == capacity(api_server, name))
    for name in managers:
        await add_kubelet(api_server, name, manager=name, capacity={NPU: "0"})
        await until(lambda name=name: name not in fleet.members)
        assert ["0", "0"] == capacity(api_server, name)


async def test_a_made_node_with_a_kubelet_is_handed_over(start, api_server, until, directory):
    """The file's labels and taints are removed once; nothing else is written. The Node stays if it leaves the file."""
    fleet = await start()
    await until(lambda: fleet.is_settled and ["4", "4"] == capacity(api_server, "gpu-2"))
    await add_kubelet(api_server, "gpu-2", capacity={"cpu": "8", NPU: "0"})
    await until(lambda: "gpu-2" not in fleet.members)
    text = CONFIG.replace("pool: h100", "pool: other").replace("value: fake", "value: other")
    (directory / "vdev.yaml").write_text(text)
    await until(lambda: "other" == node(api_server, "gpu-1")["metadata"]["labels"]["pool"] and fleet.is_settled)
    found, counts = node(api_server, "gpu-2"), FleetView(fleet).status()["nodes"]
    assert {"cpu": "8", NPU: "0"}.items() <= found["status"]["capacity"].items()
    assert not {"pool", "vdev.dev/made-by"} & found["metadata"]["labels"].keys()
    assert "kubernetes.io/hostname" in found["metadata"]["labels"]
    assert not found["spec"].get("taints")
    assert {"total": 3, "settled": 2, "withKubelet": 1} == {name: count for name, count in counts.items() if count}
    (directory / "vdev.yaml").write_text(CONFIG.replace("{0..2}", "{0..0}"))
    await until(lambda: not node(api_server, "gpu-1") and fleet.is_settled)
    assert node(api_server, "gpu-2")


async def test_a_made_node_is_deleted_only_at_the_known_version(start, api_server, until):
    """A kubelet may have registered since, without an event of the watch yet."""
    fleet = await start()
    await until(lambda: fleet.is_settled and ["4", "4"] == capacity(api_server, "gpu-2"))
    before = node(api_server, "gpu-2")
    seen = SeenNode("gpu-2", SimpleNamespace(get=lambda _: before))
    await add_kubelet(api_server, "gpu-2", capacity={"cpu": "8", NPU: "0"})
    with pytest.raises(Conflict):
        await fleet.maker.remove(seen)
    assert node(api_server, "gpu-2")


async def test_an_existing_node_is_not_taken_over_without_list_permission(start, api_server, until):
    """The existing Node of this name is reported and not changed."""
    await api_server.add("nodes", {"metadata": {"name": "gpu-1"}, "status": {"capacity": {"cpu": "8"}}})
    before = node(api_server, "gpu-1")
    verbs = ("get", "create", "patch", "update", "delete")
    kinds = ("nodes", "nodes/status", "resourceslices", "pods", "resourceclaims", "events")
    api_server.permissions = {f"{verb} {kind}" for kind in kinds for verb in verbs}
    fleet = await start()
    await until(lambda: ["4", "4"] == capacity(api_server, "gpu-2"))
    await until(lambda: "exists" in str(fleet.late))
    assert before == node(api_server, "gpu-1")


async def test_devices_appear_some_time_after_a_node_is_ready(start, api_server, until, directory):
    """Labels, capacity and slices each have a delay that begins when the Node is Ready."""
    text = ONE_NODE.replace("fleet:", "node: {labels: true}\nfleet:").replace(
        "{name: n}", "{name: n, labelsAfter: 100s, devicesAfter: 200s, slicesAfter: 300s}"
    )

    def there():
        labels = node(api_server, "n")["metadata"]["labels"]
        return "nvidia.com/gpu.product" in labels, capacity(api_server, "n")[0] == "4", bool(slices(api_server, "n"))

    clock = LeapClock()
    fleet = await start(text, clock=clock)
    await until(lambda: fleet.is_settled and node(api_server, "n"))
    clock.advance(400)
    await until(lambda: fleet.is_settled)
    assert (False, False, False) == there()
    now = timestamp(clock.wall())
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
    await api_server.edit("nodes", "n", {"status": {"conditions": [ready]}}, manager="kwok", subresource="status")
    await until(lambda: fleet.cluster.node("n").ready_since() == now and fleet.is_settled)
    assert (False, False, False) == there()
    for expected in ((True, False, False), (True, True, False), (True, True, True)):
        clock.advance(101)
        await until(lambda expected=expected: expected == there() and fleet.is_settled)


async def test_an_edit_while_the_api_server_is_down(start, api_server, until, directory):
    """The changes are written when the server is back."""
    await start()
    await until(lambda: ["4", "4"] == capacity(api_server, "gpu-0"))
    await api_server.down()
    (directory / "vdev.yaml").write_text(CONFIG.replace("count: 4", "count: 6"))
    await api_server.up()
    await until(lambda: all(["6", "6"] == capacity(api_server, f"gpu-{number}") for number in range(3)))


# --- devices of pods --------------------------------------------------------------------------------------------------

ONE_NODE = """
version: v1
devices:
  - {name: npu, resource: acme.dev/npu, virtual: {count: 4, numa: [0, 0, 1, 1]}}
  - {name: h100, resource: nvidia.com/gpu, virtual: {preset: h100-sxm5-80gb, count: 2}, advertise: [dra]}
fleet: {nodes: [{name: n}]}
"""


async def test_pods_get_devices_as_on_a_kubelet(start, api_server, until):
    """By preferred allocation (one NUMA node), each device once. Devices of an init container are reused."""
    await start(ONE_NODE)
    await until(lambda: ["4", "4"] == capacity(api_server, "n"))
    await add_pod(api_server, "one", 1)
    await until(lambda: devices(api_server, "one"))
    await add_pod(api_server, "two", 2)
    await until(lambda: devices(api_server, "two"))
    assert {"main": ["npu-0"]} == devices(api_server, "one")
    assert {"npu-2", "npu-3"} == set(devices(api_server, "two")["main"])
    await api_server.remove("pods", "two", namespace="default")
    await add_pod(api_server, "three", 2, init=1)
    await until(lambda: devices(api_server, "three"))
    three = devices(api_server, "three")
    assert set(three["before"]) < set(three["main"])
    assert "npu-0" not in three["main"]


async def test_allocations_outlive_the_controller(start, api_server, until):
    """The next controller reads them from the pods, and gives the other devices to new pods."""
    first = await start(ONE_NODE)
    await until(lambda: ["4", "4"] == capacity(api_server, "n"))
    for name, number in (("a", 1), ("b", 2)):
        await add_pod(api_server, name, number)
        await until(lambda name=name: devices(api_server, name))
    before = [devices(api_server, name) for name in "ab"]
    await first.stop()
    await api_server.remove("pods", "a", namespace="default")
    second = await start(ONE_NODE)
    await add_pod(api_server, "c", 2)
    await until(lambda: devices(api_server, "c"))
    assert before[1] == devices(api_server, "b")
    assert not set(before[1]["main"]) & set(devices(api_server, "c")["main"])
    await until(lambda: second.is_settled)


async def test_a_failed_device_shows_in_the_pod_status(start, api_server, until):
    """In the container's `allocatedResourcesStatus`, as a kubelet writes it."""
    rules = "faults: {rules: [{name: sick, devices: [npu/0], at: 300s, for: 60s, health: Unhealthy}]}"
    clock = LeapClock()
    await start(ONE_NODE + rules, clock=clock)
    await until(lambda: ["4", "4"] == capacity(api_server, "n"))
    await add_pod(api_server, "one", 1, statuses=True)

    def told():
        (status,) = api_server.object("pods", "one", "default")["status"]["containerStatuses"]
        return status.get("allocatedResourcesStatus")

    for advanced, health in ((0, "Healthy"), (310, "Unhealthy"), (60, "Healthy")):
        clock.advance(advanced)
        wanted = [{"name": NPU, "resources": [{"resourceID": "npu-0", "health": health}]}]
        await until(lambda wanted=wanted: wanted == told())
    assert {"main": ["npu-0"]} == devices(api_server, "one")


async def test_devices_of_claims_count_as_held(start, api_server, until, directory):
    """A device that leaves the file stays in the pool, with a taint, while it is allocated to a claim."""
    fleet = await start(ONE_NODE)
    await until(lambda: 2 == len(slices(api_server, "n")))
    await add_claim(api_server, "gpu-1")
    await until(lambda: fleet.cluster.claim_uses("n") and fleet.is_settled)
    assert {"capacity": 2, "allocatable": 2, "held": 1} == FleetView(fleet).status()["resources"]["gpu.nvidia.com"]
    (directory / "vdev.yaml").write_text(ONE_NODE.replace("80gb, count: 2", "80gb, count: 1"))
    await until(lambda: taints(api_server))
    assert ["gpu-0", "gpu-1"] == sorted(slices(api_server, "n"))
    await api_server.remove("resourceclaims", "c", namespace="default")
    await until(lambda: ["gpu-0"] == slices(api_server, "n"))


# --- fault injection --------------------------------------------------------------------------------------------------


async def test_fault_commands(start, api_server, until, vdev, directory):
    """`vdev device` with a node, and rules for many nodes, which also apply to nodes that are added later."""
    text = RACKS.replace("[RULE]", "[]")
    await start(text, run=True)
    await until(lambda: 12 == len(found := allocatable(api_server)) and set(found.values()) == {"2"})
    said = await vdev("device", "set", "npu/1", "--health", "Unhealthy")
    assert (2, "vdev: 12 nodes have a device 'npu/1'; say which with --node\n") == said
    said = await vdev("device", "set", "npu/1", "--node", "r1-n1", "--health", "Unhealthy")
    assert (0, "added: device:r1-n1/npu/1\n") == said
    await until(lambda: "1" == allocatable(api_server)["r1-n1"])
    rule = "{name: power, onNodes: {labels: {rack: r3}}, health: Unhealthy, reason: no power}"
    assert (0, "added: power\n") == await vdev("fault", "add", rule)
    await until(lambda: ["0"] * 4 == [amount for name, amount in allocatable(api_server).items() if "r3" in name])
    code, listed = await vdev("fault", "list")
    assert (0, True) == (code, "active on 4 of 4 nodes" in listed)
    (directory / "vdev.yaml").write_text(text.replace("n{1..4}", "n{1..5}"))
    await until(lambda: "0" == allocatable(api_server).get("r3-n5"))
    assert (0, "cleared: power\n") == await vdev("fault", "clear", "power")
    assert (0, "cleared: device:r1-n1/npu/1\n") == await vdev("device", "clear", "npu/1", "--node", "r1-n1")
    await until(lambda: {"2"} == set(allocatable(api_server).values()))
    assert 2 == (await vdev("fault", "trigger", "nothing"))[0]
    assert 2 == (await vdev("device", "set", "npu/9", "--node", "r1-n1", "--health", "Unhealthy"))[0]


# --- metrics and status -----------------------------------------------------------------------------------------------


async def test_the_metrics_are_those_of_the_docs(start, until):
    """Names, types, labels and descriptions are those of docs/metrics.md."""
    fleet = await start()
    await until(lambda: fleet.is_settled and 3 == len(fleet.members))
    async with served(FleetView(fleet).application()) as address:
        text = await asyncio.to_thread(fetched, f"http://{address}/metrics")
    families = {each.name: each for each in text_string_to_metric_families(text)}
    ours = {name: each for name, each in families.items() if name.startswith("vdev_")}
    told = {
        (sample.name, each.type, ", ".join(f"`{label}`" for label in sample.labels) or "-", each.documentation)
        for each in ours.values()
        for sample in each.samples
    }
    page = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text().partition("## Metrics of a fleet")[2]
    rows = {tuple(each.strip() for each in line.strip("|").split("|")) for line in page.splitlines() if "vdev_" in line}
    assert {(f"`{name}`", *rest) for name, *rest in told} == rows
    assert {"process_resident_memory_bytes", "process_cpu_seconds"} <= families.keys()
    found = {(sample.name, *sample.labels.values()): sample.value for each in ours.values() for sample in each.samples}
    assert (3, 12) == (found["vdev_fleet_nodes", "settled"], found["vdev_fleet_devices", "capacity", NPU])
    assert (1, fleet.writes) == (found["vdev_fleet_converged",], found["vdev_fleet_writes_total",])


def fetched(url):
    """The text at a URL."""
    with urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read().decode()


async def test_only_some_nodes_by_selector(start, api_server, until):
    """The controller's selector also applies to the nodes that the file makes."""
    fleet = await start(selector={"topology.kubernetes.io/zone": "zone-1"})
    await until(lambda: ["4", "4"] == capacity(api_server, "gpu-1"))
    await until(lambda: fleet.is_settled)
    assert ({}, {}) == (node(api_server, "gpu-0"), node(api_server, "gpu-2"))


async def test_the_status_shows_progress(start, api_server, until):
    """Nodes by state, numbers of devices, the Nodes that are behind with reasons, and `converged` at the end."""
    await api_server.add("nodes", {"metadata": {"name": "gpu-1"}})
    api_server.fail(status=500, verb="patch", resource="nodes/status", times=100_000)
    sick = "{name: sick, onNodes: gpu-2, devices: [npu/2], health: Unhealthy, reason: XID 79}"
    fleet = await start(f"{CONFIG}faults: {{seed: 3, rules: [{sick}]}}")
    view = FleetView(fleet)
    await until(lambda: 2 == view.status()["nodes"]["failing"])
    now = view.status()
    why = {each["node"]: each["why"] for each in reversed(now["behind"])}  # failures come first
    assert "did not create" in why["gpu-1"]
    assert "500" in why["gpu-0"]
    assert (False, 1, 3) == (now["converged"], now["nodes"]["refused"], now["nodes"]["total"])
    api_server.heal()
    await until(lambda: view.status()["converged"])
    now = view.status()
    assert {"total": 3, "settled": 2, "behind": 0, "failing": 0, "refused": 1, "withKubelet": 0} == now["nodes"]
    assert {"capacity": 8, "allocatable": 7, "held": 0} == now["resources"][NPU]
    assert [("gpu-2", "XID 79")] == [(each["node"], each["why"]) for each in now["broken"]["devices"]]
    assert [] == list(view.not_ready())
