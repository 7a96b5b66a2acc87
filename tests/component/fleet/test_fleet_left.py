"""Nodes that leave the fleet: its fields on them are removed, also if they left while no controller ran."""

import pytest

from tests.kit.fleet import NPU, add_kubelet, add_pod, capacity, devices, node, slices
from vdev.kube.objects import NODES

FLEET = "vdev.dev/fleet"
CHOSEN = """
version: v1
devices:
  - {name: npu, resource: acme.dev/npu, virtual: {count: 4}, conditions: [{type: NpuHealthy}]}
  - {name: h100, resource: nvidia.com/gpu, virtual: {preset: h100-sxm5-80gb, count: 2}, advertise: [dra]}
node: {labels: true, conditions: true}
fleet: {nodes: [{selector: {type: kwok}}]}
"""
OTHERS = CHOSEN.replace("type: kwok", "type: other")
THEIRS = {"status": {"capacity": {"theirs.dev/x": "1"}, "conditions": [{"type": "Theirs", "status": "True"}]}}


@pytest.fixture
async def told(api_server, start, until):
    """A Node with fields of another client, on which a controller wrote everything before it ended."""
    await api_server.add("nodes", {"metadata": {"name": "n", "labels": {"type": "kwok"}}})
    await api_server.edit("nodes", "n", THEIRS, manager="kwok", subresource="status")
    first = await start(CHOSEN)
    await until(lambda: first.is_settled and ["4", "4"] == capacity(api_server, "n") and slices(api_server, "n"))
    await until(lambda: "nvidia.com/gpu.product" in node(api_server, "n")["metadata"]["labels"])
    await first.stop()


def untouched(api_server):
    """Whether the Node has the fields of the other client and none of the fleet."""
    found = node(api_server, "n")
    status = found["status"]
    conditions = [each["type"] for each in status["conditions"]]
    rest = (found["metadata"]["labels"].keys() - {"type"}, found["metadata"].get("annotations") or {})
    nothing = not any(rest) and not slices(api_server, "n") and not status.get("allocatable")
    return nothing and ({"theirs.dev/x": "1"}, ["Theirs"]) == (status["capacity"], conditions)


async def leaves_by_label(api_server):
    """The Node gets another label; the file stays the same."""
    await api_server.edit("nodes", "n", {"metadata": {"labels": {"type": "other"}}}, manager="kubectl")
    return CHOSEN


async def leaves_by_file(api_server):
    """The file selects other Nodes."""
    return OTHERS


@pytest.mark.parametrize("leaves", [leaves_by_label, leaves_by_file])
async def test_a_node_that_left_while_no_controller_ran(leaves, told, api_server, start, until):
    """The next controller removes exactly the fields that the last one wrote, and then writes nothing."""
    fleet = await start(await leaves(api_server))
    await until(lambda: untouched(api_server) and fleet.is_settled)
    writes = api_server.writes
    await api_server.edit("nodes", "n", {"metadata": {"labels": {"a": "b"}}}, manager="kubectl")
    await until(lambda: fleet.cluster.node("n").labels.get("a") and fleet.is_settled)
    assert (writes, {}) == (api_server.writes, fleet.members)


async def test_fields_from_the_creation_of_a_node_stay(api_server, start, until, directory):
    """They have no field manager, so an empty apply would remove them too."""
    born = {"capacity": {"cpu": "32", "pods": "110"}, "allocatable": {"cpu": "31", "pods": "110"}}
    born["conditions"] = [{"type": "Theirs", "status": "True"}]
    await api_server.add("nodes", {"metadata": {"name": "n", "labels": {"type": "kwok"}}, "status": born})
    fleet = await start(CHOSEN)
    await until(lambda: fleet.is_settled and ["4", "4"] == capacity(api_server, "n"))
    assert "NpuHealthy" in str(node(api_server, "n")["status"]["conditions"])
    (directory / "vdev.yaml").write_text(CHOSEN.replace("conditions: true", "conditions: false"))
    await until(lambda: fleet.is_settled and "NpuHealthy" not in str(node(api_server, "n")["status"]["conditions"]))
    assert ["Theirs"] == [each["type"] for each in node(api_server, "n")["status"]["conditions"]]
    await fleet.stop()
    last = await start(OTHERS)
    await until(lambda: last.is_settled and not node(api_server, "n")["metadata"].get("annotations"))
    status = node(api_server, "n")["status"]
    assert born == {name: status.get(name) for name in born}
    fields = str(node(api_server, "n")["metadata"]["managedFields"])
    assert not [each for each in (FLEET, NPU, "NpuHealthy") if each in fields]


