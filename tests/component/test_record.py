"""The state file has the listed devices, so a start continues from the last list."""

import asyncio
import shutil
import threading

import pytest

from tests.kit.fakehost import FakeHost
from vdev.agent import state_file
from vdev.planning.handovers import Phase
from vdev.sim import Kubelet, manifest

NPU, OTHER = "acme.dev/npu", "acme.dev/other"
HELD = ((NPU, "acme-0", ("acme-0",), Phase.HOLDING, "default/held"),)


def config(count=2, resource=NPU, more=""):
    return f"devices:\n  - {{name: acme, resource: {resource}, virtual: {{count: {count}}}}}\n{more}"


def cut(layout):
    return f"""
flags: {{migStrategy: mixed}}
devices:
  - name: acme
    resource: {NPU}
    virtual:
      count: 1
      memory: 4Gi
      partitioning:
        slices: 4
        profiles: {{1x: {{slices: 1, memory: 1Gi}}, 2x: {{slices: 2, memory: 2Gi, placements: [0, 2]}}}}
    partitions: {{"0": [{layout}]}}
"""


SHARED = "sharing: {timeSlicing: {resources: [{name: acme.dev/npu, replicas: 3}]}}\n"
RENAMED = "sharing: {timeSlicing: {renameByDefault: true, resources: [{name: acme.dev/npu, replicas: 3}]}}\n"
NEW = "devices: [{name: new, resource: new.dev/thing, virtual: {count: 1}}]\n"
TWO = "acme.dev/mig-2x"

CHANGES = {
    "whole": (cut("2x@0"), TWO, cut("2x@0").replace('partitions: {"0": [2x@0]}', ""), NPU, 0),
    "shared and renamed": (config(), NPU, config(more=RENAMED), f"{NPU}.shared", 3),
    "no longer shared": (config(more=SHARED), NPU, config(), NPU, 1),
    "another name": (config(), NPU, config(resource=OTHER), OTHER, 1),
}
"""Per change: the file before, the pod's resource, the file after, and a resource with its allocatable number then."""


@pytest.fixture
def host(directory):
    """A host with one port."""
    fake = FakeHost(directory / "host")
    fake.node("ttyUSB0", "188:0")
    return fake


@pytest.mark.parametrize(
    ("name", "lost"),
    [(each, False) for each in CHANGES] + [(each, True) for each in CHANGES if each != "no longer shared"],
)
async def test_an_edit_while_the_plugin_was_down_keeps_held_devices(kubelet, start_agent, shows, directory, name, lost):
    """Devices that overlap the pod's device are Unhealthy until the pod is gone, as after an edit of a running plugin.

    With `lost`, the state file is lost, so only the ids show the overlap.
    """
    before, held, after, wanted, free = CHANGES[name]
    agent = await start_agent(before)
    await kubelet.run_pod(manifest("holder", {held: 1}))
    (device,) = kubelet.pod("holder").container().devices[held]
    await agent.stop()
    for file in (directory / "state").glob("state-*") if lost else ():
        file.unlink()
    agent = await start_agent(after)
    await kubelet.wait_until(lambda: kubelet.node().allocatable.get(wanted) == free, what=f"{free} of {wanted}")
    slot = agent.agent.reconciler.advertised.resources[held].by_id[device]
    assert "pod default/holder may still hold it" in slot.health.reason
    await kubelet.delete_pod("holder")
    full = {slot.id for slot in agent.agent.reconciler.base.resources[wanted].slots}
    await shows(wanted, len(full), len(full))
    state = agent.agent.reconciler
    await kubelet.wait_until(
        lambda: state.base.resources.keys() == state.advertised.resources.keys(), what="the resource of the file alone"
    )
    # Without a state file, free devices that were listed under another resource are unknown.
    assert [] == [each for each in kubelet.errors if not (lost and each.code == "id-in-two-resources")]


