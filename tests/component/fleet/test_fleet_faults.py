"""Failures in a fleet: which rules mean something there, on which nodes, and since when; however late the server."""

import asyncio
import json

import pytest
import structlog

from tests.kit.fleet import RACKS, add_pod, allocatable, capacity, devices, node, taints
from vdev.aio.clock import LeapClock
from vdev.fleet.view import FleetView
from vdev.kube import NODES

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


# --- which rules mean anything ----------------------------------------------------------------------------------------

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


async def test_rules_that_mean_nothing_are_said_once(start, until, vdev):
    """At the start, in the log and in the status; and to who adds one while it runs, which is refused."""
    rules = ", ".join(f"{{name: void-{number}, {rule}}}" for number, rule in enumerate(VOID))
    with structlog.testing.capture_logs() as logs:
        fleet = await start(GPUS.replace("RULE", rules), run=True)
        await until(lambda: fleet.is_settled and 4 == len(fleet.members))
    said = [each["reason"] for each in logs if each["event"] == "means nothing in a fleet"]
    warnings = str(FleetView(fleet).status()["configuration"]["warnings"])
    for number, (rule, reason) in enumerate(VOID.items()):
        sentence = f"the fault rule 'void-{number}' does nothing in a fleet: {'it ' * ('File' in rule)}{reason}"
        assert 1 == len([each for each in said if sentence in each]), (sentence, said)
        assert 1 == warnings.count(sentence), warnings
        code, printed = await vdev("fault", "add", f"{{name: more, {rule}}}")
        assert (2, True) == (code, reason in printed), printed
    assert "does nothing in a fleet" in (await vdev("fault", "list"))[1]


@pytest.mark.parametrize(
    ("rule", "shown"),
    [
        ("devices: [npu/1], flap: {up: 1s, down: 100000s}", lambda server: ["2", "1"] == capacity(server, "h1")),
        ("devices: [npu/1], remove: true", lambda server: ["1", "1"] == capacity(server, "h1")),
        ("at: 1s, devices: [h100/1], xid: 79", lambda server: "NvidiaXID79Error" in reasons(server)),
        ("at: 1s, every: 1s, event: {reason: GpuHot, message: hot}", lambda server: "GpuHot" in reasons(server)),
        (
            "at: 1s, condition: {type: GpuBad, status: true, reason: X}",
            lambda server: "GpuBad" in str(node(server, "h1").get("status")),
        ),
        ("at: 1s, slices: {incomplete: true}", lambda server: incomplete(server, "h1")),
        ("devices: [h100/0], taint: {key: example.com/x}", lambda server: "example.com/x" in str(taints(server))),
    ],
)
async def test_rules_that_mean_something(rule, shown, start, api_server, until):
    """Each kind of the file that is about devices, the Node or its slices, as on a node with a kubelet."""
    clock = LeapClock()
    fleet = await start(GPUS.replace("RULE", f"{{name: it, onNodes: h1, {rule}}}"), clock=clock)
    await until(lambda: all_there(api_server, ("h2", "p1", "p2")) and fleet.is_settled)
    clock.advance(2)
    await until(lambda: shown(api_server))
    assert () == fleet.warnings


def reasons(api_server):
    """Of all Events."""
    return [each["reason"] for each in api_server.all("events", "default")]


def incomplete(api_server, name):
    """Whether the pool of a node says that it has more slices than there are."""
    found = [each["spec"] for each in api_server.all("resourceslices") if each["spec"].get("nodeName") == name]
    return found and len(found) < found[0]["pool"]["resourceSliceCount"]


