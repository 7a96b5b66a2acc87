"""Unexpected exceptions inside the agent: a problem is reported, the step is retried, and everything else goes on."""

import asyncio
import functools
import re
import threading
from pathlib import Path

import pytest

from vdev import config
from vdev.agent import state_file, status
from vdev.deviceplugin import servicer
from vdev.hostfs import HostRoot, files
from vdev.planning.handovers import Phase
from vdev.sim import manifest

NPU, OTHER = "acme.dev/npu", "acme.dev/other"
DEVICES = f"""\
version: v1
devices:
  - {{name: npu, resource: {NPU}, virtual: {{count: 2}}}}
"""
MORE = DEVICES.replace("count: 2", "count: 3")
SOON = {"retry_step_first": 0.05, "retry_step_most": 0.1}


class Trouble:
    """A function that raises `failure` unless it is None."""

    def __init__(self, work, failure=None):
        self.work, self.failure, self.attempts = work, failure, 0

    def __call__(self, *args, **kwargs):
        """Call the function, or raise."""
        self.attempts += 1
        if self.failure is not None:
            raise self.failure
        return self.work(*args, **kwargs)


def failing(agent):
    """The problems in the status."""
    return [each["message"] for each in status.status(agent.agent)["problems"]]


def counted(agent):
    """The number of errors in the metric."""
    return status.registry(agent.agent).get_sample_value("vdev_problems", {"severity": "error"})


async def test_a_reading_that_fails(kubelet, start_agent, shows):
    """Status, metric and log report it. The edit is applied as soon as reading succeeds."""
    load = Trouble(functools.partial(config.load, overrides={}))
    agent = await start_agent(DEVICES, load=load, **SOON)
    load.failure, load.attempts = IndexError("list index out of range"), 0
    agent.edit(MORE)
    await kubelet.wait_until(lambda: load.attempts > 3 or agent.task.done(), what="attempts")
    assert ["reading the configuration failed: IndexError: list index out of range"] == failing(agent)
    assert not status.status(agent.agent)["config"]["lastReloadSuccessful"]
    await kubelet.wait_until(lambda: counted(agent) == 1, what="the metric")
    assert 1 == sum(line["event"] == "step failed; trying again" for line in agent.logs)
    await shows(NPU, 2, 2)
    load.failure = None
    await shows(NPU, 3, 3)
    await kubelet.wait_until(lambda: counted(agent) == 0, what="the metric")
    assert [] == failing(agent)
    assert status.status(agent.agent)["config"]["lastReloadSuccessful"]


async def test_a_takeover_that_fails(kubelet, start_agent, shows):
    """Nothing is listed before the earlier state is known, and the agent retries."""
    agent = await start_agent(DEVICES, wait=False, **SOON)
    state = agent.agent.state
    state.take_over = read = Trouble(state.take_over, ValueError("who would have thought"))
    await kubelet.wait_until(lambda: read.attempts > 2 or agent.task.done(), what="attempts")
    assert ["taking over the node failed: ValueError: who would have thought"] == failing(agent)
    assert {} == kubelet.node().capacity
    read.failure = None
    await shows(NPU, 2, 2)
    await kubelet.wait_until(lambda: not failing(agent), what="the end of the problem")


async def test_a_state_directory_that_hangs(start_agent, monkeypatch):
    """A read that never returns delays neither the take-over nor the record of an Allocate for long."""
    answers = threading.Event()
    for module in (state_file, files):
        monkeypatch.setattr(module, "read_plain", lambda *_, **__: answers.wait(20) and None)
    try:
        agent = await start_agent(DEVICES, wait=False, state_file=0.1)
        state = agent.agent.state
        async with asyncio.timeout(5):
            await state.take_over()
            await state.record(((NPU, "npu-0", ("npu-0",), Phase.ALLOCATED, ""),))
        assert ["it took longer than 0.1 s" in each.message for each in state.problems] == [True]
    finally:
        answers.set()


async def test_one_entry_that_fails(kubelet, start_agent, shows):
    """An entry whose discovery fails keeps its devices. Discovery of other entries goes on."""
    host = HostRoot(Path("/"))
    host.entries = entries = Trouble(host.entries)
    extra = f"  - {{name: other, resource: {OTHER}, glob: /dev/nul*}}\n"
    agent = await start_agent(DEVICES + extra, host=host, look_at_devices=0.05, **SOON)
    entries.failure = RuntimeError("who would have thought")
    await kubelet.wait_until(lambda: failing(agent), what="the problem")
    assert ["looking for the devices of 'other' failed: RuntimeError: who would have thought"] == failing(agent)
    agent.edit(MORE + extra)
    await shows(NPU, 3, 3)
    await shows(OTHER, 1, 1)
    entries.failure = None
    await kubelet.wait_until(lambda: not failing(agent), what="the end of the problem")
    entries.failure = RuntimeError("once more")
    await kubelet.wait_until(lambda: failing(agent), what="the problem")
    agent.edit(MORE)
    await kubelet.wait_until(lambda: not failing(agent), what="the end of an entry that is gone")


