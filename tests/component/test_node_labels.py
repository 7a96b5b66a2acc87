"""The labels of the Node and the file for Node Feature Discovery, as the configuration and the cluster change."""

import asyncio

import pytest

CONFIG = """
version: v1
node: {labels: LABELS}
devices:
  - name: npu
    resource: acme.dev/npu
    virtual: {count: 2, attributes: {model: X1}}
    labels: {acme.dev/model: "{attributes.model}", acme.dev/tier: gold}
"""
OURS = {"acme.dev/model": "X1", "acme.dev/tier": "gold"}


def config(labels="true", **changes):
    text = CONFIG.replace("LABELS", labels)
    for old, new in changes.items():
        text = text.replace(old, new)
    return text


@pytest.fixture
async def node(api_server):
    """The Node of the agent, with a label of the kubelet."""
    document = {"metadata": {"name": "node-1", "labels": {"kubernetes.io/os": "linux"}}}
    return await api_server.add("nodes", document, manager="kubelet")


@pytest.fixture
def labels(api_server, node):
    """The labels of the Node without those of the kubelet."""

    def current():
        found = api_server.object("nodes", "node-1")["metadata"]["labels"]
        return {label: value for label, value in found.items() if label != "kubernetes.io/os"}

    return current


async def test_labels_follow_edits(start_agent, account, api_server, labels):
    """A label that leaves the file is removed from the Node; those of others stay."""
    agent = await start_agent(config(), api_server=account)
    await api_server.until(lambda: OURS == labels())
    agent.edit(config(X1="X2", gold="silver"))
    await api_server.until(lambda: {"acme.dev/model": "X2", "acme.dev/tier": "silver"} == labels())
    agent.edit(config(**{", acme.dev/tier: gold": ""}))
    await api_server.until(lambda: {"acme.dev/model": "X1"} == labels())
    agent.edit(config("false"))
    await api_server.until(lambda: {} == labels())
    assert "linux" == api_server.object("nodes", "node-1")["metadata"]["labels"]["kubernetes.io/os"]


async def test_labels_stay_over_a_restart(start_agent, account, api_server, labels):
    """So pods stay schedulable. The restart writes nothing."""
    agent = await start_agent(config(), api_server=account)
    await api_server.until(lambda: OURS == labels())
    await agent.stop()
    assert OURS == labels()
    writes = api_server.writes
    again = await start_agent(config(), api_server=account)
    await api_server.until(lambda: OURS == again.agent.node_api.document()["labels"]["written"])
    assert writes == api_server.writes


async def test_an_edit_does_not_wait_for_a_repair(start_agent, account, api_server, labels):
    """An edit is written at once, even if another client removes a label again and again."""
    agent = await start_agent(config(), api_server=account)
    for _ in range(4):
        await api_server.until(lambda: OURS == labels())
        await api_server.edit("nodes", "node-1", {"metadata": {"labels": {"acme.dev/tier": None}}}, manager="kubectl")
    await asyncio.sleep(0.5)
    assert {"acme.dev/model": "X1"} == labels()
    agent.edit(config(gold="silver"))
    await api_server.until(lambda: "silver" == labels().get("acme.dev/tier"), seconds=15)
    await api_server.edit("nodes", "node-1", {"metadata": {"labels": {"acme.dev/tier": None}}}, manager="kubectl")
    await asyncio.sleep(0.5)
    assert {"acme.dev/model": "X1"} == labels()
    agent.clock.advance(30.0)
    await api_server.until(lambda: "silver" == labels().get("acme.dev/tier"), seconds=15)


