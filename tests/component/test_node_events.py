"""Events on the Node about devices, configuration and registrations."""

NPU = "acme.dev/npu"
CONFIG = """
version: v1
node: {events: true}
devices:
  - name: npu
    resource: acme.dev/npu
    virtual:
      count: 4
      memory: 16Gi
      partitioning:
        slices: 4
        profiles: {1x.4gb: {slices: 1, memory: 4Gi}, 4x.16gb: {slices: 4, memory: 16Gi}}
"""
CUT = (
    CONFIG
    + """    partitions: {"0": [1x.4gb, 1x.4gb]}
flags: {migStrategy: mixed}
"""
)


async def set_health(agent, device, health):
    do = agent.agent.faults.store.commands
    if health == "Healthy":
        await do["device-clear"]({"id": device})
    else:
        await do["device-set"]({"id": device, "health": health, "reason": "too hot", "for": None})


async def test_a_device_lost_and_back(start_agent, account, api_server, events, node):
    """`kubectl describe` finds it by the uid of the Node, in the namespace default."""
    agent = await start_agent(CONFIG, api_server=account, fault_injection=True)
    await set_health(agent, "npu-1", "Unhealthy")
    await api_server.until(lambda: "DeviceUnhealthy" in events())
    found = events()["DeviceUnhealthy"]
    assert {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": node["metadata"]["uid"]} == found[
        "involvedObject"
    ]
    assert ("Warning", 1, "vdev") == (found["type"], found["count"], found["source"]["component"])
    assert f"{NPU}: npu-1 is unhealthy: too hot (fault rule 'device:npu-1')" == found["message"]
    await set_health(agent, "npu-1", "Healthy")
    await api_server.until(lambda: "DeviceHealthy" in events())
    assert ("Normal", f"{NPU}: npu-1 is healthy again") == tuple(
        events()["DeviceHealthy"][key] for key in ("type", "message")
    )
    await api_server.until(lambda: {"DrillStarted", "DrillEnded"} <= events().keys())


async def test_a_repeated_event_is_counted(start_agent, account, api_server, events):
    """One Event whose count grows."""
    agent = await start_agent(CONFIG, api_server=account, fault_injection=True)
    for _ in range(5):
        await set_health(agent, "npu-1", "Unhealthy")
        await api_server.until(
            lambda: not agent.agent.reconciler.advertised.resources[NPU].by_id["npu-1"].health.healthy
        )
        await set_health(agent, "npu-1", "Healthy")
        await api_server.until(lambda: agent.agent.reconciler.advertised.resources[NPU].by_id["npu-1"].health.healthy)
    await api_server.until(lambda: "DeviceHealthy" in events())
    await api_server.until(lambda: 5 == events()["DeviceUnhealthy"]["count"])
    assert 1 == sum("DeviceUnhealthy" == each["reason"] for each in api_server.all("events", "default"))


async def test_configurations_applied_and_refused(start_agent, account, api_server, events):
    """The message has the number of devices, or the error."""
    agent = await start_agent(CONFIG, api_server=account)
    await api_server.until(lambda: "ConfigurationApplied" in events())
    assert "configuration applied: acme.dev/npu 4" == events()["ConfigurationApplied"]["message"]
    agent.edit(CONFIG.replace("count: 4", "count: many"))
    await api_server.until(lambda: "ConfigurationRefused" in events())
    refused = events()["ConfigurationRefused"]
    assert "Warning" == refused["type"]
    assert "vdev.yaml:8:14: devices[0].virtual.count" in refused["message"]


async def test_repartitioned_devices(start_agent, account, api_server, events):
    """The message has the old and the new partitions."""
    agent = await start_agent(CONFIG, api_server=account)
    agent.edit(CUT)
    await api_server.until(lambda: "Repartitioned" in events())
    assert "device npu-0: whole -> 2x 1x.4gb" == events()["Repartitioned"]["message"]
    assert "DeviceLost" not in events()


async def test_a_resource_that_the_kubelet_does_not_know(kubelet, start_agent, account, api_server, events):
    """There is an Event only if the kubelet stays away longer than for a restart, and one when it is back."""
    agent = await start_agent(CONFIG, api_server=account)
    await api_server.until(lambda: "ConfigurationApplied" in events())
    await kubelet.stop()
    await api_server.until(lambda: any(each.trouble for each in agent.agent.lists.services.values()))
    agent.agent.pending.add()
    await api_server.until(lambda: any(each.retry_at for each in agent.agent.node_api.appliers))
    assert "ResourceNotRegistered" not in events()
    agent.clock.advance(21.0)
    await api_server.until(lambda: "ResourceNotRegistered" in events())
    await kubelet.start()
    await api_server.until(lambda: "ResourceRegistered" in events())


async def test_a_layout_that_is_refused(start_agent, account, api_server, events):
    """The message has the label's value and the reason."""
    config = """
version: v1
node: {events: true}
flags: {migStrategy: mixed}
devices:
  - name: a100
    resource: nvidia.com/gpu
    virtual: {preset: a100-sxm4-40gb, count: 1}
    partitions: {fromLabel: nvidia.com/mig.config, default: all-disabled}
"""
    await start_agent(config, api_server=account)
    await api_server.edit(
        "nodes", "node-1", {"metadata": {"labels": {"nvidia.com/mig.config": "all-9g"}}}, manager="kubectl"
    )
    await api_server.until(lambda: "RepartitionFailed" in events())
    refused = events()["RepartitionFailed"]
    assert "Warning" == refused["type"]
    assert refused["message"].startswith("nvidia.com/mig.config=all-9g is refused: ")
    await api_server.edit(
        "nodes", "node-1", {"metadata": {"labels": {"nvidia.com/mig.config": "all-3g.20gb"}}}, manager="kubectl"
    )
    await api_server.until(lambda: "Repartitioned" in events())
    assert "whole -> 2x 3g.20gb" in events()["Repartitioned"]["message"]


async def test_many_different_events(start_agent, account, api_server, events):
    """They cause a burst of Events, and then one now and then. The condition is correct."""
    text = CONFIG.replace("count: 4", "count: 40").replace("{events: true}", "{events: true, conditions: true}")
    text += "    conditions: [{type: NpuHealthy}]\n"
    agent = await start_agent(text, api_server=account, fault_injection=True, write_node=600.0, write_event=600.0)
    for number in range(40):
        await set_health(agent, f"npu-{number}", "Unhealthy")
        agent.agent.pending.add()
        await agent.agent.pending.is_done.wait()
    await api_server.until(lambda: 25 == len(api_server.all("events", "default")))
    assert 10 >= len([each for each in api_server.asked if each.resource == "nodes/status"])
    agent.clock.advance(600.0)
    node = api_server.object
    await api_server.until(lambda: "32 more" in node("nodes", "node-1")["status"]["conditions"][0]["message"])
    assert 26 >= len(api_server.all("events", "default"))
