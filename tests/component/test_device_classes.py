"""`vdev dra classes` prints DeviceClasses, or applies them to a cluster."""

import asyncio
import json

import pytest
import yaml

from vdev.cli import main

FILE = """
devices:
  - {name: gpu, resource: nvidia.com/gpu, virtual: {preset: a30}, advertise: dra}
  - {name: npu, resource: acme.dev/npu, virtual: {}, advertise: [device-plugin, dra]}
"""
NAMES = ["gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com", "npu.acme.dev"]


@pytest.fixture
def file(directory):
    path = directory / "vdev.yaml"
    path.write_text(FILE)
    return path


async def command(*arguments):
    """Run the command in a thread, because the API server runs in this event loop."""
    return await asyncio.to_thread(main, ["dra", *map(str, arguments)])


async def test_classes_are_printed(file, capsys):
    assert 0 == await command("classes", file)
    printed = list(yaml.safe_load_all(capsys.readouterr().out))
    assert NAMES == [each["metadata"]["name"] for each in printed]
    assert 0 == await command("classes", file, "--output", "json")
    assert printed == json.loads(capsys.readouterr().out)
    assert 0 == await command("classes", file, "--extended-resources")
    last = list(yaml.safe_load_all(capsys.readouterr().out))[-1]
    assert "acme.dev/npu" == last["spec"]["extendedResourceName"]


async def test_classes_are_applied(file, api_server, kubeconfig, capsys):
    for _ in range(2):
        assert 0 == await command("classes", file, "--apply", "--kubeconfig", kubeconfig)
        assert "".join(f"applied DeviceClass {name}\n" for name in NAMES) == capsys.readouterr().out
    found = api_server.object("deviceclasses", "gpu.nvidia.com")
    assert "nvidia.com/gpu" == found["spec"]["extendedResourceName"]
    assert sorted(NAMES) == sorted(each["metadata"]["name"] for each in api_server.all("deviceclasses"))


async def test_different_classes_of_other_clients_are_kept(file, api_server, kubeconfig, capsys):
    theirs = {"metadata": {"name": "npu.acme.dev"}, "spec": {"extendedResourceName": "acme.dev/other"}}
    await api_server.add("deviceclasses", theirs, manager="helm")
    assert 1 == await command("classes", file, "--apply", "--extended-resources", "--kubeconfig", kubeconfig)
    assert "helm" in capsys.readouterr().err
    assert theirs["spec"] == api_server.object("deviceclasses", "npu.acme.dev")["spec"]
