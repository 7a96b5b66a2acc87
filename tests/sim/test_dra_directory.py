"""Objects of DRA in the directory of manifests, with pods or alone."""

import asyncio

import pytest
import yaml

from tests.kit.dra_driver import device, slice_of
from tests.kit.dra_objects import claim, device_class, pod, template
from vdev.sim import Phase
from vdev.sim.node_objects import NodeObjects
from vdev.sim.pod_directory import PodDirectory


@pytest.fixture
async def directory(kubelet, short_dir):
    """An empty directory that is being watched."""
    watch = PodDirectory(kubelet.objects, kubelet.journal, short_dir, interval=0.02)
    tasks = [asyncio.create_task(each.run()) for each in (watch, NodeObjects(kubelet, kubelet.objects.store))]
    yield short_dir
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def write(path, *documents):
    """Write manifests atomically."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(yaml.safe_dump_all(documents))
    temporary.rename(path)


def phases(kubelet):
    return {each.name: each.phase for each in kubelet.pods()}


async def has(kubelet, kind, *names):
    """Wait until exactly these objects of a kind exist."""
    async with asyncio.timeout(30):
        while [each["metadata"]["name"] for each in await kubelet.objects.list(kind)] != list(names):
            await kubelet.journal.next_change(at_most=0.01)


async def test_a_pod_and_its_claim_in_one_file(kubelet, dra, directory):
    """They are created and deleted together."""
    await dra(slice_of("acme.dev", [device("gpu-0")]))
    write(directory / "class.yaml", device_class("acme.dev"))
    write(directory / "one.yaml", claim("gpu"), pod("one", claims=["gpu"]))
    await kubelet.wait_until(lambda: phases(kubelet) == {"one": Phase.RUNNING})
    (directory / "one.yaml").unlink()
    await kubelet.wait_until(lambda: not kubelet.pods())
    shown = "\n".join(kubelet.journal.history(100))
    for text in (
        "driver   acme.dev registered (v1.DRAPlugin, ",
        "claim    default/gpu prepared: acme.dev/sim-node/gpu-0",
        "claim       gpu: acme.dev/sim-node/gpu-0",
        "env         DRA_MAIN=gpu-0",
        "claim    default/gpu unprepared",
    ):
        assert text in shown
    kinds = {each.event for each in kubelet.journal.entries}
    assert {"driverRegistered", "claim", "pod", "podDeleted"} <= kinds
    await has(kubelet, "ResourceClaim")
    await has(kubelet, "DeviceClass", "acme.dev")


async def test_an_extended_resource_does_not_wait_for_a_device_plugin(kubelet, dra, directory):
    """A DeviceClass serves it."""
    await dra(slice_of("acme.dev", [device("gpu-0")]))
    write(directory / "one.yaml", pod("one", limits={"acme.dev/gpu": "1"}))
    await kubelet.wait_until(lambda: any("Insufficient" in str(each) for each in kubelet.journal.entries))
    write(directory / "class.yaml", device_class("acme.dev", extendedResourceName="acme.dev/gpu"))
    await kubelet.wait_until(lambda: phases(kubelet) == {"one": Phase.RUNNING})


async def test_slices_and_templates(kubelet, directory):
    """Slices stand for a missing driver. The pod is bound to its node."""
    await kubelet.wait_until(lambda: kubelet.ready)
    write(directory / "all.yaml", slice_of("acme.dev", [device("gpu-0")]), device_class("acme.dev"), template("gpu"))
    write(directory / "one.yaml", pod("one", templates=["gpu"]))
    await kubelet.wait_until(lambda: kubelet.pods() and kubelet.pods()[0].container().waiting == "ContainerCreating")
    assert "DRA driver acme.dev is not registered" in kubelet.events[-1].message


@pytest.mark.parametrize(
    ("documents", "text"),
    [
        ([{**claim("gpu"), "apiVersion": "resource.k8s.io/v1beta1"}], "expected a ResourceClaim of resource.k8s.io/v1"),
        ([{**claim("gpu"), "metadata": {}}], "metadata.name: expected a name"),
        ([{**claim("gpu"), "spec": None}], "spec: expected a mapping"),
    ],
)
async def test_files_that_are_refused(kubelet, directory, documents, text):
    """The message has the file and the mistake."""
    write(directory / "bad.yaml", *documents)
    await kubelet.wait_until(lambda: kubelet.journal.of("manifestRefused"))
    (refused,) = kubelet.journal.of("manifestRefused")
    assert text in refused.fields["error"]
