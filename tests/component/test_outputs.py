"""Appliers: the example of the docs, and devices that an applier cannot deliver."""

import json
import re
from pathlib import Path

import pytest

from vdev.agent.applier import Applier, Stage

NPU = "acme.dev/npu"
CONFIG = f"devices: [{{name: acme, resource: {NPU}, virtual: {{count: 2}}}}]\n"
DOCS = Path(__file__).parents[2] / "docs" / "developers" / "architecture.md"


@pytest.fixture
def plan_file():
    """The class in the docs' example."""
    (example,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    names = {}
    exec(example, names)
    return names["PlanFile"]


async def test_the_applier_in_the_docs(kubelet, start_agent, shows, directory, plan_file):
    """It writes the plan at the start and after an edit."""
    path = directory / "plan.json"
    agent = await start_agent(CONFIG, appliers=[plan_file(path)])
    wanted = json.dumps({NPU: ["acme-0", "acme-1"]})
    await kubelet.wait_until(lambda: path.exists() and path.read_text() == wanted, what="the file")
    agent.edit(CONFIG.replace("count: 2", "count: 3"))
    await shows(NPU, 3, 3)
    await kubelet.wait_until(lambda: "acme-2" in path.read_text(), what="the edit")


class Picky(Applier):
    """Cannot deliver the second device, and records the healths in each plan."""

    name = "being picky"
    stage = Stage.PREPARE

    def __init__(self):
        self.seen = []
        self.refused = {}

    @property
    def undeliverable(self):
        """The second device, after the first plan."""
        return self.refused

    async def apply(self, plan):
        """Record the planned healths."""
        (resource,) = plan.advertised.resources.values()
        self.seen.append([slot.health.healthy for slot in resource.slots])
        self.refused = {resource.slots[1].device.raw.id: type(resource.slots[1].health)(healthy=False, reason="picky")}


async def test_an_undeliverable_device_is_never_listed_as_healthy(kubelet, start_agent, shows):
    """The planner runs again before the kubelet gets the list."""
    picky = Picky()
    agent = await start_agent(CONFIG, appliers=[picky], wait=False)
    await shows(NPU, 2, 1)
    assert [[True, True], [True, False]] == picky.seen[:2]
    assert [] == [log for log in agent.logs if log["event"] == "device unhealthy"]
    (slot,) = [each for each in agent.agent.reconciler.advertised.resources[NPU].slots if not each.health.healthy]
    assert ("acme-1", "picky") == (slot.id, slot.health.reason)


def test_the_docs_name_modules_that_exist():
    """Each path in architecture.md exists."""
    package = Path(__file__).parents[2] / "vdev"
    named = set(re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?)`", DOCS.read_text()))
    assert {"planning/plan.py", "agent/device_lists.py"} <= named
    assert [] == sorted(each for each in named if not (package / each).exists())
