"""The examples of claims in deploy/ run at the same time, on a node with the overlay's file and DeviceClasses."""

import pytest
import yaml

from tests.kit.dra_node import dra_kubelet, until_published
from tests.kit.manifests import DEPLOY, permissions_of
from vdev.sim import Phase

pytest.importorskip("cel_expr_python", reason="cel-expr-python, which evaluates selectors, is not installed")

OVERLAY = DEPLOY / "overlays" / "dra"
EXAMPLES = sorted(path.stem for path in DEPLOY.glob("examples/dra-*.yaml"))
WANTED = {  # by example: the device of each container, and the prefix of its id
    "dra-extended-resource": [("gpu-0", "GPU-")],
    "dra-gpu": [("gpu-1", "GPU-")],
    "dra-mig": [("gpu-2-mig-1g5gb-19-0", "MIG-"), ("gpu-2-mig-3g20gb-9-4", "MIG-")],
    "dra-first-available": [("gpu-3-mig-3g20gb-9-0", "MIG-")],
    "dra-share": [("lab-0", "lab-0")] * 4,
}


def documents(path):
    """The objects of a file."""
    return list(yaml.safe_load_all(path.read_text()))


def pods_of(objects):
    """The pods of an example, with those of Deployments."""
    for each in objects:
        match each["kind"]:
            case "Pod":
                yield each
            case "Deployment":
                name, spec = each["metadata"]["name"], each["spec"]
                for number in range(spec["replicas"]):
                    pod = {**spec["template"], "apiVersion": "v1", "kind": "Pod"}
                    yield {**pod, "metadata": {**pod["metadata"], "name": f"{name}-{number}"}}


@pytest.fixture
async def kubelet(directory, api_server):
    """A kubelet in a cluster with the overlay's DeviceClasses."""
    async with dra_kubelet(directory, api_server, *documents(OVERLAY / "device-classes.yaml")) as running:
        yield running


@pytest.fixture
async def run(kubelet, start_agent, account, api_server):
    """Run an example on a node with the overlay's agent and its permissions. Returns the containers."""
    api_server.permissions = permissions_of("dra")
    agent = await start_agent("", config_files=(OVERLAY / "default.yaml",), api_server=account, wait=False)
    await until_published(agent, api_server)

    async def run(name):
        objects = documents(DEPLOY / "examples" / f"{name}.yaml")
        for each in objects:
            if each["kind"] == "ResourceClaimTemplate":
                metadata = {**each["metadata"], "namespace": "default"}
                await kubelet.objects.create(each["kind"], {**each, "metadata": metadata})
        pods = [await kubelet.run_pod(each) for each in pods_of(objects)]
        assert [(Phase.RUNNING, "")] * len(pods) == [(each.phase, each.message) for each in pods]
        return [container for pod in pods for container in pod.containers]

    yield run
    assert [] == kubelet.errors
    assert [] == [each for each in agent.agent.reconciler.problems if each.is_error]


async def test_all_examples_at_once(run):
    """Each example gets its devices. Together they use four GPUs, and one device four times.

    The order matters: Kubernetes 1.36.2 does not find two partitions of one GPU if another GPU is partitioned already.
    """
    assert EXAMPLES == sorted(WANTED)
    for name, wanted in WANTED.items():
        containers = await run(name)
        devices = [device for each in containers for found in each.claims.values() for device in found]
        assert [device for device, _ in wanted] == [each.rpartition("/")[2] for each in devices]
        for each, (_, start) in zip(containers, wanted, strict=True):
            (ids,) = [value for key, value in each.edits.envs.items() if key.endswith("VISIBLE_DEVICES")]
            assert ids.startswith(start)
