"""Rules that wait for a file which may exist already."""

import pytest

NPU = "acme.dev/npu"
NO_LOOKS = {"look_at_devices": 3600.0}  # the interval at which files are checked without an event
DEVICES = """version: v1
devices:
  - {name: acme, resource: acme.dev/npu, virtual: {count: 4}}
"""


def config(file):
    """A configuration in which a device fails while the file exists."""
    rule = f"{{name: x, devices: [acme/1], onFile: '{file}', health: Unhealthy}}"
    return f"{DEVICES}faults: {{rules: [{rule}]}}\n"


@pytest.fixture
def flag(directory):
    """An existing file in a directory without other changes."""
    path = directory / "flags" / "flag"
    path.parent.mkdir()
    path.touch()
    return path


async def test_a_fault_while_a_file_exists(start_agent, shows, flag):
    """The fault begins when the agent starts, or when the file appears, and ends when the file is removed."""
    await start_agent(config(flag), **NO_LOOKS)
    await shows(NPU, 4, 3)
    flag.unlink()
    await shows(NPU, 4, 4)
    flag.touch()
    await shows(NPU, 4, 3)


async def test_the_file_is_there_at_a_reload(start_agent, shows, flag):
    """The fault begins when an edit or a person adds the rule, without a change of the file."""
    agent = await start_agent(DEVICES, fault_injection=True, **NO_LOOKS)
    await shows(NPU, 4, 4)
    agent.edit(config(flag))
    await shows(NPU, 4, 3)
    agent.edit(DEVICES)
    await shows(NPU, 4, 4)
    text = f"{{name: x, devices: [acme/1], onFile: {flag}, health: Unhealthy}}"
    await agent.agent.faults.store.commands["fault-add"]({"rules": text})
    await shows(NPU, 4, 3)


async def test_a_rule_that_is_triggered_needs_no_file(start_agent, shows, kubelet, directory):
    """A triggered fault continues without the file, and ends when the file has been created and deleted."""
    flag = directory / "flags" / "absent"
    flag.parent.mkdir()
    agent = await start_agent(config(flag), fault_injection=True, **NO_LOOKS)
    await agent.agent.faults.store.commands["fault-trigger"]({"name": "x"})
    await shows(NPU, 4, 3)
    await agent.agent.faults.look_at_files()
    await agent.settled(kubelet)
    assert agent.agent.faults.engine.runs["x"].active
    flag.touch()
    await agent.agent.faults.look_at_files()
    flag.unlink()
    await shows(NPU, 4, 4)