async def test_an_agent_without_a_kubelet_keeps_its_node(api_server, start, until, start_api):
    """It writes with the same field manager, but only Nodes with the fleet's annotation belong to a fleet."""
    await api_server.add("nodes", {"metadata": {"name": "n", "labels": {"type": "other"}}})
    status = {"status": {"capacity": {NPU: "4"}, "allocatable": {NPU: "4"}}}
    agent = await start_api()
    await agent.apply(NODES, "n", status, subresource="status")
    fleet = await start(CHOSEN)
    await until(lambda: fleet.has_begun and fleet.is_settled)
    assert ["4", "4"] == capacity(api_server, "n")


async def test_held_devices_stay_until_they_are_free(told, api_server, start, until):
    """A running pod keeps its devices if its node left while no controller ran."""
    first = await start(CHOSEN)
    await add_pod(api_server, "p", 2)
    await until(lambda: devices(api_server, "p"))
    await first.stop()
    fleet = await start(await leaves_by_label(api_server))
    await until(lambda: fleet.has_begun and fleet.is_settled)
    assert ["4", "4"] == capacity(api_server, "n")
    await api_server.remove("pods", "p", namespace="default")
    await until(lambda: untouched(api_server))


async def test_a_kubelet_ends_the_membership(told, api_server, start, until):
    """The fleet's annotation is removed, and the other fields stay, because they belong to the agent there."""
    await add_kubelet(api_server, "n", capacity={NPU: "0"})
    fleet = await start(CHOSEN)
    await until(lambda: FLEET not in (node(api_server, "n")["metadata"].get("annotations") or {}))
    await until(lambda: fleet.is_settled)
    assert ["0", "0"] == capacity(api_server, "n")


async def test_pods_keep_devices_of_a_leaving_node(told, api_server, start, until):
    """A held device stays in the capacity, and is not allocatable, until its pod is gone. A fault rule for the node
    does not keep it in the fleet.
    """
    faults = "faults: {rules: [{name: hot, every: 1s, onNodes: n, event: {reason: Hot, message: hot}}]}"
    await start(CHOSEN + faults)
    await add_pod(api_server, "p", 1)
    await until(lambda: devices(api_server, "p"))
    await leaves_by_label(api_server)
    await until(lambda: ["1", "0"] == capacity(api_server, "n") and not slices(api_server, "n"))
    assert {"main": ["npu-0"]} == devices(api_server, "p")
    await api_server.remove("pods", "p", namespace="default")
    await until(lambda: untouched(api_server))


async def test_nodes_outside_of_the_selector_are_not_touched(told, api_server, start, until):
    """A controller with a selector removes nothing from other nodes, no matter when they left the selection."""
    await api_server.edit("nodes", "n", {"metadata": {"labels": {"pool": "a"}}}, manager="kubectl")
    fleet = await start(OTHERS, selector={"pool": "b"})
    await until(lambda: fleet.has_begun and fleet.is_settled)
    assert ["4", "4"] == capacity(api_server, "n")
    await fleet.stop()
    fleet = await start(CHOSEN, selector={"pool": "a"})
    await until(lambda: "n" in fleet.members and fleet.is_settled)
    await api_server.edit("nodes", "n", {"metadata": {"labels": {"pool": "b"}}}, manager="kubectl")
    await until(lambda: not fleet.members and fleet.is_settled)
    assert ["4", "4"] == capacity(api_server, "n")