async def test_a_resource_that_left_the_file_is_listed_until_its_pod_is_gone(kubelet, start_agent, shows):
    """Even if no entry of the new file is similar: the state file has the device."""
    agent = await start_agent(config())
    await kubelet.run_pod(manifest("holder", {NPU: 1}))
    await agent.stop()
    agent = await start_agent(NEW)
    await shows(NPU, 1, 0)
    await shows("new.dev/thing", 1, 1)
    await kubelet.delete_pod("holder")
    await kubelet.wait_until(lambda: NPU not in agent.agent.reconciler.advertised.resources, what="the resource to go")
    assert [] == kubelet.errors


async def test_released_devices_are_removed_as_soon_as_the_kubelet_is_back(kubelet, start_agent, shows):
    """If the agent starts without a kubelet, it reads the holders as soon as one is there, not at the next interval."""
    agent = await start_agent(config())
    await kubelet.run_pod(manifest("holder", {NPU: 1}))
    await kubelet.crash()
    await agent.stop()
    agent = await start_agent(NEW, wait=False, look_at_holders=600.0)
    await kubelet.wait_until(
        lambda: any(each["event"] == "not registered; trying again" for each in agent.logs), what="an attempt in vain"
    )
    await kubelet.delete_pod("holder")
    await kubelet.start()
    await shows("new.dev/thing", 1, 1)
    await kubelet.wait_until(lambda: NPU not in agent.agent.reconciler.advertised.resources, what="the resource to go")
    assert [] == kubelet.errors


async def test_a_held_node_that_moves_to_another_entry_is_unhealthy(kubelet, start_agent, shows, host):
    """Its id contains the entry's name, so only the state file shows that both ids are one node."""

    def entry(name):
        return f"devices:\n  - {{name: {name}, resource: example.com/{name}, glob: /dev/ttyUSB0}}\n"

    agent = await start_agent(entry("one"), host=host.host)
    await shows("example.com/one", 1, 1)
    await kubelet.run_pod(manifest("holder", {"example.com/one": 1}))
    await agent.stop()
    await start_agent(entry("two"), host=host.host)
    await shows("example.com/two", 1, 0)
    await kubelet.delete_pod("holder")
    await shows("example.com/two", 1, 1)
    assert [] == kubelet.errors


SPOILT = {
    "half": (None, "the file is damaged"),
    "newer": (b'{"version": 9}\n', "it has version 9, and this vdev knows version 3"),
    "deep": (b"[" * 100_000, "the file is damaged"),
}


async def test_an_unusable_state_file_is_replaced(kubelet, start_agent, shows, directory):
    """The plugin starts, logs the reason, and writes a new file."""
    agent = await start_agent(config())
    for count, (content, words) in enumerate(SPOILT.values(), start=3):
        await agent.stop()
        (file,) = (directory / "state").glob("state-*")
        file.write_bytes(file.read_bytes()[:-80] if content is None else content)
        agent.logs.clear()
        agent = await start_agent(config(count))
        await shows(NPU, count, count)
        assert any(log["event"] == "record not used" and words in log["reason"] for log in agent.logs), words
        assert f"acme-{count - 1}" in file.read_text()


async def test_the_state_file_of_another_kubelet_is_not_used(kubelet, start_agent, shows, directory):
    """Each kubelet has its own file name, and the content names the kubelet in case the file was renamed."""
    async with Kubelet(directory / "other", rate_limit=False) as other:
        places = {"plugin_dir": other.device_plugin_dir, "kubelet_socket": other.socket}
        agent = await start_agent(config(), wait=False, pod_resources_socket=other.pod_resources_socket, **places)
        await other.wait_until(lambda: other.node().capacity.get(NPU) == 2, what="the other kubelet's devices")
        await agent.stop()
    (theirs,) = (directory / "state").glob("state-*")
    agent = await start_agent(NEW)
    await shows("new.dev/thing", 1, 1)
    assert {"new.dev/thing"} == set(agent.agent.reconciler.advertised.resources)
    assert not any(log["event"] == "record not used" for log in agent.logs)
    await agent.stop()
    (ours,) = {*(directory / "state").glob("state-*")} - {theirs}
    theirs.rename(ours)
    agent = await start_agent(NEW)
    await shows("new.dev/thing", 1, 1)
    assert {"new.dev/thing"} == set(agent.agent.reconciler.advertised.resources)
    (said,) = [log["reason"] for log in agent.logs if log["event"] == "record not used"]
    assert f"kubelet directory '{other.device_plugin_dir}'" in said


