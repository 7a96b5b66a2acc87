"""Each switch under `node` needs exactly the permissions that its component in deploy/ gives."""

import pytest

from tests.kit.manifests import permissions_of

CONFIG = """
version: v1
node: {NODE}
devices:
  - name: npu
    resource: acme.dev/npu
    virtual: {count: 2}
    labels: {acme.dev/tier: gold}
    conditions: [{type: NpuHealthy}]
"""


def has_label(_server, node):
    """Whether the node has the label of the entry."""
    return "gold" == node["metadata"]["labels"].get("acme.dev/tier")


def has_condition(_server, node):
    """Whether the node has the condition of the entry."""
    return "NpuHealthy" in {each["type"] for each in node["status"]["conditions"]}


def has_resource(_server, node):
    """Whether the node's status has the resource."""
    return "2" == node["status"]["capacity"].get("acme.dev/npu")


def has_event(server, _node):
    """Whether there is an Event."""
    return bool(server.all("events", "default"))


@pytest.mark.parametrize(
    ("component", "switch", "done"),
    [
        ("node-labels", "labels", has_label),
        ("node-status", "conditions", has_condition),
        ("node-status", "status", has_resource),
        ("node-events", "events", has_event),
    ],
)
async def test_the_permissions_of_a_component_are_enough(component, switch, done, start_agent, account, api_server):
    """No other permission is needed."""
    status = {"capacity": {"cpu": "1"}, "conditions": [{"type": "Ready", "status": "True"}]}
    document = {"metadata": {"name": "node-1", "labels": {"kubernetes.io/os": "linux"}}}
    await api_server.add("nodes", document, manager="kubelet", status=status)
    api_server.permissions = permissions_of(component)
    agent = await start_agent(CONFIG.replace("NODE", f"{switch}: true"), api_server=account, wait=False)
    await api_server.until(lambda: done(api_server, api_server.object("nodes", "node-1")))
    assert [] == [each for each in agent.agent.reconciler.problems if each.is_error]


@pytest.mark.parametrize("switch", ["labels", "events", "conditions"])
async def test_a_missing_permission_is_one_problem(switch, start_agent, account, api_server, shows):
    """There is one problem until the permission is granted, and the device plugin serves."""
    await api_server.add("nodes", {"metadata": {"name": "node-1"}}, manager="kubelet")
    api_server.permissions = {"list nodes", "watch nodes"}
    agent = await start_agent(
        CONFIG.replace("NODE", f"{switch}: true"),
        api_server=account,
        wait=False,
        retry_step_first=50,
        retry_step_most=50,
    )
    await shows("acme.dev/npu", 2, 2)
    await api_server.until(lambda: any("may not" in str(each) for each in agent.agent.reconciler.problems))
    refused = api_server.writes
    for _ in range(10):
        agent.agent.pending.add()
        await agent.agent.pending.is_done.wait()
        assert any("may not" in str(each) for each in agent.agent.reconciler.problems)
    assert refused == api_server.writes
    assert [] == [each for each in agent.logs if each["event"] == "step succeeds again"]
    api_server.permissions = None
    agent.clock.advance(60.0)
    await api_server.until(lambda: not any("may not" in str(each) for each in agent.agent.reconciler.problems))
    assert 2 <= api_server.changes


@pytest.mark.parametrize("switch", ["labels", "events"])
async def test_a_granted_permission_is_used_at_once(switch, start_agent, account, api_server):
    """The write follows as soon as the Node can be read, even during a long pause between attempts."""
    await api_server.add("nodes", {"metadata": {"name": "node-1"}}, manager="kubelet")
    api_server.permissions = set()
    agent = await start_agent(
        CONFIG.replace("NODE", f"{switch}: true"),
        api_server=account,
        wait=False,
        retry_step_first=1e6,
        retry_step_most=1e6,
    )
    await api_server.until(lambda: any("may not list nodes" in str(each) for each in agent.agent.reconciler.problems))
    assert 1 == api_server.changes
    api_server.permissions = None
    await api_server.until(lambda: api_server.changes > 1)
    await api_server.until(lambda: not any("may not" in str(each) for each in agent.agent.reconciler.problems))
