"""The lifecycle of CDI specification files: when they are written, kept for pods, and removed."""

import asyncio
import contextlib
import errno
import json
import time
from pathlib import Path

import pytest

from tests.kit.held_back import HeldBack
from vdev.sim import manifest

CRI = "flags: {plugin: {deviceListStrategy: cdi-cri}}"
NPU = """
version: v1
%s
devices:
  - name: acme
    resource: acme.dev/npu
    virtual: {count: %d}
"""
FILE = "vdev-k8s.device-plugin.acme.dev-npu.json"
ONE = manifest("one", {"acme.dev/npu": 2})


def names(agent):
    """The devices of each specification."""
    found = {}
    for path in sorted(agent.cdi_dir.glob("vdev-*.json")):
        with contextlib.suppress(FileNotFoundError):  # removed since it was listed
            document = json.loads(path.read_text())
            found[document["kind"].rpartition("/")[2]] = [device["name"] for device in document["devices"]]
    return found


async def becomes(kubelet, agent, expected):
    """Wait until the specifications hold these devices."""
    await kubelet.wait_until(lambda: names(agent) == expected, what=f"specifications {expected}, not {names(agent)}")


async def test_a_specification_is_written_before_its_devices_are_listed(kubelet, start_agent):
    """A runtime can resolve the CDI name of each listed device."""
    agent = await start_agent(NPU % (CRI, 2))
    assert {"npu": ["acme-0", "acme-1"]} == names(agent)
    pod = await kubelet.run_pod(ONE)
    assert {f"k8s.device-plugin.acme.dev/npu=acme-{n}" for n in (0, 1)} == set(pod.container().edits.cdi_devices)


async def test_a_device_that_a_pod_holds_stays_resolvable(kubelet, start_agent):
    """A restarted container gets the same CDI names, so they stay until its pod is gone."""
    agent = await start_agent(NPU % (CRI, 2))
    await kubelet.run_pod(ONE)
    await agent.has_named(kubelet)
    agent.edit(NPU % (CRI, 1))
    await kubelet.wait_until(lambda: kubelet.node().allocatable["acme.dev/npu"] == 1)
    assert {"npu": ["acme-0", "acme-1"]} == names(agent)
    await kubelet.delete_pod("one")
    await becomes(kubelet, agent, {"npu": ["acme-0"]})


@pytest.mark.parametrize("flags", ["", "flags: {plugin: {deviceListStrategy: cdi-cri, deviceIDStrategy: index}}"])
async def test_names_stay_while_an_allocation_may_return_them(kubelet, start_agent, flags):
    """A pod that is admitted during a change of the strategy gets names that a runtime can resolve."""
    held = HeldBack(lambda plan: plan.cdi)
    agent = await start_agent(NPU % (CRI, 2), appliers=[held], look_at_holders=0.2)
    await kubelet.wait_until(lambda: agent.agent.holders.in_use.is_complete, what="a trusted answer about pods")
    agent.edit(NPU % (flags, 2))
    await held.reached.wait()
    pod = await kubelet.run_pod(manifest("one", {"acme.dev/npu": 1}))
    (name,) = pod.container().edits.cdi_devices
    device = name.partition("=")[2]
    assert device in names(agent)["npu"]
    held.go.set()
    await agent.settled(kubelet)
    assert device in names(agent)["npu"]
    await agent.has_named(kubelet)
    await kubelet.delete_pod("one")
    await becomes(kubelet, agent, {"npu": ["0", "1"]} if flags else {})


@pytest.mark.parametrize(("strategy", "own"), [(CRI, ["beta-0"]), ("", [])])
async def test_a_new_process_keeps_held_devices_resolvable(kubelet, start_agent, strategy, own):
    """Also if the configuration changed while the plugin was down. Other devices are removed."""
    agent = await start_agent(NPU % (CRI, 3))
    pod = await kubelet.run_pod(manifest("one", {"acme.dev/npu": 1}))
    (held,) = (name.partition("=")[2] for name in pod.container().edits.cdi_devices)
    await agent.stop()
    agent = await start_agent((NPU % (strategy, 1)).replace("name: acme", "name: beta"))
    await becomes(kubelet, agent, {"npu": [*own, held]})
    await kubelet.delete_pod("one")
    await becomes(kubelet, agent, {"npu": own} if own else {})


async def test_a_file_that_is_deleted_again_and_again(kubelet, start_agent):
    """It is written again with pauses, and its devices are Unhealthy meanwhile."""
    pause = 0.5
    agent = await start_agent(NPU % (CRI, 1), retry_host_files=pause)
    await agent.serves(1, kubelet)
    begin = time.monotonic()
    while time.monotonic() < begin + 5 * pause:
        (agent.cdi_dir / FILE).unlink(missing_ok=True)
        await asyncio.sleep(0.002)
    repairs = [each for each in agent.logs if "by something else" in each["event"]]
    assert 2 <= len(repairs) <= 1 + (time.monotonic() - begin) / pause
    assert "keeps deleting or changing" in agent.agent.cdi.trouble
    assert 0 == kubelet.node().allocatable["acme.dev/npu"]
    await kubelet.wait_until(lambda: kubelet.node().allocatable["acme.dev/npu"] == 1)
    assert {"npu": ["acme-0"]} == names(agent)
    assert "" == agent.agent.cdi.trouble


async def test_no_second_file_defines_the_same_device(start_agent):
    """A vdev file under another name is removed, because a device in two files cannot be resolved."""
    agent = await start_agent(NPU % (CRI, 2))
    await agent.stop()
    (agent.cdi_dir / FILE).rename(agent.cdi_dir / "vdev-old-name.json")
    (agent.cdi_dir / "vdev-broken.json").write_text("{")
    (agent.cdi_dir / f".{FILE}.x.tmp").write_text("{")
    (agent.cdi_dir / "other.json").write_text("{}")
    agent = await start_agent(NPU % (CRI, 2))
    assert {FILE, "other.json"} == {path.name for path in agent.cdi_dir.iterdir()}


async def test_names_of_pods_stay_after_a_change_of_the_strategy(kubelet, start_agent):
    """Pods keep the CDI names that they were given, and the file is removed after the last of these pods.

    No change waits for such a pod, so its end is noticed only at the long interval.
    """
    agent = await start_agent(NPU % (CRI, 2), look_at_holders=0.2)
    await kubelet.run_pod(ONE)
    await agent.has_named(kubelet)
    agent.edit(NPU % ("", 2))
    await agent.serves(2, kubelet)
    await becomes(kubelet, agent, {"npu": ["acme-0", "acme-1"]})
    await kubelet.delete_pod("one")
    await becomes(kubelet, agent, {})


async def test_a_file_that_cannot_be_removed(kubelet, start_agent, monkeypatch):
    """It is a problem in the status, and is removed as soon as that is possible."""
    agent = await start_agent(NPU % (CRI, 1))
    await becomes(kubelet, agent, {"npu": ["acme-0"]})
    unlink = Path.unlink

    def fails(path, missing_ok=False):
        if path.name == FILE:
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", fails)
    agent.edit(NPU % ("", 1))
    await kubelet.wait_until(lambda: "cannot remove" in agent.agent.cdi.trouble, what="the problem")
    monkeypatch.undo()
    await becomes(kubelet, agent, {})
    assert "" == agent.agent.cdi.trouble
