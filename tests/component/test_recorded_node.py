"""`vdev record` beside a running node: the recorded file lists the same devices."""

import asyncio

from vdev.cli import main
from vdev.deviceplugin.podresources import listed
from vdev.sim import manifest

NODE = """
version: v1
flags: {migStrategy: mixed}
devices:
  - name: h100
    resource: nvidia.com/gpu
    virtual: {preset: h100-sxm5-80gb, count: 4, numa: [0, 0, 1, 1]}
    partitions: {"3": [1g.10gb, 1g.10gb, 2g.20gb]}
  - {name: npu, resource: acme.dev/npu, virtual: {count: 3}}
  - {name: fuse, resource: squat.ai/fuse, virtual: {count: 1, numa: 1}}
sharing:
  timeSlicing:
    resources: [{name: squat.ai/fuse, replicas: 5}]
"""
BROKEN = "faults: {rules: [{name: broken, devices: [npu-1], health: Unhealthy, onFile: %s}]}"


async def test_a_recorded_node_lists_the_same_devices(kubelet, start_agent, directory):
    """The recording has their ids, NUMA nodes and health."""
    broken, file = directory / "broken", directory / "recorded.yaml"
    agent = await start_agent(NODE + BROKEN % broken)
    await kubelet.run_pod(manifest("holder", {"acme.dev/npu": 3}))
    await asyncio.to_thread(broken.touch)
    await kubelet.wait_until(lambda: kubelet.listed()["acme.dev/npu"]["npu-1"] == "Unhealthy", what="the fault")
    there, told = kubelet.listed(), await listed(kubelet.pod_resources_socket, within=10)

    words = ["record", "--kubelet-dir", str(kubelet.device_plugin_dir.parent), "--host-root", str(directory)]
    words += ["--to", str(file)]
    assert 0 == await asyncio.to_thread(main, words)
    await agent.stop()
    await kubelet.delete_pod("holder")
    await start_agent(await asyncio.to_thread(file.read_text), state_dir=directory / "elsewhere")

    await kubelet.wait_until(lambda: there == kubelet.listed(), what="the same lists")
    healthy = [each for each in told if each.healthy]
    assert healthy == await listed(kubelet.pod_resources_socket, within=10)
    assert {(0,), (1,)} == {each.numa for each in healthy if each.resource == "nvidia.com/gpu"}
