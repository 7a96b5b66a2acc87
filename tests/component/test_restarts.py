"""The promises of docs/ownership.md over each kind of restart, with a change of the file before or during it.

In every list, devices that share hardware with a held device are not Healthy, and held devices are listed.
"""

import asyncio

import pytest

from tests.kit import quick
from tests.kit.hardware import Node
from vdev.sim import Kubelet, manifest

TWO, NPU = "acme.dev/mig-2x", "acme.dev/npu"
HALVES = ("2x@0", "2x@2")
SIDES = {"null": "left", "zero": "left", "full": "left"}
QUARTERS = ("1x@0", "1x@1", "1x@2", "1x@3")
CHANGES = {
    "cut anew, moved, removed and shared": (
        (TWO, "acme.dev/left", "acme.dev/box", NPU),
        {"layouts": [HALVES, HALVES, None], "sides": SIDES},
        {
            "layouts": [QUARTERS, HALVES, None],
            "sides": dict.fromkeys(SIDES, "right"),
            "boxes": 0,
            "replicas": {NPU: 2},
        },
    ),
    "renamed": ((NPU,), {}, {"npus": "acme.dev/chip"}),
}
"""Per change: the resources of which a pod each holds a device, and fields of the node before and after the change."""


DEAF = "faults: {rules: [{name: deaf, podResources: {unavailable: true}}]}\n"
"""PodResources does not answer, so held devices are kept no matter how long the kubelet takes to know its pods."""


@pytest.fixture(params=CHANGES)
def told(request):
    """A story before its start."""
    return Story(*CHANGES[request.param])


@pytest.fixture
async def kubelet(told, directory):
    """A kubelet that knows which ids share hardware, and whose lists are checked as they come."""
    options = {"rate_limit": False, "timings": quick.KUBELET, "overlaps": told.after.overlaps}
    async with Kubelet(directory / "kubelet", **options) as running:
        told.kubelet = running
        running.journal.listen(lambda _: told.look())
        yield running


@pytest.fixture
async def story(told, kubelet, start_agent):
    """A story with the first file, and pods that hold a device each."""
    told.start_agent = start_agent
    await told.begin()
    return told


class Story:
    """A kubelet, an agent, pods that hold a device each, and a change of the file."""

    def __init__(self, held, before, change):
        self.held = held
        self.before, self.after = Node(**before), Node(**(before | change))
        self.after.parts = self.before.parts
        self.before.plan()
        self.after.plan()
        self.devices = {}  # by resource, the device that its pod holds
        self.wrong = []

    async def begin(self):
        """Start an agent with the first file, and the pods."""
        self.agent = await self.start_agent(self.before.text(), boot_id="one")
        for resource in self.held:
            pod = await self.kubelet.run_pod(manifest(holder(resource), {resource: 1}))
            (self.devices[resource],) = pod.container().devices[resource]

    def look(self):
        """Check the present lists."""
        listed = self.kubelet.listed()
        for held, device in self.devices.items():
            if self.kubelet.pod(holder(held)).phase.terminal:
                continue
            for resource, ids in listed.items():
                healthy = {each for each, health in ids.items() if health == "Healthy"}
                if clash := {each for each in healthy if self.clashes(resource, each, held)}:
                    self.wrong.append(f"{clash} of {resource} Healthy beside {device}")
                if resource == held and device not in ids:
                    self.wrong.append(f"{device} is not listed: {ids}")

    def clashes(self, resource, id_, held):
        """Whether an id shares hardware with this held device."""
        device = self.devices[held]
        return (resource, id_) != (held, device) and self.after.overlaps(id_, device)

    async def edit(self):
        """Change the file while the agent runs."""
        await asyncio.to_thread(self.agent.edit, self.after.text())
        await self.agent.serves(2, self.kubelet)

    async def new_agent(self, *, rules="", **options):
        """Start another agent on the changed file."""
        self.agent = await self.start_agent(self.after.text() + rules, **{"boot_id": "one"} | options)

    async def end(self):
        """Check that the node is as the file says except for held devices, and completely once the pods are gone."""
        await self.kubelet.wait_until(lambda: self.kubelet.ready and self.is_listed(), what="the changed node")
        for resource, device in self.devices.items():
            pod = self.kubelet.pod(holder(resource))
            assert ("Running", (device,)) == (pod.phase.value, pod.container().devices[resource])
        assert [] == self.wrong
        held, self.devices = [*self.devices], {}
        for resource in held:
            await self.kubelet.delete_pod(holder(resource))
        await self.kubelet.run_pod(manifest("next"))  # until then the checkpoint keeps the last pods
        plan = {name: dict.fromkeys(ids, "Healthy") for name, ids in self.after.plan().items()}
        await self.kubelet.wait_until(
            lambda: {name: ids for name, ids in self.kubelet.listed().items() if ids} == plan,
            what="the node as the file",
        )
        assert [] == self.kubelet.errors

    def is_listed(self):
        """Whether all devices of the file are listed, except for those that clash with held devices."""
        listed = self.kubelet.listed()
        wanted = [(name, id_) for name, ids in self.after.plan().items() for id_ in ids]
        return all(device in listed.get(held, ()) for held, device in self.devices.items()) and all(
            id_ in listed.get(name, ()) or any(self.clashes(name, id_, held) for held in self.devices)
            for name, id_ in wanted
        )


