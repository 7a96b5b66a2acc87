"""Kubelet checkpoints that the plugin cannot use: truncated, malformed or huge."""

import json

import pytest

from vdev.deviceplugin import podresources
from vdev.sim import manifest

NPU, TWO, ONE = "acme.dev/npu", "acme.dev/mig-2x", "acme.dev/mig-1x"
CONFIG = "devices: [{name: acme, resource: acme.dev/npu, virtual: {count: 2}}]\n"
GOOD = {"Data": {"PodDeviceEntries": [{"PodUID": "u", "ResourceName": NPU, "DeviceIDs": {"-1": ["acme-0"]}}]}}
UNKNOWN, LARGE = "has an unknown format", "it has more than"


def entries(value):
    """A checkpoint with these entries."""
    return json.dumps({"Data": {"PodDeviceEntries": value, "RegisteredDevices": {}}, "Checksum": 1}).encode()


def entry(**changes):
    """A checkpoint with one entry, with these changes."""
    return entries([{**GOOD["Data"]["PodDeviceEntries"][0], **changes}])


SPOILT = {
    "half": (entry()[:70], UNKNOWN),
    "no text": (b"\xff\xfe\x00", UNKNOWN),
    "other keys": (b'{"version": 2, "pods": []}', UNKNOWN),
    "numbers for ids": (entry(DeviceIDs={"-1": [1]}), UNKNOWN),
    "deep": (b'{"Data": {"PodDeviceEntries":' + b"[" * 1_000_000, UNKNOWN),
    "huge": (None, LARGE),
}


def spoil(path, content):
    """Replace the checkpoint. None: by a file above the size limit."""
    fresh = path.with_name("spoilt")
    with fresh.open("wb") as file:
        file.write(content or b"{")
        if content is None:
            file.truncate(podresources.MAX_BYTES + 1)
    fresh.rename(path)


async def test_an_unusable_checkpoint_is_ignored(kubelet, start_agent):
    """It is logged once. The plugin serves without it, and uses it again as soon as it is valid."""
    path = kubelet.device_plugin_dir / podresources.FILE_NAME
    agent = await start_agent(CONFIG, look_at_holders=0.02)
    holders = agent.agent.holders
    for content, words in SPOILT.values():
        agent.logs.clear()
        spoil(path, content)  # not before: the kubelet writes a valid one at the first list
        await kubelet.wait_until(lambda words=words: words in holders.checkpoint.trouble, what=f"the trouble {words}")
        asked = holders.known.answered_at
        await kubelet.wait_until(lambda asked=asked: holders.known.answered_at > asked + 0.05, what="more looks")
        (said,) = [each for each in agent.logs if each["event"] == "the kubelet's checkpoint is not used"]
        assert words in said["reason"]
        assert str(path) in said["reason"]
        pod = await kubelet.run_pod(manifest("one", {NPU: 2}))  # the kubelet writes a valid one
        assert "Running" == pod.phase.value
        await kubelet.wait_until(lambda: not holders.checkpoint.trouble, what="a good one")
        await kubelet.delete_pod("one")
    assert [] == kubelet.errors


CUT = """
flags: {{migStrategy: mixed}}
devices:
  - name: acme
    resource: acme.dev/npu
    virtual:
      count: 1
      memory: 4Gi
      partitioning: {{slices: 4, profiles: {{1x: {{slices: 1, memory: 1Gi}}, 2x: {{slices: 2, memory: 2Gi}}}}}}
    partitions: {{"0": [{layout}]}}
    preStart: [{{command: [/bin/false]}}]
"""


@pytest.fixture
async def waiting(kubelet, start_agent):
    """An agent, and the device of a pod whose init container does not start, so only the checkpoint has its holder."""
    agent = await start_agent(CUT.format(layout="2x@0"), look_at_holders=0.02)
    document = manifest("waits", {})
    document["spec"]["initContainers"] = [{"name": "first", "resources": {"limits": {TWO: 1}}}]
    await kubelet.run_pod(manifest("bystander", {}))  # by PodResources alone, it could be the holder
    await kubelet.run_pod(document)
    (device,) = kubelet.pod("waits").container("first").devices[TWO]
    holders = agent.agent.holders
    await kubelet.wait_until(
        lambda: (TWO, device) in holders.known.unlisted - holders.known.awaited,
        what="the checkpoint to be all that is known",
    )
    await readings(kubelet, agent, 0.5)  # more than the grace
    return agent, device


async def readings(kubelet, agent, seconds):
    """Wait until holders have been read for so many seconds."""
    begin = agent.agent.holders.known.answered_at
    await kubelet.wait_until(lambda: agent.agent.holders.known.answered_at > begin + seconds, what="readings")


@pytest.mark.parametrize("damaged", [True, False])
async def test_a_device_that_only_the_checkpoint_names_stays(kubelet, waiting, shows, damaged):
    """It is released after the pod's end. A damaged file releases nothing, because its last valid content counts."""
    agent, device = waiting
    path = kubelet.device_plugin_dir / podresources.FILE_NAME
    if damaged:
        spoil(path, path.read_bytes()[:-100])
        await kubelet.wait_until(lambda: agent.agent.holders.checkpoint.trouble, what="the trouble")
        await readings(kubelet, agent, 0)
    agent.edit(CUT.format(layout="1x@0, 1x@2"))
    await shows(ONE, 2, 1)
    if not damaged:
        await readings(kubelet, agent, 1.0)  # the kubelet writes its checkpoint again, and vdev may release devices
    assert {ONE: 1, TWO: 0} == {name: kubelet.node().allocatable[name] for name in (ONE, TWO)}
    assert device in kubelet.listed()[TWO]
    await kubelet.delete_pod("waits")
    await kubelet.run_pod(manifest("next"))  # until then the checkpoint keeps the last pod
    await shows(ONE, 2, 2)
    assert [] == kubelet.errors
