"""Errors that only the node shows: a path that is not a device ends the start, and is reported at a reload."""

import pytest

from vdev.agent import status
from vdev.errors import ConfigError

NPU = "acme.dev/npu"
GOOD = "version: v1\ndevices:\n  - {name: acme, resource: acme.dev/npu, virtual: {count: 2}}\n"
WRONG = "  - {name: wrong, resource: acme.dev/wrong, glob: /etc/passwd}\n"
ABSENT = "  - {name: absent, resource: acme.dev/absent, glob: /dev/no-such-device}\n"
LENIENT = "flags: {failOnInitError: false}\n"
PART = GOOD + "  - {name: half, resource: acme.dev/half, virtual: {cuont: 1}}\n" + LENIENT


def told(agent, words):
    """The number of problems in the log with these words."""
    lines = [each for each in agent.logs if each["event"] == "problem"]
    return sum(words in each["problem"] for each in lines)


async def test_a_path_that_is_not_a_device_ends_the_start(start_agent):
    """The message has its place in the file."""
    with pytest.raises(ConfigError, match=r"vdev\.yaml:4:.* /etc/passwd is not a device node"):
        await start_agent(GOOD + WRONG)


async def test_a_missing_device_is_only_reported(start_agent, shows):
    """It may be plugged in later, so the agent starts."""
    agent = await start_agent(GOOD + ABSENT)
    await shows(NPU, 2, 2)
    assert 1 == told(agent, "matches nothing on this node")


async def test_without_fail_on_init_error_the_other_devices_are_served(start_agent, shows):
    """The error is reported."""
    agent = await start_agent(GOOD + WRONG + LENIENT)
    await shows(NPU, 2, 2)
    assert 1 == told(agent, "/etc/passwd is not a device node")


async def test_on_reload_a_problem_is_logged_once(start_agent, shows):
    """The configuration is applied. A later reload with the same problem does not log it again."""
    agent = await start_agent(GOOD)
    agent.edit(GOOD.replace("2", "3") + WRONG)
    await shows(NPU, 3, 3)
    agent.edit(GOOD.replace("2", "4") + WRONG)
    await shows(NPU, 4, 4)
    assert 1 == told(agent, "/etc/passwd is not a device node")
    assert any("/etc/passwd" in problem.message for problem in agent.agent.reconciler.problems)


def reading(agent):
    """Whether the last read files are in force, and the problems, by the status."""
    document = status.status(agent.agent)
    return document["config"]["lastReloadSuccessful"], [each["message"] for each in document["problems"]]


async def test_an_edit_of_a_partly_wrong_file_is_refused(kubelet, start_agent):
    """Its wrong entry was left out at the start. Later edits are applied as a whole or refused."""
    agent = await start_agent(PART)
    wrong = ["unknown key 'cuont'"]
    await kubelet.wait_until(lambda: (True, wrong) == reading(agent), what="the good part")
    agent.edit(PART.replace("count: 2", "count: 3"))
    await kubelet.wait_until(lambda: (False, wrong) == reading(agent), what="the refusal")
    agent.edit(GOOD + LENIENT)
    await kubelet.wait_until(lambda: (True, []) == reading(agent), what="the good file")
    assert 2 == kubelet.node().allocatable[NPU]
