"""Every example configuration runs: a node has what `vdev plan` prints, and pods with its devices start."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.kit.dra_node import dra_kubelet
from tests.kit.dra_objects import claim, device_class, exactly, pod
from vdev.cli import main
from vdev.sim import Phase, manifest

ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))
BESIDE = {"nvidia-time-slicing.yaml": "nvidia-devices.yaml"}  # examples that are only half of a configuration
UNPLANNED = {"nvidia.com/gfd.timestamp"}  # the time of the start
FIRST_LINE = "# yaml-language-server: $schema=vdev.schema.json"


async def plan(files, capsys):
    """The document of `vdev plan`."""
    assert 0 == await asyncio.to_thread(main, ["plan", "--node", "node-1", "-o", "json", *map(str, files)])
    document = json.loads(capsys.readouterr().out)
    assert [] == document["problems"]
    return document


@pytest.fixture
async def kubelet(directory, api_server):
    """A kubelet that uses the claims and slices of the API server."""
    async with dra_kubelet(directory, api_server) as running:
        yield running


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
async def test_an_example_runs(path, kubelet, start_agent, account, api_server, capsys):
    """Node, slices and kubelet match the plan, a pod with each kind of device runs, and there are no error findings."""
    files = [path, *(path.with_name(name) for name in [BESIDE.get(path.name)] if name)]
    planned = await plan(files, capsys)
    resources = {each["name"]: len(each["devices"]) for each in planned["resources"]}
    await start_agent("", config_files=tuple(files), api_server=account, wait=False)
    await api_server.until(lambda: shown(api_server.object("nodes", "node-1")) == wanted(planned))
    await api_server.until(lambda: published(api_server.all("resourceslices")) == published(planned["resourceSlices"]))
    if planned["nodeStatus"]:
        assert {} == kubelet.node().capacity
        assert planned["nodeStatus"].keys() == resources.keys()
        return
    await kubelet.wait_until(lambda: dict(kubelet.node().capacity) == resources, what=f"{resources}")
    for number, name in enumerate(resources):
        await runs(kubelet, manifest(f"pod-{number}", {name: 1}))
    if planned["resourceSlices"]:
        pytest.importorskip("cel_expr_python", reason="cel-expr-python, which evaluates selectors, is not installed")
    for driver in {each["spec"]["driver"] for each in planned["resourceSlices"]}:
        await kubelet.objects.create("DeviceClass", device_class(driver, f"device.driver == '{driver}'"))
        await kubelet.objects.create("ResourceClaim", claim(driver, exactly(driver)))
        await kubelet.wait_until(lambda driver=driver: driver in kubelet.drivers(), what=driver)
        await runs(kubelet, pod(driver, claims=[driver]))
    assert resources == dict(kubelet.node().allocatable)
    assert [] == kubelet.errors


async def runs(kubelet, document):
    """Run a pod, and check that its container got something for its device."""
    running = await kubelet.run_pod(document)
    assert (Phase.RUNNING, "") == (running.phase, running.message)
    edits = running.container().edits
    assert any((edits.envs, edits.devices, edits.mounts, edits.cdi_devices))


def published(slices):
    """The specs of ResourceSlices, in a fixed order."""
    return sorted((each["spec"] for each in slices), key=json.dumps)


def wanted(planned):
    """The labels, conditions and capacity of the Node in a plan."""
    capacity = {name: str(each["capacity"]) for name, each in planned["nodeStatus"].items()}
    return planned["nodeLabels"], planned["conditions"], capacity


def shown(node):
    """The labels, conditions and capacity of a Node, without times."""
    labels, status = node["metadata"].get("labels", {}), node.get("status", {})
    conditions = [
        {key: value for key, value in each.items() if not key.endswith("Time")} for each in status.get("conditions", ())
    ]
    capacity = status.get("capacity", {})
    return {key: value for key, value in labels.items() if key not in UNPLANNED}, conditions, capacity


def test_examples_begin_with_schema_and_comment(subtests):
    """The schema is for editors."""
    for path in CONFIGS:
        with subtests.test(path=path):
            first, second, *_ = path.read_text().splitlines()
            assert FIRST_LINE == first
            assert second.startswith("# ")
