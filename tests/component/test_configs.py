"""Every example runs: it is valid, a node shows what `vdev plan` says, and a pod of each resource starts."""

import asyncio
import json
from pathlib import Path

import pytest
import yaml

from vdev.cli import main
from vdev.sim import Phase, manifest

ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))
BESIDE = {"nvidia-time-slicing.yaml": "nvidia-devices.yaml"}  # examples that are only half of a configuration
FIRST_LINE = "# yaml-language-server: $schema=vdev.schema.json"


async def plan(files, capsys):
    """What `vdev plan` says that the node advertises: devices by resource."""
    assert 0 == await asyncio.to_thread(main, ["plan", "--node", "node-1", "-o", "json", *map(str, files)])
    document = json.loads(capsys.readouterr().out)
    assert [] == document["problems"]
    return {resource["name"]: len(resource["devices"]) for resource in document["resources"]}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
async def test_an_example_runs(path, kubelet, start_agent, capsys):
    """Capacity is what the plan says, a pod with one device of each resource runs, and nothing is wrong on the wire."""
    files = [path, *(path.with_name(name) for name in [BESIDE.get(path.name)] if name)]
    planned = await plan(files, capsys)
    await start_agent("", files=tuple(files))
    await kubelet.wait_until(lambda: dict(kubelet.node().capacity) == planned, what=f"{planned}")
    for number, name in enumerate(planned):
        pod = await kubelet.run_pod(manifest(f"pod-{number}", {name: 1}))
        assert (Phase.RUNNING, "") == (pod.phase, pod.message)
        edits = pod.container().edits
        assert any((edits.envs, edits.devices, edits.mounts, edits.cdi_devices))
    assert planned == dict(kubelet.node().allocatable)
    assert [] == kubelet.errors


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_an_example_says_what_it_is(path):
    """An editor finds the schema, a reader finds a comment."""
    first, second, *_ = path.read_text().splitlines()
    assert FIRST_LINE == first
    assert second.startswith("# ")


# Where each feature stands in a configuration: keys, `*` for any, and where it matters the value.
FEATURES = [
    ("devices", "*", "glob"),
    ("devices", "*", "health"),
    ("devices", "*", "container"),
    ("devices", "*", "virtual", "links"),
    ("devices", "*", "virtual", "partitioning"),
    ("devices", "*", "virtual", "preset", "tpu-v5e-8"),
    ("devices", "*", "partitions", "*", "cpx_nps4"),
    ("flags", "migStrategy", "single"),
    ("flags", "migStrategy", "mixed"),
    ("flags", "plugin", "deviceListStrategy", "cdi-cri"),
    ("sharing", "timeSlicing", "resources", "*", "rename"),
    ("sharing", "timeSlicing", "resources", "*", "devices"),
    ("sharing", "mps", "resources"),
    ("resources", "gpus"),
    ("resources", "mig"),
    ("node", "labels"),
    ("devices", "*", "labels"),
]


def has(document, path):
    """Whether a document has something at a path."""
    if not path:
        return True
    first, *rest = path
    match document:
        case dict():
            return any(has(value, rest) for key, value in document.items() if first in ("*", str(key)))
        case list():
            return any(has(value, rest if first == "*" else path) for value in document)
    return not rest and first == document


@pytest.mark.parametrize("feature", FEATURES, ids=".".join)
def test_the_examples_cover_the_features(feature):
    """Each feature of the configuration is in an example."""
    assert any(has(yaml.safe_load(path.read_text()), feature) for path in CONFIGS)
