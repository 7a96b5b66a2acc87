"""What docs/ownership.md promises over each kind of restart, with a change of the file before it or during it.

From the first list to the last, what shares hardware with a held device is not Healthy, and what is held is listed.
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
"""Per change: the resources of each of which a pod holds one, and what of the node is as it is before and after."""


DEAF = "faults: {rules: [{name: deaf, podResources: {unavailable: true}}]}\n"
"""No answer says that there are no pods: the agent keeps what they had, however long the kubelet takes to know them."""


@pytest.fixture(params=CHANGES)
def told(request):
    """A story that has not begun."""
    return Story(*CHANGES[request.param])


@pytest.fixture
async def kubelet(told, directory):
    """A kubelet that knows what shares hardware, and whose lists are looked at as they come."""
    options = {"rate_limit": False, "timings": quick.KUBELET, "overlaps": told.after.overlaps}
    async with Kubelet(directory / "kubelet", **options) as running:
        told.kubelet = running
        running.journal.listen(lambda _: told.look())
        yield running


@pytest.fixture
async def story(told, kubelet, start_agent):
    """The story with the file as it was, and a pod that has a device."""
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
        self.devices = {}  # by resource, what its pod holds
        self.wrong = []

    async def begin(self):
        """The file as it was, and the pods."""
        self.agent = await self.start_agent(self.before.text(), boot_id="one")
        for resource in self.held:
            pod = await self.kubelet.run_pod(manifest(holder(resource), {resource: 1}))
            (self.devices[resource],) = pod.container().devices[resource]

    def look(self):
        """What is listed now beside the held devices."""
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
        """Whether a pod must not get it beside this held one."""
        device = self.devices[held]
        return (resource, id_) != (held, device) and self.after.overlaps(id_, device)

    async def edit(self):
        """The change, under the running agent."""
        await asyncio.to_thread(self.agent.edit, self.after.text())
        await self.agent.serves(2, self.kubelet)

    async def new_agent(self, *, rules="", **options):
        """Another process, on the changed file."""
        self.agent = await self.start_agent(self.after.text() + rules, **{"boot_id": "one"} | options)

    async def end(self):
        """All is as the file says but for the pods' devices; when the pods are gone, all is."""
        await self.kubelet.wait_until(lambda: self.kubelet.ready and self.is_listed(), what="the changed node")
        for resource, device in self.devices.items():
            pod = self.kubelet.pod(holder(resource))
            assert ("Running", (device,)) == (pod.phase.value, pod.container().devices[resource])
        assert [] == self.wrong
        held, self.devices = [*self.devices], {}
        for resource in held:
            await self.kubelet.delete_pod(holder(resource))
        await self.kubelet.run_pod(manifest("next"))  # until then the checkpoint keeps the pods that came last
        plan = {name: dict.fromkeys(ids, "Healthy") for name, ids in self.after.plan().items()}
        await self.kubelet.wait_until(
            lambda: {name: ids for name, ids in self.kubelet.listed().items() if ids} == plan,
            what="the node as the file",
        )
        assert [] == self.kubelet.errors

    def is_listed(self):
        """Whether all that the file says is listed, as far as the pods let it."""
        listed = self.kubelet.listed()
        wanted = [(name, id_) for name, ids in self.after.plan().items() for id_ in ids]
        return all(device in listed.get(held, ()) for held, device in self.devices.items()) and all(
            id_ in listed.get(name, ()) or any(self.clashes(name, id_, held) for held in self.devices)
            for name, id_ in wanted
        )


def holder(resource):
    """The pod that holds a device of this resource."""
    return f"holder-of-{resource.partition('/')[2]}"


async def test_the_kubelet(story, kubelet):
    """While the change waits for the pod."""
    await story.edit()
    await kubelet.restart()
    await story.end()


async def test_the_kubelet_dies_before_the_change(story, kubelet):
    """Nobody can be asked when the change is decided."""
    await kubelet.crash()
    await story.edit()
    await kubelet.start(wait=False)
    await story.end()


async def test_the_agent_while_the_change_waits(story, kubelet):
    """What the first one kept for the pod is kept by the next."""
    await story.edit()
    await story.agent.stop()
    await story.new_agent()
    await story.end()


async def test_both_the_kubelet_comes_back_first(story, kubelet):
    """It knows its pods before it hears of a plugin."""
    await story.agent.stop()
    await kubelet.crash()
    await kubelet.start()
    await story.new_agent()
    await story.end()


async def test_both_the_agent_comes_back_first(story, kubelet):
    """It has nobody to ask at its start, and then a kubelet that does not know its pods yet."""
    await kubelet.crash()
    await story.agent.stop()
    await story.new_agent(wait=False)
    await kubelet.wait_until(lambda: story.agent.agent.reconciler.published, what="the agent's first list")
    await kubelet.start(wait=False)
    await story.end()


async def test_both_at_once(story, kubelet):
    """The agent starts while the kubelet says that it has no pods."""
    await story.agent.stop()
    await kubelet.restart(wait=False)
    await story.new_agent(wait=False)
    await story.end()


async def test_the_node_boots_with_the_agent_first(story, kubelet):
    """A pod whose device the file still has is admitted with it again; any other pod is refused by the kubelet."""
    plan = story.after.plan()
    gone = {held for held, device in story.devices.items() if device not in plan.get(held, ())}
    await kubelet.power_off()
    for held in gone:
        del story.devices[held]  # no container has it, and none will
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
    await kubelet.run_pod(manifest("after"))  # until then the checkpoint keeps the pods that came last
    await story.end()
