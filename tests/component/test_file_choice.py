"""The label of the Node selects a file from a directory, also while the API server does not answer."""

import pytest

CONFIG = "version: v1\ndevices: [{name: npu, resource: acme.dev/NAME, virtual: {count: 2}}]\n"


@pytest.fixture
def files(directory):
    """A directory with a file per label, each with another resource."""
    place = directory / "files"
    place.mkdir()
    for name in ("default", "small", "large"):
        (place / f"{name}.yaml").write_text(CONFIG.replace("NAME", name))
    return (place,)


@pytest.fixture
async def labelled(api_server):
    """The Node with the label."""
    labels = {"vdev.dev/config": "small"}
    return await api_server.add("nodes", {"metadata": {"name": "node-1", "labels": labels}}, manager="kubelet")


@pytest.mark.parametrize(("label", "wanted"), [("large", "large"), ("small", "small"), (None, "default")])
async def test_a_start_while_the_api_server_does_not_answer(
    start_agent, account, api_server, labelled, files, shows, label, wanted
):
    """The last selected file is used at once, and that of the present label as soon as the server answers."""
    agent = await start_agent("", config_files=files, api_server=account)
    await shows("acme.dev/small", 2)
    await agent.stop()
    await api_server.edit("nodes", "node-1", {"metadata": {"labels": {"vdev.dev/config": label}}}, manager="kubectl")
    silence = api_server.fail(hang=True)
    again = await start_agent("", config_files=files, api_server=account, api_answer=600.0)
    await shows("acme.dev/small", 2)
    (choice,) = again.agent.config.chosen
    assert "small.yaml" == choice.file.name
    api_server.heal()
    silence.released.set()
    await shows(f"acme.dev/{wanted}", 2)
    await api_server.until(lambda: "before" not in str(again.agent.config.chosen))


async def test_a_refusal_keeps_the_chosen_file(start_agent, account, api_server, labelled, files, shows):
    """An account that expires for a moment changes nothing, and a start without the permission uses the last file."""
    agent = await start_agent("", config_files=files, api_server=account)
    await shows("acme.dev/small", 2)
    api_server.permissions = set()
    await agent.agent.node_api.api.connection.aclose()
    await api_server.until(lambda: "may not" in str(agent.agent.node_api.object.trouble))
    await agent.agent.pending.is_done.wait()
    assert ["small.yaml"] == [each.file.name for each in agent.agent.config.chosen]
    await agent.stop()
    again = await start_agent("", config_files=files, api_server=account)
    await shows("acme.dev/small", 2)
    assert ["small.yaml"] == [each.file.name for each in again.agent.config.chosen]
