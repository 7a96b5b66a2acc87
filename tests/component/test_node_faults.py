"""Faults that show on the Node, and faults of the API server."""

import pytest

from tests.kit.rules import with_rules
from vdev.agent import status
from vdev.sim import Phase, manifest

GPU = "nvidia.com/gpu"
HEAD = """
version: v1
node: {events: true, conditions: true}
devices:
  - name: a100
    resource: nvidia.com/gpu
    virtual: {preset: a100-sxm4-40gb, count: 4}
    conditions: [{type: GpuHealthy}, {type: GpuXid, trueWhen: unhealthy}]
"""
FALLEN = "Xid 79: GPU has fallen off the bus"


def config(*rules, head=HEAD):
    return with_rules(head, *rules)


@pytest.fixture
def conditions(api_server, node):
    def by_type():
        found = api_server.object("nodes", "node-1").get("status", {}).get("conditions", ())
        return {each["type"]: (each["status"], each["reason"], each["message"]) for each in found}

    return by_type


async def do(agent, command, **request):
    """Add a rule to the agent."""
    return await agent.agent.faults.store.commands[f"fault-{command}"](request)


def gpu(agent, index):
    return agent.agent.reconciler.advertised.resources[GPU].slots[index].id


async def test_an_xid(start_agent, account, api_server, events, conditions, shows, kubelet):
    """A rule changes list, Event and condition at once, and all of it ends with the rule."""
    rule = "name: dead, devices: [a100/3], xid: 79, manual: true, for: 30s"
    agent = await start_agent(config(rule), api_server=account, fault_injection=True)
    await api_server.until(lambda: conditions().get("GpuHealthy", [""])[0] == "True")
    dead = gpu(agent, 3)
    await do(agent, "trigger", name="dead")
    await shows(GPU, 4, 3)
    await agent.calls_unhealthy(kubelet, GPU, dead, FALLEN)
    await api_server.until(lambda: conditions()["GpuHealthy"][0] == "False")
    assert ("False", "DeviceUnhealthy", f"a100: {dead}: {FALLEN}") == conditions()["GpuHealthy"]
    assert "True" == conditions()["GpuXid"][0]
    await api_server.until(lambda: {"NvidiaXID79Error", "DeviceUnhealthy"} <= events().keys())
    found = events()["NvidiaXID79Error"]
    assert ("Warning", f"{GPU}: {dead}: {FALLEN} (fault rule 'dead')") == (found["type"], found["message"])
    devices = {each["id"]: each for each in status.status(agent.agent)["resources"][0]["devices"]}
    assert ([79], "dead", FALLEN) == tuple(devices[dead][key] for key in ("xids", "injected", "reason"))
    agent.clock.advance(30)
    await shows(GPU, 4, 4)
    await api_server.until(lambda: conditions()["GpuHealthy"][0] == "True")
    await api_server.until(lambda: "DeviceHealthy" in events())
    assert "False" == conditions()["GpuXid"][0]


async def test_an_xid_of_all_replicas_is_one_event(start_agent, account, api_server, events, shows):
    """The Event names the device, not its replicas."""
    sharing = f"sharing: {{timeSlicing: {{resources: [{{name: {GPU}, replicas: 3}}]}}}}\n"
    agent = await start_agent(config("name: x, devices: [a100/1], xid: 48") + sharing, api_server=account)
    await shows(GPU, 12, 9)
    await api_server.until(lambda: "NvidiaXID48Error" in events())
    device = agent.agent.reconciler.advertised.resources[GPU].slots[3].device.id
    message = f"{GPU}: {device}: Xid 48: Double Bit ECC Error (fault rule 'x')"
    assert message == events()["NvidiaXID48Error"]["message"]


async def test_a_condition_comes_and_goes(start_agent, account, api_server, conditions):
    """It overrides the condition of an entry, or has its own type."""
    rules = (
        "name: ill, manual: true, for: 30s, condition: {type: GpuHealthy, status: false, reason: Ill, message: ill}",
        "name: odd, manual: true, for: 30s, condition: {type: NvlinkDegraded, status: true}",
    )
    agent = await start_agent(config(*rules), api_server=account, fault_injection=True)
    await api_server.until(lambda: "GpuHealthy" in conditions())
    before = conditions()
    for name in ("ill", "odd"):
        await do(agent, "trigger", name=name)
    await api_server.until(lambda: "NvlinkDegraded" in conditions() and conditions()["GpuHealthy"][0] == "False")
    assert ("False", "Ill", "ill") == conditions()["GpuHealthy"]
    assert ("True", "Drill", "the fault rule 'odd' says so") == conditions()["NvlinkDegraded"]
    agent.clock.advance(30)
    await api_server.until(lambda: before == conditions())


async def test_the_api_server_fails(start_agent, account, api_server, node, conditions, kubelet, shows):
    """The device plugin goes on, the status has the problem, and the writes follow after the fault."""
    rule = "name: away, manual: true, api: {status: 429, retryAfter: 60s}"
    agent = await start_agent(config(rule), api_server=account, fault_injection=True)
    await api_server.until(lambda: conditions().get("GpuHealthy", [""])[0] == "True")
    await do(agent, "trigger", name="away")
    await kubelet.wait_until(lambda: "away" in agent.agent.faults.active_rules)
    await do(agent, "add", rules="{name: sick, devices: [a100/0], health: Unhealthy, reason: sick}")
    await shows(GPU, 4, 3)
    assert Phase.RUNNING is (await kubelet.run_pod(manifest("p", {GPU: 1}))).phase
    await api_server.until(lambda: any("asks to wait 60 s" in str(each) for each in agent.agent.reconciler.problems))
    assert any("injected by the fault rule 'away'" in str(each) for each in agent.agent.reconciler.problems)
    assert "True" == conditions()["GpuHealthy"][0]
    await do(agent, "clear", name="away")
    await api_server.until(lambda: conditions()["GpuHealthy"][0] == "False")
    await api_server.until(lambda: not any("away" in str(each) for each in agent.agent.reconciler.problems))
