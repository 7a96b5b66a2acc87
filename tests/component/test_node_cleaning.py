"""`vdev node` shows and removes what vdev wrote on a Node."""

import asyncio
import json

import pytest

from vdev.api_server import NO_SERVER
from vdev.cli import main
from vdev.kube.objects import NODES


@pytest.fixture
async def node(api_server, api):
    """A Node with a label, a resource and a condition of vdev, and with those of others."""
    await api_server.register("n", {"capacity": {"cpu": "8"}}, **{"a/b": "c"})
    await api_server.add("nodes", {"metadata": {"name": "other"}}, manager="kubelet")
    await api.apply(NODES, "n", {"metadata": {"labels": {"acme.dev/x": "1", "acme.dev/y": "2"}}})
    ours = {"capacity": {"acme.dev/npu": "4"}, "conditions": [{"type": "NpuHealthy", "status": "True"}]}
    return await api.apply(NODES, "n", {"status": ours}, force=True, subresource="status")


async def command(*arguments):
    """Run the command in a thread, because the API server runs in this event loop."""
    return await asyncio.to_thread(main, ["node", *map(str, arguments)])


async def test_fields_of_vdev_are_removed(api_server, node, kubeconfig, capsys):
    """Fields of others stay."""
    assert 0 == await command("clean", "--kubeconfig", kubeconfig, "--node-name", "n")
    out = capsys.readouterr().out
    assert (
        "n: removed\n  label acme.dev/x\n  label acme.dev/y\n  resource acme.dev/npu\n  condition NpuHealthy\n" == out
    )
    found = api_server.object("nodes", "n")
    assert {"a/b": "c"} == found["metadata"]["labels"]
    assert {"cpu": "8"} == found["status"]["capacity"]
    assert ["MemoryPressure", "Ready"] == [each["type"] for each in found["status"]["conditions"]]
    assert 0 == await command("clean", "--kubeconfig", kubeconfig, "--node-name", "n")
    assert "n: vdev wrote nothing\n" == capsys.readouterr().out


async def test_fields_with_another_owner_stay(api_server, api, node, kubeconfig):
    """Another client also writes a condition and a resource."""
    theirs = {"capacity": {"acme.dev/npu": "4"}, "conditions": [{"type": "NpuHealthy", "status": "True"}]}
    await api.apply(NODES, "n", {"status": theirs}, manager="detector", subresource="status")
    more = {"conditions": [*theirs["conditions"], {"type": "NpuCool", "status": "True"}]}
    await api.apply(NODES, "n", {"status": theirs | more}, force=True, subresource="status")
    assert 0 == await command("clean", "--kubeconfig", kubeconfig, "--node-name", "n")
    found = api_server.object("nodes", "n")
    assert {"cpu": "8", "acme.dev/npu": "4"} == found["status"]["capacity"]
    assert ["MemoryPressure", "Ready", "NpuHealthy"] == [each["type"] for each in found["status"]["conditions"]]
    assert "vdev" not in {each["manager"] for each in found["metadata"]["managedFields"]}


async def test_fields_from_the_registration_stay(api_server, api, kubeconfig):
    """These fields have no owner, so an empty apply would remove them too."""
    born = {"capacity": {"cpu": "8", "pods": "110"}, "allocatable": {"cpu": "7", "pods": "110"}}
    born["conditions"] = [{"type": "Registered", "status": "True"}]
    await api_server.add("nodes", {"metadata": {"name": "n"}, "status": born}, manager="kubelet")
    amounts = {name: {"acme.dev/npu": "4"} for name in ("capacity", "allocatable")}
    ours = amounts | {"conditions": [{"type": "NpuHealthy", "status": "True"}]}
    await api.apply(NODES, "n", {"status": ours}, force=True, subresource="status")
    assert 0 == await command("clean", "--kubeconfig", kubeconfig, "--node-name", "n")
    found = api_server.object("nodes", "n")
    assert born == {name: found["status"].get(name) for name in born}
    assert "vdev" not in {each["manager"] for each in found["metadata"]["managedFields"]}


async def test_all_nodes(api_server, node, kubeconfig, capsys):
    """Only Nodes with fields of vdev are listed; a dry run removes nothing."""
    writes = api_server.writes
    assert 0 == await command("clean", "--kubeconfig", kubeconfig, "--all", "--dry-run", "--output", "json")
    assert writes == api_server.writes
    expected = {
        "node": "n",
        "labels": ["acme.dev/x", "acme.dev/y"],
        "resources": ["acme.dev/npu"],
        "conditions": ["NpuHealthy"],
    }
    assert {"cleaned": False, "nodes": [expected]} == json.loads(capsys.readouterr().out)
    assert 0 == await command("clean", "--kubeconfig", kubeconfig, "--all")
    assert {"a/b": "c"} == api_server.object("nodes", "n")["metadata"]["labels"]


async def test_without_a_server(capsys, monkeypatch):
    """The error says which option to give."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert 2 == await command("show", "--node-name", "n")
    assert f"vdev: {NO_SERVER}\n" == capsys.readouterr().err
