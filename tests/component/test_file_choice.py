"""The label of the Node chooses a file from a directory, also where the API server says nothing for a while."""

import pytest

CONFIG = "version: v1\ndevices: [{name: npu, resource: acme.dev/NAME, virtual: {count: 2}}]\n"


@pytest.fixture
def files(directory):
    """A directory with a file for each label, each with a resource of its own."""
    place = directory / "files"
    place.mkdir()
    for name in ("default", "small", "large"):
        (place / f"{name}.yaml").write_text(CONFIG.replace("NAME", name))
    return (place,)


@pytest.fixture
async def labelled(api_server):
    """The Node, with the label."""
    labels = {"vdev.dev/config": "small"}
    return await api_server.add("nodes", {"metadata": {"name": "node-1", "labels": labels}}, manager="kubelet")


@pytest.mark.parametrize(("label", "wanted"), [("large", "large"), ("small", "small"), (None, "default")])
async def test_a_start_while_the_api_server_is_silent(
    start_agent, account, api_server, labelled, files, shows, label, wanted
):
    """The file that was chosen before serves at once, and the one that the label names when the server says so."""
    agent = await start_agent("", files=files, api_server=account, retry_label=1.0)
    await shows("acme.dev/small", 2)
    await agent.stop()
    await api_server.edit("nodes", "node-1", {"metadata": {"labels": {"vdev.dev/config": label}}}, manager="kubectl")
    silence = api_server.fail(hang=True)
    again = await start_agent("", files=files, api_server=account, api_answer=600.0)
    await shows("acme.dev/small", 2)
    (why,) = again.agent.config.chooser.chosen.why
    assert "small.yaml" == why.file
    api_server.heal()
    silence.released.set()
    await shows(f"acme.dev/{wanted}", 2)
    await api_server.until(lambda: "before" not in str(again.agent.config.chooser.chosen.why))