def holder(resource):
    """The name of the pod that holds a device of this resource."""
    return f"holder-of-{resource.partition('/')[2]}"


async def test_the_kubelet_restarts_while_the_change_waits(story, kubelet):
    """The new devices wait for the pods."""
    await story.edit()
    await kubelet.restart()
    await story.end()


async def test_the_kubelet_crashes_before_the_change(story, kubelet):
    """The holders cannot be read when the change is applied."""
    await kubelet.crash()
    await story.edit()
    await kubelet.start(wait=False)
    await story.end()


async def test_the_agent_restarts_while_the_change_waits(story, kubelet):
    """The next agent keeps the same devices for the pods."""
    await story.edit()
    await story.agent.stop()
    await story.new_agent()
    await story.end()


async def test_both_restart_and_the_kubelet_comes_back_first(story, kubelet):
    """The kubelet knows its pods before the plugin registers."""
    await story.agent.stop()
    await kubelet.crash()
    await kubelet.start()
    await story.new_agent()
    await story.end()


async def test_both_restart_and_the_agent_comes_back_first(story, kubelet):
    """At the agent's start there is no kubelet, and then one that does not know its pods yet."""
    await kubelet.crash()
    await story.agent.stop()
    await story.new_agent(wait=False)
    await kubelet.wait_until(lambda: story.agent.agent.reconciler.published, what="the agent's first list")
    await kubelet.start(wait=False)
    await story.end()


async def test_both_restart_at_once(story, kubelet):
    """The agent starts while the kubelet lists no pods."""
    await story.agent.stop()
    await kubelet.restart(wait=False)
    await story.new_agent(wait=False)
    await story.end()


async def test_the_node_boots_with_the_agent_first(story, kubelet):
    """Pods whose device is still in the file are admitted with it again. The kubelet refuses the other pods."""
    plan = story.after.plan()
    gone = {held for held, device in story.devices.items() if device not in plan.get(held, ())}
    await kubelet.power_off()
    for held in gone:
        del story.devices[held]  # no container uses it any more
    await story.agent.stop()
    await story.new_agent(wait=False, boot_id="two", rules=DEAF)
    agent = story.agent.agent
    await kubelet.wait_until(lambda: agent.reconciler.published, what="the agent's first list")
    await kubelet.start(readmit=False)
    served = agent.reconciler.advertised.resources.keys()
    await kubelet.wait_until(lambda: kubelet.listed().keys() >= served, what="the lists of a plugin that is faster")
    await kubelet.readmit()
    agent.faults.engine.clear("deaf")
    for held in gone:
        pod = kubelet.pod(holder(held))
        assert "Failed" == pod.phase.value
        assert "healthy" in pod.message
        await kubelet.delete_pod(holder(held))
    await kubelet.run_pod(manifest("after"))  # until then the checkpoint keeps the last pods
    await story.end()