@pytest.mark.parametrize(
    ("part", "step"), [("cdi", "writing CDI specifications"), ("placeholders", "making placeholders")]
)
async def test_an_output_that_fails(kubelet, start_agent, shows, directory, part, step):
    """If CDI files or placeholders cannot be made, only new devices are Unhealthy until they can."""
    text = DEVICES.replace("count: 2", "count: 2, node: {file: x}")
    text += "flags: {plugin: {deviceListStrategy: cdi-cri}}\n"
    agent = await start_agent(text, **SOON)

    def made():
        if part == "cdi":
            return re.findall(r'"name": *"(npu-\d)"', "".join(each.read_text() for each in agent.cdi_dir.iterdir()))
        return sorted(path.name.removeprefix("vdev-") for path in (directory / "devices").glob("vdev-*"))

    applier = getattr(agent.agent, part)
    applier.make = make = Trouble(applier.make, RuntimeError("who would have thought"))
    agent.edit(text.replace("count: 2", "count: 3"))
    reason = f"{step} failed: RuntimeError: who would have thought"
    await agent.calls_unhealthy(kubelet, NPU, "npu-2", reason)
    await shows(NPU, 3, 2)
    await kubelet.wait_until(lambda: make.attempts > 3, what="attempts")
    assert ([reason], ["npu-0", "npu-1"]) == (failing(agent), made())
    make.failure = None
    await shows(NPU, 3, 3)
    await kubelet.wait_until(lambda: not failing(agent), what="the end of the problem")
    assert ["npu-0", "npu-1", "npu-2"] == made()


async def test_a_decision_that_fails(kubelet, start_agent, shows):
    """The last desired state stays in force."""
    extra = f"  - {{name: other, resource: {OTHER}, virtual: {{count: 1}}}}\n"
    agent = await start_agent(DEVICES + extra, **SOON)
    reconciler = agent.agent.reconciler
    reconciler.current_health = current = Trouble(reconciler.current_health, RuntimeError("who knows"))
    agent.edit(DEVICES)
    await kubelet.wait_until(lambda: current.attempts > 3, what="attempts")
    assert ["deciding what to list failed: RuntimeError: who knows"] == failing(agent)
    await shows(NPU, 2, 2)
    await shows(OTHER, 1, 1)
    current.failure = None
    await kubelet.wait_until(lambda: OTHER not in agent.agent.lists.services, what="the edit")


async def test_a_decision_that_fails_while_a_device_is_retired(kubelet, start_agent, shows):
    """It is retried with growing pauses, not at the interval at which the retired device is checked."""
    extra = f"  - {{name: other, resource: {OTHER}, virtual: {{count: 1}}}}\n"
    agent = await start_agent(DEVICES + extra, retire_recheck=0.05, retry_step_first=5.0, retry_step_most=10.0)
    await shows(NPU, 2, 2)
    await kubelet.run_pod(manifest("p", {NPU: 1}))
    await kubelet.wait_until(lambda: agent.agent.holders.holders, what="the pod")
    agent.edit(extra.join(("version: v1\ndevices:\n", "")))
    await kubelet.wait_until(lambda: agent.agent.reconciler.previous.retired, what="the edit")
    reconciler = agent.agent.reconciler
    reconciler.current_health = Trouble(reconciler.current_health, RuntimeError("who knows"))
    await kubelet.wait_until(lambda: failing(agent), what="the failure")
    reconciler.reconcile = reconcile = Trouble(reconciler.reconcile)
    await asyncio.sleep(0.5)
    assert reconcile.attempts < 10


