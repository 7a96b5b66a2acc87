"""Fault rules in a fleet: which rules have an effect there, and on which nodes."""

import structlog

from tests.kit.fleet import add_pod, capacity, devices, node, taints
from vdev.aio.clock import LeapClock
from vdev.fleet.view import FleetView

GPUS = """
version: v1
devices:
  - {name: npu, resource: acme.dev/npu, virtual: {count: 2}}
  - {name: h100, resource: nvidia.com/gpu, virtual: {preset: h100-sxm5-80gb, count: 2}, advertise: [dra], onNodes: "h*"}
node: {labels: true, events: true, conditions: true}
fleet: {nodes: [{name: "h{1..2}"}, {name: "p{1..2}"}, {selector: {type: kwok}}]}
faults: {seed: 7, rules: [RULE]}
"""


def all_there(api_server, names=("h1", "h2", "p1", "p2")):
    """Whether the nodes have all of their devices."""
    return all(["2", "2"] == capacity(api_server, each) for each in names)


# --- rules with and without an effect ---------------------------------------------------------------------------------

VOID = {
    "rpc: Allocate, hang: true, for: 1m": "no kubelet, plugin or container runs there",
    "rpc: NodePrepareResources, hang: true, for: 1m": "no kubelet, plugin or container runs there",
    "register: {never: true}": "no kubelet, plugin or container runs there",
    "stream: {close: true}, at: 1m": "no kubelet, plugin or container runs there",
    "socket: {delete: true}, at: 1m": "no kubelet, plugin or container runs there",
    "cdi: {missing: true}": "no kubelet, plugin or container runs there",
    "podResources: {unavailable: true}": "no kubelet, plugin or container runs there",
    "process: {exit: 1}, at: 1m": "no kubelet, plugin or container runs there",
    "healthStream: {silent: true}": "no kubelet, plugin or container runs there",
    "onFile: /tmp/x, health: Unhealthy": "waits for a file of its node",
    "api: {watch: broken}": "one controller reads for all nodes",
    "api: {status: 500, verbs: [list, get]}": "one controller reads for all nodes",
}


async def test_rules_without_effect_are_reported_once(start, until, vdev):
    """At the start, in the log and in the status. `vdev fault add` refuses them."""
    rules = ", ".join(f"{{name: void-{number}, {rule}}}" for number, rule in enumerate(VOID))
    with structlog.testing.capture_logs() as logs:
        fleet = await start(GPUS.replace("RULE", rules), run=True)
        await until(lambda: fleet.is_settled and 4 == len(fleet.members))
    said = [each["reason"] for each in logs if each["event"] == "a setting has no effect in a fleet"]
    warnings = str(FleetView(fleet).status()["configuration"]["warnings"])
    for number, (rule, reason) in enumerate(VOID.items()):
        sentence = f"the fault rule 'void-{number}' does nothing in a fleet: {'it ' * ('File' in rule)}{reason}"
        assert 1 == len([each for each in said if sentence in each]), (sentence, said)
        assert 1 == warnings.count(sentence), warnings
        code, printed = await vdev("fault", "add", f"{{name: more, {rule}}}")
        assert (2, True) == (code, reason in printed), printed
    assert "does nothing in a fleet" in (await vdev("fault", "list"))[1]


MEANT = {
    "onNodes: h1, devices: [npu/1], flap: {up: 1s, down: 100000s}": lambda server: ["2", "1"] == capacity(server, "h1"),
    "onNodes: h2, devices: [npu/1], remove: true": lambda server: ["1", "1"] == capacity(server, "h2"),
    "onNodes: h1, at: 1s, devices: [h100/1], xid: 79": lambda server: "NvidiaXID79Error" in reasons(server),
    "onNodes: h1, at: 1s, every: 1s, event: {reason: GpuHot, message: hot}": lambda server: "GpuHot" in reasons(server),
    "onNodes: h1, at: 1s, condition: {type: GpuBad, status: true, reason: X}": lambda server: (
        "GpuBad" in str(node(server, "h1").get("status"))
    ),
    "onNodes: h2, at: 1s, slices: {incomplete: true}": lambda server: incomplete(server, "h2"),
    "onNodes: h1, devices: [h100/0], taint: {key: example.com/x}": lambda server: (
        "example.com/x" in str(taints(server))
    ),
}