async def test_the_server_fails_for_some_nodes(start, api_server, until):
    """What is told of them waits until the rule is over; the status names it, and the others go on."""
    away = "{name: away, onNodes: h1, at: 300s, for: 60s, api: {status: 500, resources: nodes/status}}"
    sick = "{name: sick, at: 310s, devices: [npu/1], health: Unhealthy}"
    clock = LeapClock()
    fleet = await start(GPUS.replace("RULE", f"{away}, {sick}"), clock=clock)
    await until(lambda: all_there(api_server) and fleet.is_settled)
    clock.advance(305)
    await until(lambda: "away" in str(fleet.members["h1"].engine.afflictions) or active(fleet, "h1", "away"))
    clock.advance(10)
    await until(lambda: all(["2", "1"] == capacity(api_server, each) for each in ("h2", "p1", "p2")))
    await until(lambda: "the fault rule 'away' says so" in str(FleetView(fleet).status()["behind"]))
    assert ["2", "2"] == capacity(api_server, "h1")
    clock.advance(60)
    await until(lambda: ["2", "1"] == capacity(api_server, "h1"))
    await until(lambda: fleet.is_settled)


def active(fleet, name, rule):
    """Whether a rule is in force on a node."""
    return fleet.members[name].engine.runs[rule].active


async def test_a_pod_sets_off_what_waits_for_it(start, api_server, until, directory):
    """The device that it is given fails; what it has already when a controller starts is no news."""
    text = GPUS.replace("RULE", "{name: infant, devices: [npu], onAllocate: true, for: 60s, health: Unhealthy}")
    clock = LeapClock()
    fleet = await start(text, clock=clock)
    await until(lambda: all_there(api_server))
    await add_pod(api_server, "p", 1, node="p1")
    await until(lambda: ["2", "1"] == capacity(api_server, "p1"))
    assert {"main": ["npu-0"]} == devices(api_server, "p")
    clock.advance(61)
    await until(lambda: all_there(api_server) and fleet.is_settled)
    await fleet.stop()
    again = await start(text, clock=clock)
    await until(lambda: 4 == len(again.members) and again.is_settled)
    assert all_there(api_server)


# --- on which nodes ---------------------------------------------------------------------------------------------------


async def test_labels_that_come_later(start, api_server, until):
    """A rule for a rack is for what is in that rack now."""
    await api_server.add("nodes", {"metadata": {"name": "k", "labels": {"type": "kwok"}}})
    await start(GPUS.replace("RULE", "{name: rack, onNodes: {labels: {rack: r1}}, devices: [npu], health: Unhealthy}"))
    await until(lambda: all_there(api_server, ("k", "h1")))
    await api_server.edit("nodes", "k", {"metadata": {"labels": {"rack": "r1"}}}, manager="kubectl")
    await until(lambda: ["2", "0"] == capacity(api_server, "k"))
    await api_server.edit("nodes", "k", {"metadata": {"labels": {"rack": None}}}, manager="kubectl")
    await until(lambda: all_there(api_server, ("k", "h1")))


async def test_a_typed_rule_knows_the_labels(start, api_server, until, vdev):
    """Those of the devices as well, in the moment in which it is typed: what happens only once happens."""
    fleet = await start(GPUS.replace("[RULE]", "[]"), run=True)
    await until(lambda: all_there(api_server) and fleet.is_settled)
    product = "{labels: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}}"
    said = await vdev("fault", "add", f"{{name: hot, onNodes: {product}, event: {{reason: GpuHot, message: hot}}}}")
    assert (0, "added: hot\n") == said
    await until(lambda: 2 == len(reasons(api_server)))
    assert {"h1", "h2"} == {each["involvedObject"]["name"] for each in api_server.all("events", "default")}


async def test_labels_of_the_devices(start, api_server, until):
    """What the preset says of the model chooses nodes, from the first moment on."""
    product = "{labels: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}}"
    hot = f"{{name: hot, onNodes: {product}, event: {{reason: GpuHot, message: hot}}}}"
    await start(GPUS.replace("RULE", f"{{name: h, onNodes: {product}, devices: [npu/1], health: Unhealthy}}, {hot}"))
    await until(lambda: [["2", "1"], ["2", "1"]] == [capacity(api_server, each) for each in ("h1", "h2")])
    await until(lambda: 2 == len([each for each in reasons(api_server) if each == "GpuHot"]))
    assert all_there(api_server, ("p1", "p2"))


# --- since when -------------------------------------------------------------------------------------------------------

WEAR = (
    "{name: wear, devices: {entry: npu, pick: 1}, every: 1h, for: 30m, probability: 30%, health: Unhealthy}, "
    "{name: hot, every: 1h, jitter: 20%, onNodes: {share: 50%}, event: {reason: GpuHot, message: hot}}"
)


