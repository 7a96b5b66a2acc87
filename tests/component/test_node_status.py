"""The Node's status: extended resources in place of a device plugin, and conditions."""

import pytest

from tests.kit.fleet import add_kubelet
from vdev.agent import status

CONFIG = """
version: v1
node: {{status: {status}, conditions: {conditions}}}
devices:
  - name: npu
    resource: acme.dev/npu
    virtual: {{count: {count}}}
    conditions: [{{type: NpuHealthy}}, {{type: SysLogsNpuError, trueWhen: unhealthy, reason: NpuLost}}]
"""
NPU = "acme.dev/npu"


def config(count=4, *, status="true", conditions="false"):
    return CONFIG.format(count=count, status=status, conditions=conditions)


@pytest.fixture
async def node(api_server):
    """The Node of the agent, as a kubelet made it."""
    return await api_server.register("node-1", {"capacity": {"cpu": "8"}, "allocatable": {"cpu": "8"}})


@pytest.fixture
def status_of(api_server, node):
    """The status of the Node as it is stored."""
    return lambda: api_server.object("nodes", "node-1")["status"]


def condition(status, name):
    return next((each for each in status["conditions"] if each["type"] == name), None)


async def sick(agent, device="npu-1"):
    await agent.agent.faults.store.commands["device-set"](
        {"id": device, "health": "Unhealthy", "reason": "too hot", "for": None}
    )


async def test_resources_are_written_instead_of_served(kubelet, start_agent, account, api_server, status_of):
    """Capacity and the number of healthy devices; nothing is registered with the kubelet."""
    agent = await start_agent(config(), api_server=account, wait=False, fault_injection=True)
    await api_server.until(lambda: "4" == status_of()["capacity"].get(NPU))
    assert "4" == status_of()["allocatable"][NPU]
    assert "8" == status_of()["capacity"]["cpu"]
    assert [] == list(kubelet.node().capacity)
    assert ["in the Node's status"] == [each["state"] for each in status.status(agent.agent)["resources"]]
    await sick(agent)
    await api_server.until(lambda: "3" == status_of()["allocatable"][NPU])
    assert "4" == status_of()["capacity"][NPU]
    agent.edit(config().replace(NPU, "acme.dev/tpu"))
    await api_server.until(lambda: NPU not in status_of()["capacity"])
    assert "8" == status_of()["capacity"]["cpu"]


async def test_a_kubelet_that_sets_capacity_to_zero(start_agent, account, api_server, status_of):
    """A kubelet that starts without a checkpoint does so, and then owns the fields. vdev takes them back."""
    await start_agent(config(), api_server=account, wait=False)
    await api_server.until(lambda: "4" == status_of()["capacity"].get(NPU))
    zero = {"status": {"capacity": {NPU: "0"}, "allocatable": {NPU: "0"}}}
    await api_server.edit("nodes", "node-1", zero, manager="kubelet", subresource="status")
    await api_server.until(lambda: "4" == status_of()["capacity"].get(NPU))
    assert "4" == status_of()["allocatable"][NPU]


async def test_a_kubelet_computes_what_is_allocatable(start_agent, account, api_server, status_of):
    """So vdev writes the capacity only, and the status says so."""
    await add_kubelet(api_server, "node-1", "v1.36.2")
    agent = await start_agent(config(), api_server=account, wait=False)
    await api_server.until(lambda: "4" == status_of()["capacity"].get(NPU))
    assert {"cpu": "8"} == status_of()["allocatable"]
    assert agent.agent.node_api.document()["status"]["kubeletDecidesAllocatable"]


async def test_a_new_agent_writes_nothing_if_the_status_is_correct(start_agent, account, api_server, status_of):
    """It also writes nothing in an hour without changes."""
    agent = await start_agent(config(conditions="true"), api_server=account, wait=False)
    await api_server.until(lambda: condition(status_of(), "NpuHealthy"))
    await agent.stop()
    before = api_server.writes
    again = await start_agent(config(conditions="true"), api_server=account, wait=False)
    await api_server.until(lambda: again.agent.node_api.document()["status"]["written"])
    for _ in range(60):
        again.clock.advance(60.0)
        again.agent.pending.add()
        await again.agent.pending.is_done.wait()
    assert before == api_server.writes


async def test_conditions_follow_health(start_agent, account, api_server, status_of):
    """Each type has its own polarity, and the time of the last change. Conditions of others stay."""
    agent = await start_agent(config(status="false", conditions="true"), api_server=account, fault_injection=True)
    await api_server.until(lambda: condition(status_of(), "NpuHealthy"))
    well = condition(status_of(), "NpuHealthy")
    assert ("True", "AllDevicesHealthy", "all devices of npu are healthy") == tuple(
        well[key] for key in ("status", "reason", "message")
    )
    assert "False" == condition(status_of(), "SysLogsNpuError")["status"]
    agent.clock.advance(100.0)
    await sick(agent)
    await api_server.until(lambda: "False" == condition(status_of(), "NpuHealthy")["status"])
    ill = condition(status_of(), "NpuHealthy")
    assert ("DeviceUnhealthy", "npu: npu-1: too hot") == (ill["reason"], ill["message"])
    assert ill["lastTransitionTime"] > well["lastTransitionTime"]
    assert ("True", "NpuLost") == tuple(condition(status_of(), "SysLogsNpuError")[key] for key in ("status", "reason"))
    assert "True" == condition(status_of(), "Ready")["status"]


@pytest.mark.parametrize("restarted", [False, True])
async def test_conditions_that_leave_the_file_leave_the_node(start_agent, account, api_server, status_of, restarted):
    """By an edit, or at the next start. Conditions of others stay."""
    agent = await start_agent(config(conditions="true"), api_server=account, wait=False)
    await api_server.until(lambda: condition(status_of(), "NpuHealthy"))
    if restarted:
        await agent.stop()
        await start_agent(config(), api_server=account, wait=False)
    else:
        agent.edit(config())
    await api_server.until(lambda: not condition(status_of(), "NpuHealthy"))
    assert ["MemoryPressure", "Ready"] == [each["type"] for each in status_of()["conditions"]]
    assert "True" == condition(status_of(), "Ready")["status"]
    assert "4" == status_of()["capacity"][NPU]