async def test_rules_with_an_effect(start, api_server, until):
    """Each kind of rule about devices, the Node or its slices works as on a node with a kubelet."""
    clock = LeapClock()
    rules = ", ".join(f"{{name: rule-{number}, {rule}}}" for number, rule in enumerate(MEANT))
    fleet = await start(GPUS.replace("RULE", rules), clock=clock)
    await until(lambda: all_there(api_server, ("p1", "p2")) and fleet.is_settled)
    clock.advance(2)
    for shown in MEANT.values():
        await until(lambda shown=shown: shown(api_server))
    assert () == fleet.warnings


def reasons(api_server):
    """The reasons of all Events."""
    return [each["reason"] for each in api_server.all("events", "default")]


def incomplete(api_server, name):
    """Whether the node's pool announces more slices than exist."""
    found = [each["spec"] for each in api_server.all("resourceslices") if each["spec"].get("nodeName") == name]
    return found and len(found) < found[0]["pool"]["resourceSliceCount"]


async def test_requests_fail_for_one_node(start, api_server, until):
    """Its writes wait until the rule ends, and the status names the rule. Other nodes are not affected."""
    away = "{name: away, onNodes: h1, at: 300s, for: 60s, api: {status: 500, resources: nodes/status}}"
    sick = "{name: sick, at: 310s, devices: [npu/1], health: Unhealthy}"
    clock = LeapClock()
    fleet = await start(GPUS.replace("RULE", f"{away}, {sick}"), clock=clock)
    await until(lambda: all_there(api_server) and fleet.is_settled)
    clock.advance(305)
    await until(lambda: "away" in str(fleet.members["h1"].engine.active_faults) or active(fleet, "h1", "away"))
    clock.advance(10)
    await until(lambda: all(["2", "1"] == capacity(api_server, each) for each in ("h2", "p1", "p2")))
    await until(lambda: "injected by the fault rule 'away'" in str(FleetView(fleet).status()["behind"]))
    assert ["2", "2"] == capacity(api_server, "h1")
    clock.advance(60)
    await until(lambda: ["2", "1"] == capacity(api_server, "h1"))
    await until(lambda: fleet.is_settled)


def active(fleet, name, rule):
    """Whether a rule is in force on a node."""
    return fleet.members[name].engine.runs[rule].active


async def test_an_allocation_triggers_a_rule(start, api_server, until, directory):
    """The allocated device fails. Allocations from before the controller's start do not trigger the rule."""
    text = GPUS.replace("RULE", "{name: infant, devices: [npu], onAllocate: true, for: 60s, health: Unhealthy}")
    clock = LeapClock()
    fleet = await start(text, clock=clock)
    await until(lambda: all_there(api_server))
    await add_pod(api_server, "p", 1, node="p1")
    await until(lambda: ["2", "1"] == capacity(api_server, "p1"))
    await until(lambda: {"main": ["npu-0"]} == devices(api_server, "p"))
    clock.advance(61)
    await until(lambda: all_there(api_server) and fleet.is_settled)
    await fleet.stop()
    again = await start(text, clock=clock)
    await until(lambda: 4 == len(again.members) and again.is_settled)
    assert all_there(api_server)


# --- on which nodes ---------------------------------------------------------------------------------------------------


async def test_a_rule_selects_nodes_by_device_labels(start, api_server, until):
    """The product label that comes from the preset selects nodes from the start on."""
    product = "{labels: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}}"
    hot = f"{{name: hot, onNodes: {product}, event: {{reason: GpuHot, message: hot}}}}"
    await start(GPUS.replace("RULE", f"{{name: h, onNodes: {product}, devices: [npu/1], health: Unhealthy}}, {hot}"))
    await until(lambda: [["2", "1"], ["2", "1"]] == [capacity(api_server, each) for each in ("h1", "h2")])
    await until(lambda: 2 == len([each for each in reasons(api_server) if each == "GpuHot"]))
    await until(lambda: all_there(api_server, ("p1", "p2")))
