from vdev.sim import manifest

NPU = """
version: v1
devices:
  - name: acme
    resource: acme.dev/npu
    virtual: {count: 2}
"""


async def test_a_pod_gets_devices_and_an_edit_reaches_the_node(kubelet, start_agent, shows):
    """From a file to a container, and from an edit to the node's capacity."""
    agent = await start_agent(NPU)
    await shows("acme.dev/npu", 2, 2)
    pod = await kubelet.run_pod(manifest("one", {"acme.dev/npu": 2}))
    assert {"acme-0", "acme-1"} == set(pod.container().edits.envs["ACME_DEV_NPU_VISIBLE_DEVICES"].split(","))
    agent.edit(NPU.replace("count: 2", "count: 3"))
    await shows("acme.dev/npu", 3, 3)
    assert 0 == await agent.stop()
    assert [] == kubelet.errors
