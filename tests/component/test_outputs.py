"""What follows from a plan is an output: the example of the docs is one, and what goes wrong in it is its own."""

import asyncio
import json
import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from vdev.agent.applier import Output, Stage
from vdev.planning.plan import decide
from vdev.sim import manifest

NPU = "acme.dev/npu"
CONFIG = f"devices: [{{name: acme, resource: {NPU}, virtual: {{count: 2}}}}]\n"
DOCS = Path(__file__).parents[2] / "docs" / "architecture.md"


@pytest.fixture
def plan_file():
    """The class of the docs' example."""
    (example,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    names = {}
    exec(example, names)
    return names["PlanFile"]


async def test_the_example_of_the_docs_is_an_output(kubelet, start_agent, shows, directory, plan_file):
    """It follows the plan: the start, an edit, and nothing of it is the agent's business."""
    path = directory / "plan.json"
    agent = await start_agent(CONFIG, outputs=[plan_file(path)])
    wanted = json.dumps({NPU: ["acme-0", "acme-1"]})
    await kubelet.wait_until(lambda: path.exists() and path.read_text() == wanted, what="the file")
    agent.edit(CONFIG.replace("count: 2", "count: 3"))
    await shows(NPU, 3, 3)
    await kubelet.wait_until(lambda: "acme-2" in path.read_text(), what="the edit")


async def test_an_output_that_fails_is_a_problem_of_its_own(kubelet, start_agent, shows, directory, plan_file):
    """The lists go on, the problem says what failed, and when the cause is gone it is settled."""
    path = directory / "nowhere" / "plan.json"
    agent = await start_agent(CONFIG, outputs=[plan_file(path)])
    await shows(NPU, 2, 2)

    def said():
        return [problem.message for problem in agent.agent.reconciler.problems]

    await kubelet.wait_until(lambda: any("writing the plan failed" in each for each in said()), what="the problem")
    agent.edit(CONFIG.replace("count: 2", "count: 3"))
    await shows(NPU, 3, 3)
    path.parent.mkdir()
    agent.agent.reload()
    await kubelet.wait_until(path.exists, what="another attempt")
    await kubelet.wait_until(lambda: said() == [], what="the end of the problem")


class Picky(Output):
    """Cannot bring the second device to containers, and notes when it is settled."""

    name = "being picky"
    stage = Stage.PREPARE

    def __init__(self):
        self.seen = []
        self.refused = {}

    @property
    def undeliverable(self):
        """The device that it refuses, once it has seen it."""
        return self.refused

    async def settle(self, plan):
        """Note what is about to be listed."""
        (resource,) = plan.inventory.resources.values()
        self.seen.append([slot.health.healthy for slot in resource.slots])
        self.refused = {resource.slots[1].device.raw.id: type(resource.slots[1].health)(healthy=False, reason="picky")}


async def test_what_an_output_cannot_deliver_is_never_listed_as_healthy(kubelet, start_agent, shows):
    """It is decided once more before the kubelet is told."""
    picky = Picky()
    agent = await start_agent(CONFIG, outputs=[picky], wait=False)
    await shows(NPU, 2, 1)
    assert [[True, True], [True, False]] == picky.seen[:2]
    assert [] == [log for log in agent.logs if log["event"] == "device unhealthy"]
    (slot,) = [each for each in agent.agent.reconciler.served.resources[NPU].slots if not each.health.healthy]
    assert ("acme-1", "picky") == (slot.id, slot.health.reason)


def test_the_docs_name_modules_that_exist():
    """Each path in the walks through the house."""
    package = Path(__file__).parents[2] / "vdev"
    named = set(re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?)`", DOCS.read_text()))
    assert {"planning/plan.py", "agent/device_lists.py"} <= named
    assert [] == sorted(each for each in named if not (package / each).exists())


class Watchful(Output):
    """Has a directory, and says whether what is there stands; counts how often it is asked and settled."""

    name = "being watchful"

    def __init__(self, path):
        self.path = path
        self.is_fine = True
        self.asked = self.settled = 0

    @property
    def directories(self):
        """The one that it was given."""
        return frozenset({self.path})

    def recheck(self, changed=frozenset()):
        """Everything but the start of the watch says something."""
        return bool(changed)

    async def stands(self):
        """As it is told."""
        self.asked += 1
        return self.is_fine

    async def settle(self, plan):
        """Once more."""
        self.settled += 1


async def test_what_stands_is_no_turn(kubelet, start_agent, shows, directory):
    """An output that wrote something itself is asked whether that is all; only what is otherwise is settled."""
    path = directory / "kept"
    path.mkdir()
    output = Watchful(path)
    agent = await start_agent(CONFIG, outputs=[output])
    await shows(NPU, 2, 2)
    events, due = agent.agent.events, agent.agent.due
    events._due = None  # to mark anything due there is a failure now
    (path / "one").mkdir()
    await kubelet.wait_until(lambda: output.asked == 1, what="the question")
    events._due = due
    output.is_fine = False
    before = output.settled
    (path / "one").rmdir()
    await kubelet.wait_until(lambda: output.asked == 2 and output.settled > before, what="a turn")
    failed = [each["step"] for each in agent.logs if each["event"].startswith("step failed")]
    assert "watching files" not in failed


async def test_the_same_answer_of_the_kubelet_is_no_turn(kubelet, start_agent, shows, directory):
    """Who holds what is asked now and then; only where that, or what waits for it, became another, is it settled."""
    output = Watchful(directory)
    agent = await start_agent(CONFIG, outputs=[output], look_at_holders=0.05, look_at_devices=3600.0)
    await shows(NPU, 2, 2)
    pod = await kubelet.run_pod(manifest("holder", {NPU: 1}))
    holders = agent.agent.holders

    async def readings(count):
        for _ in range(count):
            before = holders.knowledge.answered_at
            await kubelet.wait_until(lambda at=before: holders.knowledge.answered_at > at, what="a reading")

    await kubelet.wait_until(lambda: holders.holders, what="the holder")
    await readings(5)  # one of them was asked for by the Allocate
    settled = output.settled
    await readings(5)
    assert output.settled == settled
    await kubelet.delete_pod(pod.name)
    await kubelet.wait_until(lambda: output.settled > settled, what="a turn")


async def test_an_answer_while_the_last_one_is_decided_upon(kubelet, start_agent, shows, monkeypatch):
    """It counts where it says something else than that, though it be what the plan in force was made with."""
    agent = await start_agent(CONFIG.replace("count: 2", "count: 2500"), look_at_holders=0.05)
    await shows(NPU, 2500, 2500)
    reconciler, begun, goes_on = agent.agent.reconciler, threading.Event(), threading.Event()
    nothing = reconciler.holders.snapshot(())

    def slowly(world, intervals):
        if world.holdings.holders:  # not a turn that had observed before this test said so
            begun.set()
            assert goes_on.wait(30)
        return decide(world, intervals)

    monkeypatch.setattr("vdev.agent.reconcile.decide", slowly)
    monkeypatch.setattr(reconciler, "_holdings", lambda: replace(nothing, holders=frozenset({(NPU, "npu-0")})))
    assert reconciler.needs_answer
    agent.agent.due.mark()
    assert await asyncio.to_thread(begun.wait, 30)
    monkeypatch.setattr(reconciler, "_holdings", lambda: nothing)
    assert reconciler.needs_answer
    goes_on.set()