async def test_the_timing_of_the_server_makes_no_difference(start, api_server, until):
    """One answers at once; the other not for ten minutes, and then late, each time in another order."""
    seen = []
    for is_slow in (False, True):
        slow = Slow(api_server) if is_slow else None
        clock = LeapClock()
        begun = clock.now()
        text = RACKS.replace("RULE", WEAR).replace("fleet:", "node: {events: true}\nfleet:")
        fleet = await start(text, clock=clock)
        if slow:
            await until(lambda slow=slow: slow.waiting)
            clock.advance(600)
            slow.gate.set()
        await until(lambda: 12 == len(found := allocatable(api_server)) and None not in found.values())
        history = []
        for number in range(8):  # at the same moments in both
            clock.advance(begun + 1000 + 1800 * number - clock.now())
            await until(lambda fleet=fleet: fleet.is_settled)
            history.append((allocatable(api_server), hot(fleet)))
        seen.append(history)
        await fleet.stop()
        if slow:
            slow.end()
        for each in list(api_server.all("nodes")):
            await api_server.remove("nodes", each["metadata"]["name"])
    assert seen[0] == seen[1]
    assert 3 < len({str(devices) for devices, _ in seen[0]})
    assert 15 < seen[0][-1][1]


class Slow:
    """Lets each request to the server wait for the gate, and then for others, each for another number of them."""

    def __init__(self, server):
        self._server, self._admit, self._number = server, server.admit, 0
        self.gate, self.waiting = asyncio.Event(), 0
        server.admit = self.admit

    async def admit(self, request):
        """As the server does, but late."""
        self._number += 1
        self.waiting += 1
        await self.gate.wait()
        for _ in range(self._number * 7 % 23):
            await asyncio.sleep(0)
        await self._admit(request)

    def end(self):
        """It is as fast as before."""
        del self._server.admit


def hot(fleet):
    """How often it was said of nodes that they are hot."""
    (rule,) = [each for each in fleet.faults.status()["rules"] if each["name"] == "hot"]
    return rule["injected"]


async def test_an_edited_rule_begins_with_the_edit(start, api_server, until, directory):
    """On all nodes, also on those that come later; one that did not change goes on."""
    clock = LeapClock()
    old = "{name: old, devices: [npu/0], at: 100s, for: 7200s, health: Unhealthy}"
    new = "{name: new, devices: [npu/1], at: 600s, for: 600s, health: Unhealthy}"
    fleet = await start(GPUS.replace("RULE", old), clock=clock)
    await until(lambda: all_there(api_server) and fleet.is_settled)
    clock.advance(3600)
    await until(lambda: ["2", "1"] == capacity(api_server, "h1"))
    (directory / "vdev.yaml").write_text(GPUS.replace("RULE", f"{old}, {new}"))
    await until(lambda: "new" in fleet.members["h1"].engine.runs)
    clock.advance(500)
    (directory / "vdev.yaml").write_text(GPUS.replace("RULE", f"{old}, {new}").replace("p{1..2}", "p{1..3}"))
    await until(lambda: ["2", "1"] == capacity(api_server, "p3"))
    clock.advance(110)
    await until(lambda: all(["2", "0"] == capacity(api_server, each) for each in ("h1", "p1", "p3")))
    clock.advance(600)
    await until(lambda: all(["2", "1"] == capacity(api_server, each) for each in ("h1", "p1", "p3")))


# --- people -----------------------------------------------------------------------------------------------------------


