"""Rules that wait for a file: it may be there already, and no name of a file may end the agent."""

import pytest

from vdev.agent.status import status

NPU = "acme.dev/npu"
NO_LOOKS = {"look_at_devices": 3600.0}  # when files are looked at as well, whether or not something happened
DEVICES = """version: v1
devices:
  - {name: acme, resource: acme.dev/npu, virtual: {count: 4}}
"""


def config(file):
    """Devices of which one fails while the file is there."""
    rule = f"{{name: x, devices: [acme/1], onFile: '{file}', health: Unhealthy}}"
    return f"{DEVICES}faults: {{rules: [{rule}]}}\n"


@pytest.fixture
def flag(directory):
    """A file that is there, in a directory where nothing else happens."""
    path = directory / "flags" / "flag"
    path.parent.mkdir()
    path.touch()
    return path


@pytest.fixture
def unseen(directory):
    """A file that cannot be looked at: a link to a name that no file can have."""
    path = directory / "unseen"
    path.symlink_to("n" * 300)
    return path


async def test_the_file_is_there_at_the_start(start_agent, shows, flag):
    """The fault begins with the agent."""
    await start_agent(config(flag), **NO_LOOKS)
    await shows(NPU, 4, 3)


@pytest.mark.parametrize("late", [False, True], ids=["at the start", "at a reload"])
async def test_a_file_that_cannot_be_seen(start_agent, shows, kubelet, unseen, late):
    """It is a problem that names the rule, and everything else goes on."""
    agent = await start_agent(DEVICES if late else config(unseen))
    if late:
        agent.edit(config(unseen))
    await kubelet.wait_until(lambda: "waits for a file that cannot be seen" in str(status(agent.agent)["problems"]))
    agent.edit(config(unseen).replace("count: 4", "count: 5"))
    await shows(NPU, 5, 5)