@pytest.mark.parametrize("step", ["update", "encode"])
async def test_one_resource_that_fails(kubelet, start_agent, shows, monkeypatch, step):
    """A resource whose list cannot be encoded or updated keeps the last one. Other resources are updated."""
    extra = f"  - {{name: other, resource: {OTHER}, virtual: {{count: 2}}}}\n"
    agent = await start_agent(DEVICES + extra, **SOON)
    encode, attempts = servicer.list_response, []

    def fails(slots, *_):
        attempts.append(slots)
        if step == "update" or any(slot.id.startswith("other") for slot in slots):
            raise MemoryError("no room")
        return encode(slots)

    owner = agent.agent.lists.services[OTHER] if step == "update" else servicer
    monkeypatch.setattr(owner, "update" if step == "update" else "list_response", fails)
    agent.edit((DEVICES + extra).replace("count: 2", "count: 3"))
    await shows(NPU, 3, 3)
    await kubelet.wait_until(lambda: len(attempts) > 3, what="attempts")
    await shows(OTHER, 2, 2)
    assert [f"telling the kubelet what {OTHER} has failed: MemoryError: no room"] == failing(agent)
    monkeypatch.undo()
    await shows(OTHER, 3, 3)
    await kubelet.wait_until(lambda: not failing(agent), what="the end of the problem")


@pytest.mark.parametrize(("part", "method"), [("holders", "refresh"), ("health", "wake"), ("link", "check")])
async def test_background_tasks_that_fail(kubelet, start_agent, shows, part, method):
    """The tasks beside the reconciler are also retried."""
    agent = await start_agent(DEVICES, look_at_devices=0.05, look_at_holders=0.05, **SOON)
    owner = getattr(agent.agent, part)
    trouble = Trouble(getattr(owner, method), RuntimeError("who knows"))
    setattr(owner, method, trouble)
    agent.edit(DEVICES + "# touched\n")
    await kubelet.wait_until(lambda: failing(agent), what="the problem")
    trouble.failure = None
    agent.edit(MORE)
    await shows(NPU, 3, 3)
    await kubelet.wait_until(lambda: not failing(agent), what="its end")


async def test_a_reading_that_fails_at_the_start(kubelet, start_agent, shows, directory):
    """The last good configuration of an earlier process is in force until reading succeeds."""
    agent = await start_agent(DEVICES)
    await kubelet.wait_until(lambda: [*(directory / "state").glob("state-*")], what="the configuration to be kept")
    await agent.stop()
    reading = Trouble(config.load, OverflowError("who would have thought"))

    def load(sources, *, texts=None, **options):
        return config.load(sources, texts=texts) if texts else reading(sources, **options)

    agent = await start_agent(MORE, load=load, wait=False, **SOON)
    await shows(NPU, 2, 2)
    await kubelet.wait_until(lambda: reading.attempts > 3 or agent.task.done(), what="attempts")
    reason = "reading the configuration failed: OverflowError: who would have thought"
    assert reason in failing(agent)
    assert status.not_ready(agent.agent)
    reading.failure = None
    await shows(NPU, 3, 3)
    await kubelet.wait_until(lambda: not failing(agent), what="the end of the problem")


async def test_tools_that_fail(kubelet, start_agent, shows):
    """The device is listed without its tools, because no container starts if the source of a mount is missing."""
    text = """
version: v1
devices: [{name: gpu, resource: nvidia.com/gpu, virtual: {preset: a100-sxm4-40gb, count: 1}}]
telemetry: {address: "127.0.0.1:0"}
"""
    agent = await start_agent(text, **SOON)
    tools = agent.agent.tools
    tools.make = Trouble(tools.make, RuntimeError("who would have thought"))
    agent.edit(text.replace("count: 1", "count: 2"))
    await shows("nvidia.com/gpu", 2, 2)
    await kubelet.wait_until(lambda: tools.without_tools, what="the failure")
    tools.make.failure = None
    await kubelet.wait_until(lambda: not tools.without_tools, what="the tools")


async def test_data_of_tools_that_cannot_be_written(kubelet, start_agent):
    """It is a problem until the data of all devices are written, or no device needs them any more."""
    text = DEVICES.replace(NPU, "nvidia.com/gpu").replace("count: 2", "preset: a100-sxm4-40gb, count: 2")
    agent = await start_agent(text + "telemetry: {}\n", write_tools=0.05, **SOON)
    tools = agent.agent.tools
    tools._write = Trouble(tools._write, OSError(28, "No space left on device"))
    said = "writing data for tools in containers failed: No space left on device"
    await kubelet.run_pod(manifest("p", {"nvidia.com/gpu": 1}))
    await kubelet.wait_until(lambda: failing(agent) == [said], what="the problem")
    attempts, tools._write.failure = tools._write.attempts, None
    await kubelet.wait_until(lambda: [] == failing(agent) and tools._write.attempts > attempts, what="its end")
    tools._write.failure = OSError(28, "No space left on device")
    await kubelet.wait_until(lambda: failing(agent) == [said], what="the problem")
    await kubelet.delete_pod("p")
    agent.edit(text)
    await kubelet.wait_until(lambda: [] == failing(agent), what="its end")
