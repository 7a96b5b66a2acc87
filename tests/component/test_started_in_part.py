"""With failOnInitError false, a start leaves out wrong entries. Later edits are applied as a whole or refused."""

import pytest

from vdev.agent import status

NPU = "acme.dev/npu"
GOOD = "flags: {failOnInitError: false}\ndevices:\n  - {name: acme, resource: acme.dev/npu, virtual: {count: 2}}\n"
PART = GOOD + "  - {name: half, resource: acme.dev/half, virtual: {cuont: 1}}\n"
WRONG = "unknown key 'cuont'"


@pytest.fixture
def shows_config(kubelet):
    """Wait until the status has these problems, and says whether the last read files are in force."""

    def shown(agent):
        document = status.status(agent.agent)
        return document["config"]["lastReloadSuccessful"], [each["message"] for each in document["problems"]]

    async def wait(agent, *, in_force, problems=()):
        await kubelet.wait_until(lambda: (in_force, [*problems]) == shown(agent), what=f"{in_force} {problems}")

    return wait


async def test_an_edit_of_a_partly_wrong_file_is_refused(start_agent, kubelet, shows_config):
    """The wrong entry was left out at the start."""
    agent = await start_agent(PART)
    await shows_config(agent, in_force=True, problems=[WRONG])
    agent.edit(PART.replace("count: 2", "count: 3"))
    await shows_config(agent, in_force=False, problems=[WRONG])
    agent.edit(GOOD)
    await shows_config(agent, in_force=True)
    assert 2 == kubelet.node().allocatable[NPU]