async def test_a_state_directory_that_cannot_be_written(kubelet, start_agent, shows, directory):
    """Devices are served, and there is a problem until the file can be written."""
    (directory / "state").write_text("in the way")
    agent = await start_agent(config())
    await shows(NPU, 2, 2)

    def said():
        problems = [problem.message for problem in agent.agent.reconciler.problems]
        return [message for message in problems if "writing the state file" in message]

    await kubelet.wait_until(said, what="the problem")
    assert "is --state-dir right, and writable?" in said()[0]
    (directory / "state").unlink()
    agent.agent.reload()
    await kubelet.wait_until(lambda: not said(), what="another attempt")
    assert "acme-1" in next((directory / "state").glob("state-*")).read_text()


async def test_a_device_is_in_the_state_file_before_it_is_listed(kubelet, start_agent, shows, directory):
    """So a killed process has listed no device that is not in the file."""
    agent = await start_agent(config(1))
    await shows(NPU, 1, 1)
    (file,) = (directory / "state").glob("state-*")
    record, seen = agent.agent.state, []
    apply = record.apply

    async def watched(plan):
        await apply(plan)
        text = await asyncio.to_thread(file.read_text)
        seen.append(("acme-4" in text, kubelet.node().capacity[NPU]))

    record.apply = watched
    agent.edit(config(5))
    await shows(NPU, 5, 5)
    assert (True, 1) in seen
    assert (False, 5) not in seen


async def test_a_plan_does_not_overwrite_a_newer_record_of_holders(kubelet, start_agent, shows, directory, monkeypatch):
    """An Allocate that is recorded while a new list is recorded stays in the file."""
    agent = await start_agent(config(1))
    lists, begun, go_on = state_file._lists, threading.Event(), threading.Event()

    def slow(inventory):
        begun.set()
        go_on.wait(timeout=30)
        return lists(inventory)

    monkeypatch.setattr(state_file, "_lists", slow)
    agent.edit(config(2))
    await asyncio.to_thread(begun.wait, timeout=30)
    await agent.agent.state.record(HELD)
    go_on.set()
    await shows(NPU, 2, 2)
    (file,) = (directory / "state").glob("state-*")
    assert "default/held" in file.read_text()


async def test_holders_are_recorded_when_the_call_returns(kubelet, start_agent, directory):
    """Also if an earlier call with the same holders was cancelled before it wrote them."""
    agent = await start_agent(config(1))
    busy = threading.Event()
    threads = [asyncio.get_running_loop().run_in_executor(None, busy.wait, 30) for _ in range(40)]  # more than it has
    cancelled = asyncio.create_task(agent.agent.state.record(HELD))
    await asyncio.sleep(0.01)
    cancelled.cancel()
    busy.set()
    await asyncio.gather(*threads)
    await agent.agent.state.record(HELD)
    (file,) = (directory / "state").glob("state-*")
    assert "default/held" in file.read_text()


@pytest.mark.parametrize("harm", ["file", "directory", "spoilt"])
async def test_a_lost_state_file_is_written_again(kubelet, start_agent, shows, directory, harm):
    """Also if nothing else happens on the node, because the next start needs it."""
    agent = await start_agent(config().replace("}}\n", "}, onRelease: [{command: [/bin/true]}]}\n"))
    await shows(NPU, 2, 2)
    await kubelet.run_pod(manifest("a", {NPU: 1}))
    await kubelet.wait_until(lambda: agent.agent.holders.known.pods, what="a reading")
    state = directory / "state"
    (path,) = state.glob("state-*.json")
    await kubelet.wait_until(lambda: b"default/a" in path.read_bytes(), what="who holds it")
    before = path.read_bytes()
    match harm:
        case "file":
            path.unlink()
        case "directory":
            shutil.rmtree(state)
        case "spoilt":
            path.write_bytes(b"")

    def is_back():
        return path.exists() and path.read_bytes() == before

    await kubelet.wait_until(is_back, what="the file to be written again")
    await agent.stop()
    warnings = [each for each in agent.logs if each["event"] == "deleted or changed by something else; written again"]
    assert str(path) in {each["file"] for each in warnings}
