"""What only the node proves wrong: a path that is no device ends the start, and later is reported."""

import pytest

from vdev.errors import ConfigError

NPU = "acme.dev/npu"
GOOD = "version: v1\ndevices:\n  - {name: acme, resource: acme.dev/npu, virtual: {count: 2}}\n"
WRONG = "  - {name: wrong, resource: acme.dev/wrong, glob: /etc/passwd}\n"
ABSENT = "  - {name: absent, resource: acme.dev/absent, glob: /dev/no-such-device}\n"
LENIENT = "flags: {failOnInitError: false}\n"


def told(agent, words):
    """How often the log says it."""
    lines = [each for each in agent.logs if each["event"] == "problem in the configuration"]
    return sum(words in each["problem"] for each in lines)


async def test_a_path_that_is_no_device_ends_the_start(start_agent):
    """As every other error does; the message has its place."""
    with pytest.raises(ConfigError, match=r"vdev\.yaml:4:.* /etc/passwd is not a device node"):
        await start_agent(GOOD + WRONG)


async def test_a_device_that_is_absent_stops_nothing(start_agent, shows):
    """It may be plugged in later."""
    agent = await start_agent(GOOD + ABSENT)
    await shows(NPU, 2, 2)
    assert 1 == told(agent, "matches nothing on this node")


async def test_without_fail_on_init_error_the_rest_is_served(start_agent, shows):
    """And the error is reported."""
    agent = await start_agent(GOOD + WRONG + LENIENT)
    await shows(NPU, 2, 2)
    assert 1 == told(agent, "/etc/passwd is not a device node")


async def test_on_reload_a_new_problem_is_told_once(start_agent, shows):
    """The configuration is adopted, and what was told before is not told again."""
    agent = await start_agent(GOOD)
    agent.edit(GOOD.replace("2", "3") + WRONG)
    await shows(NPU, 3, 3)
    agent.edit(GOOD.replace("2", "4") + WRONG)
    await shows(NPU, 4, 4)
    assert 1 == told(agent, "/etc/passwd is not a device node")
    assert any("/etc/passwd" in problem.message for problem in agent.agent.reconciler.problems)