async def test_a_label_of_another_client(start_agent, account, api_server, labels, node):
    """It stays and has a warning; the other labels are written. vdev takes it when its owner gives it up."""
    await api_server.edit(
        "nodes", "node-1", {"metadata": {"labels": {"acme.dev/tier": "bronze"}}}, manager="nfd-master"
    )
    agent = await start_agent(config(), api_server=account)
    await api_server.until(lambda: {"acme.dev/model": "X1", "acme.dev/tier": "bronze"} == labels())
    problem = "the label acme.dev/tier belongs to nfd-master, which keeps it at another value"
    await api_server.until(lambda: [problem] == [each.message for each in agent.agent.reconciler.problems])
    writes = api_server.writes
    await api_server.edit("nodes", "node-1", {"metadata": {"labels": {"x/y": "z"}}}, manager="kubectl")
    await api_server.edit("nodes", "node-1", {"metadata": {"labels": {"x/y": None}}}, manager="kubectl")
    await api_server.edit("nodes", "node-1", {"metadata": {"labels": {"acme.dev/tier": None}}}, manager="nfd-master")
    await api_server.until(lambda: OURS == labels())
    assert writes + 1 == api_server.writes
    await api_server.until(lambda: not agent.agent.reconciler.problems)


async def test_a_label_that_another_client_takes_over(start_agent, account, api_server, labels):
    """The new owner keeps it, and there is a warning."""
    agent = await start_agent(config(), api_server=account)
    await api_server.until(lambda: OURS == labels())
    await api_server.edit("nodes", "node-1", {"metadata": {"labels": {"acme.dev/tier": "iron"}}}, manager="kubectl")
    await api_server.until(lambda: {"acme.dev/tier": "kubectl"} == agent.agent.node_api.document()["labels"]["keptBy"])
    assert {"acme.dev/model": "X1", "acme.dev/tier": "iron"} == labels()


async def test_an_api_server_that_restarts(kubelet, start_agent, account, api_server, labels, shows):
    """Edits are written when the API server is back. The device plugin serves all the time."""
    agent = await start_agent(config(), api_server=account)
    await api_server.until(lambda: OURS == labels())
    await api_server.down()
    agent.edit(config(X1="X2", **{"count: 2": "count: 3"}))
    await shows("acme.dev/npu", 3, 3)
    await api_server.until(lambda: agent.agent.reconciler.problems)
    await api_server.up()
    agent.clock.advance(60.0)
    await api_server.until(lambda: "X2" == labels()["acme.dev/model"])
    await api_server.until(lambda: not agent.agent.reconciler.problems)


async def test_the_file_for_node_feature_discovery(start_agent, directory, api_server, account):
    """It is written atomically, follows edits, is repaired, and stays at the end. The API server is not used."""
    features = directory / "features.d"
    features.mkdir()
    agent = await start_agent(config("nfd"), api_server=account, features_dir=features)
    file = features / "vdev"
    await api_server.until(file.exists)
    assert "acme.dev/model=X1\nacme.dev/tier=gold\n" == file.read_text()
    agent.edit(config("nfd", X1="X2"))
    await api_server.until(lambda: "X2" in file.read_text())
    file.unlink()
    await api_server.until(file.exists)
    assert ["vdev"] == [each.name for each in features.iterdir()]
    await agent.stop()
    assert file.exists()
    assert [] == api_server.asked


async def test_labels_move_between_node_and_file(start_agent, directory, api_server, account, labels):
    """An edit that changes the place removes the labels from the old place."""
    features = directory / "features.d"
    features.mkdir()
    agent = await start_agent(config(), api_server=account, features_dir=features)
    await api_server.until(lambda: OURS == labels())
    agent.edit(config("nfd"))
    await api_server.until((features / "vdev").exists)
    await api_server.until(lambda: {} == labels())
    agent.edit(config())
    await api_server.until(lambda: OURS == labels())
    await api_server.until(lambda: not (features / "vdev").exists())


async def test_labels_of_an_earlier_process_are_removed(start_agent, account, api_server, labels):
    """If the configuration has no labels, the next process removes them."""
    agent = await start_agent(config(), api_server=account)
    await api_server.until(lambda: labels() == OURS)
    await agent.stop()
    assert OURS == labels()
    none = config().replace('    labels: {acme.dev/model: "{attributes.model}", acme.dev/tier: gold}\n', "")
    await start_agent(none, api_server=account)
    await api_server.until(lambda: not labels())