async def test_what_people_cannot_add(start, until, vdev):
    """A name of the configuration, and a device of no node; afterwards all is as before."""
    sick = "{name: sick, devices: [npu/0], health: Unhealthy}"
    fleet = await start(GPUS.replace("RULE", sick), run=True)
    await until(lambda: fleet.is_settled and 4 == len(fleet.members))
    code, printed = await vdev("fault", "add", "{name: sick, devices: [npu/1], health: Unhealthy}")
    assert (2, True) == (code, "the rule 'sick' exists already, from configuration" in printed), printed
    assert (0, "added: other\n") == await vdev("fault", "add", "{name: other, devices: [npu/1], health: Unhealthy}")
    code, listed = await vdev("fault", "list", "--output", "json")
    assert {"sick", "other"} == {each["name"] for each in json.loads(listed)["rules"]}
    code, printed = await vdev("status")
    assert (2, True) == (code, "this process is the controller of a fleet; its page" in printed), printed
    code, printed = await vdev("device", "set", "npu/1", "--node", "h9", "--health", "Unhealthy")
    assert (2, "vdev: there is no node 'h9' here\n") == (code, printed)


@pytest.mark.parametrize("name", ["ip-192-168-120-134.us-west-2.compute.internal", f"n{'.n1234567' * 6}"])
async def test_a_device_of_a_node_with_a_long_name(start, api_server, until, vdev, name):
    """Clouds give their nodes long names, and the rule by which a device is set has both."""
    text = GPUS.replace("RULE", "").replace(', advertise: [dra], onNodes: "h*"', "").replace('"h{1..2}"', name)
    fleet = await start(text, run=True)
    await until(lambda: fleet.is_settled and 3 == len(fleet.members))
    code, printed = await vdev("device", "set", "h100/1", "--node", name, "--health", "Unhealthy")
    assert 0 == code, printed
    await until(lambda: "1" == api_server.object("nodes", name)["status"]["allocatable"]["nvidia.com/gpu"])
    assert 0 == (await vdev("device", "clear", "h100/1", "--node", name))[0]
    await until(lambda: "2" == api_server.object("nodes", name)["status"]["allocatable"]["nvidia.com/gpu"])


async def test_typed_rules_on_nodes_that_come_later(start, api_server, until, vdev, directory):
    """Each began when it was typed, and what was cleared stays so."""
    clock = LeapClock()
    text = GPUS.replace("RULE", "{name: sick, devices: [npu/0], health: Unhealthy}")
    fleet = await start(text, run=True, clock=clock)
    await until(lambda: 4 == len(fleet.members) and ["2", "1"] == capacity(api_server, "p1"))
    await vdev("fault", "add", "{name: one, devices: [npu/1], for: 600s, health: Unhealthy}")
    await vdev("fault", "clear", "sick")
    await until(lambda: ["2", "1"] == capacity(api_server, "p1"))
    clock.advance(500)
    await vdev("fault", "add", "{name: two, devices: [npu/0], at: 3600s, health: Unhealthy}")
    (directory / "vdev.yaml").write_text(text.replace("p{1..2}", "p{1..3}"))
    await until(lambda: ["2", "1"] == capacity(api_server, "p3"))
    clock.advance(110)
    await until(lambda: all(["2", "2"] == capacity(api_server, each) for each in ("h1", "p1", "p3")))


async def test_the_configuration_takes_a_name(start, api_server, until, vdev, directory):
    """The live rule of that name gives way, and people may go on adding others."""
    fleet = await start(GPUS.replace("[RULE]", "[]"), run=True)
    await until(lambda: all_there(api_server) and 4 == len(fleet.members))
    await vdev("fault", "add", "{name: one, devices: [npu/1], health: Unhealthy}")
    await until(lambda: ["2", "1"] == capacity(api_server, "p1"))
    text = GPUS.replace("RULE", "{name: one, devices: [npu], health: Unhealthy}").replace("p{1..2}", "p{1..3}")
    (directory / "vdev.yaml").write_text(text)
    await until(lambda: all(["2", "0"] == capacity(api_server, each) for each in ("p1", "p3")))
    two = "{name: two, onNodes: h1, condition: {type: X, status: true}}"
    assert (0, "added: two\n") == await vdev("fault", "add", two)


async def test_an_agent_of_the_same_server_is_not_concerned(start_api, api_server):
    """A hook of one use of the client does not reach the others."""
    api = await start_api()
    await api_server.add("nodes", {"metadata": {"name": "n"}})
    asked = []
    await api.with_fault(asked.append).get(NODES, "n")
    await api.get(NODES, "n")
    assert 1 == len(asked)
