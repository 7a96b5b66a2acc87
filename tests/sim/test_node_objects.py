"""A kubelet whose Node and Pods are objects of an API server."""

import asyncio
import contextlib
import copy
import os

import pytest

from tests.kit.dra_driver import device, slice_of
from tests.kit.dra_objects import device_class, exactly, pod, template
from vdev.pb import dra_v1_pb2 as v1
from vdev.sim import Kubelet, Timings, manifest
from vdev.sim.api.kinds import BY_NAME
from vdev.sim.api.server import ApiServer
from vdev.sim.api.store import ApiObjects
from vdev.sim.node_objects import NodeObjects

NPU = "acme.dev/npu"


class Node:
    """A node: its kubelet and its objects."""

    def __init__(self, api, kubelet):
        self.api = api
        self.kubelet = kubelet
        self.objects = kubelet.objects

    def all(self, kind):
        """The objects of a kind, by name."""
        return {each["metadata"]["name"]: each for each in self.api.objects.all(BY_NAME[kind])}

    def status(self, name):
        """The status of a pod."""
        return self.all("Pod")[name].get("status", {})

    async def create(self, document):
        """Create an object in namespace default."""
        kind = BY_NAME[document["kind"]]
        self.api.objects.create(kind, "default" if kind.namespaced else "", document, "kubectl")

    async def delete(self, name, *, force=False):
        """Delete a pod."""
        self.api.objects.delete(BY_NAME["Pod"], "default", name, now=force)

    async def until(self, condition, what):
        """Wait for a condition on objects."""
        await self.kubelet.wait_until(condition, what=what)


@pytest.fixture
async def node(clock, cdi_dir):
    """A node with an API server."""
    async with contextlib.AsyncExitStack() as stack:
        api = await stack.enter_async_context(ApiServer())
        kubelet = Kubelet(
            clock=clock,
            timings=Timings(boot=0.01, lead=0.01, look=0.02, sources=0.05),
            objects=ApiObjects(api.objects),
            cdi_dir=cdi_dir,
            status_on_change=True,
        )
        await stack.enter_async_context(kubelet)
        task = asyncio.create_task(NodeObjects(kubelet).run(), name="objects")
        yield Node(api, kubelet)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), task.exception()


async def test_the_owner_of_the_conditions(node):
    """As on a real Node, the kubelet owns the fields that it wrote after the registration."""
    await node.until(lambda: node.all("Node"), "the Node")
    (document,) = node.all("Node").values()
    assert ["True"] == [each["status"] for each in document["status"]["conditions"] if each["type"] == "Ready"]
    (owned,) = (
        each["fieldsV1"]["f:status"]["f:conditions"]
        for each in document["metadata"]["managedFields"]
        if each.get("subresource") == "status"
    )
    assert ['k:{"type":"Ready"}'] == list(owned)
    assert {"f:status", "f:reason", "f:message"} <= owned['k:{"type":"Ready"}'].keys()
    assert "." not in owned['k:{"type":"Ready"}']


async def test_the_node_is_an_object(node, plugins):
    """It has the plugins' devices, and keeps the fields of others."""
    await node.until(lambda: node.all("Node"), "the Node")
    own = capacity(node)
    assert {"cpu", "memory", "pods"} == own.keys()
    assert os.cpu_count() == int(own["cpu"])
    theirs = {
        "status": {"capacity": {"other.dev/x": "3", "cpu": "96"}, "conditions": [{"type": "Theirs", "status": "True"}]}
    }
    await node.objects.edit("Node", "sim-node", "", lambda each: each.update(theirs))
    await plugins(NPU, on=node.kubelet, devices=["a", "b"])
    await node.until(lambda: "2" == capacity(node).get(NPU), "the capacity")
    assert "96" == node.all("Node")["sim-node"]["status"]["allocatable"]["cpu"]
    assert "3" == capacity(node)["other.dev/x"]
    assert "3" == node.all("Node")["sim-node"]["status"]["allocatable"]["other.dev/x"]
    conditions = {each["type"]: each["status"] for each in node.all("Node")["sim-node"]["status"]["conditions"]}
    assert {"Ready": "True", "Theirs": "True"} == conditions
    assert "v1.36.0+vdev" == node.all("Node")["sim-node"]["status"]["nodeInfo"]["kubeletVersion"]
    await node.kubelet.stop()
    await node.until(lambda: "Unknown" == condition(node, "Ready"), "the end of the kubelet")
    await node.kubelet.start()
    await node.until(lambda: "True" == condition(node, "Ready"), "the kubelet")


def capacity(node):
    """That of the Node."""
    return node.all("Node")["sim-node"]["status"].get("capacity", {})


def condition(node, name):
    """One of the Node's."""
    return next(each["status"] for each in node.all("Node")["sim-node"]["status"]["conditions"] if each["type"] == name)


async def test_a_pod_that_is_created_runs(node, plugins):
    """A pod gets its node and its devices. One that does not fit waits, with the reason."""
    await plugins(NPU, on=node.kubelet, devices=["a"])
    await node.create(manifest("one", {NPU: 1}))
    await node.until(lambda: "Running" == node.status("one").get("phase"), "pod one")
    assert "sim-node" == node.all("Pod")["one"]["spec"]["nodeName"]
    (container,) = node.status("one")["containerStatuses"]
    assert [{"name": NPU, "resources": [{"resourceID": "a", "health": "Healthy"}]}] == container[
        "allocatedResourcesStatus"
    ]
    await node.create(manifest("two", {NPU: 1}))
    await node.until(lambda: node.status("two").get("conditions", [{}])[0].get("message"), "the reason")
    assert "0/1 nodes are available: 1 Insufficient acme.dev/npu." == node.status("two")["conditions"][0]["message"]
    assert [("FailedScheduling", "two")] == [
        (each["reason"], each["involvedObject"]["name"]) for each in node.all("Event").values()
    ]
    await node.delete("one")
    await node.until(lambda: "one" not in node.all("Pod"), "the end of pod one")
    await node.until(lambda: "Running" == node.status("two").get("phase"), "pod two")


async def test_container_statuses(node, plugins):
    """A pod has container statuses only after it is admitted; a finished init container is terminated."""
    plugin = await plugins(NPU, on=node.kubelet, devices=["a"])
    go = plugin.hold("Allocate")
    one = manifest("one", {NPU: 1})
    one["spec"]["initContainers"] = [{"name": "first", "image": "x", "resources": {"limits": {NPU: "1"}}}]
    one["spec"]["nodeName"] = "sim-node"
    await node.create(one)
    assert {"phase": "Pending"} == node.status("one")
    await node.until(lambda: plugin.requests("Allocate"), "the call")
    assert "containerStatuses" not in node.status("one")
    go.set()
    await node.until(lambda: "Running" == node.status("one").get("phase"), "pod one")
    (first,) = node.status("one")["initContainerStatuses"]
    assert {"terminated": {"exitCode": 0, "reason": "Completed"}} == first["state"]
    two = manifest("two", {NPU: 1})
    two["spec"]["nodeName"] = "sim-node"
    await node.create(two)
    await node.until(lambda: "Failed" == node.status("two").get("phase"), "the refusal")
    assert "UnexpectedAdmissionError" == node.status("two")["reason"]
    assert not {"containerStatuses", "initContainerStatuses"} & node.status("two").keys()


async def test_a_claim_that_is_not_prepared(node, dra_on):
    """The reason is in an event, not in the status."""
    driver = await dra_on(node.kubelet, slice_of("acme.dev", [device("gpu-0")]))

    async def refuse(_claim):
        return v1.NodePrepareResourceResponse(error="the device is ill")

    driver.prepare_claim = refuse
    for document in (device_class("acme.dev"), template("main", exactly()), pod("one", templates=["main"])):
        await node.create(document)
    await node.until(lambda: node.all("Event"), "the event")
    (event,) = node.all("Event").values()
    assert event["message"].endswith("the device is ill")
    (container,) = node.status("one")["containerStatuses"]
    assert {"waiting": {"reason": "ContainerCreating"}} == container["state"]


async def test_a_pod_that_is_replaced(node, plugins):
    """A new pod of the same name waits for the end of the old one, unless that was deleted by force."""
    await plugins(NPU, on=node.kubelet, devices=["a"])
    for _ in range(3):
        await node.create(manifest("one", {NPU: 1}))
        await node.until(lambda: "Running" == node.status("one").get("phase"), "pod one")
        await node.delete("one", force=True)
    await node.until(lambda: not node.kubelet.pods(), "the last one's end")


@pytest.mark.parametrize("waiting", [{"schedulerName": "other"}, {"schedulingGates": [{"name": "acme.dev/gate"}]}])
async def test_a_pod_that_is_not_for_this_scheduler(node, waiting):
    """It waits for another scheduler or for its gate, but runs if it has a node."""
    other = manifest("other")
    other["spec"] |= waiting
    await node.create(other)
    await node.create(manifest("mine"))
    await node.until(lambda: "Running" == node.status("mine").get("phase"), "pod mine")
    assert "Pending" == node.status("other")["phase"]
    new = copy.deepcopy(node.all("Pod")["other"])
    new["spec"] |= {"nodeName": node.kubelet.node_name, "schedulingGates": []}
    node.api.objects.change(BY_NAME["Pod"], ("default", "other"), new, manager="other")
    await node.until(lambda: "Running" == node.status("other").get("phase"), "pod other")


async def test_claims(node, dra_on):
    """The pod's status names its claims, also the hidden one of an extended resource."""
    await node.create(device_class("acme.dev"))
    await node.create(device_class("named", extendedResourceName="acme.dev/gpu"))
    await dra_on(node.kubelet, slice_of("acme.dev", [device("gpu-0"), device("gpu-1")]))
    await node.create(template("gpu", exactly()))
    await node.create(pod("one", templates=["gpu"]))
    await node.until(lambda: "Running" == node.status("one").get("phase"), "pod one")
    ((name, claim),) = [each.values() for each in node.status("one")["resourceClaimStatuses"]]
    assert ("gpu", True) == (name, claim in node.all("ResourceClaim"))
    await node.create(pod("two", limits={"acme.dev/gpu": "1"}))
    await node.until(lambda: "Running" == node.status("two").get("phase"), "pod two")
    extended = node.status("two")["extendedResourceClaimStatus"]
    assert extended["resourceClaimName"] in node.all("ResourceClaim")
    ((container, resource, _),) = [each.values() for each in extended["requestMappings"]]
    assert ("main", "acme.dev/gpu") == (container, resource)
    for each in ("one", "two"):
        await node.delete(each)
    await node.until(lambda: not node.all("Pod") and not node.all("ResourceClaim"), "the end of both")


@pytest.mark.parametrize("force", [False, True])
async def test_a_waiting_pod_that_is_deleted_leaves_no_claim(node, force):
    """Nothing is created for a pod that is deleted while the scheduler handles it."""
    await node.create(device_class("acme.dev"))
    await node.create(template("gpu", exactly()))
    names = [f"pod-{number}" for number in range(6)]
    for name in names:
        await node.create(pod(name, templates=["gpu"]))
    await node.until(lambda: len(names) == len(node.all("ResourceClaim")), "a claim for each")
    for name in names:
        await node.delete(name, force=force)
    await node.until(lambda: not node.all("Pod") and not node.kubelet.pods(), "the end of all pods")
    await node.create(pod("last", templates=["gpu"]))  # when it has a claim, the work for the other pods is over
    await node.until(lambda: any(each.startswith("last-") for each in node.all("ResourceClaim")), "the last claim")
    await node.until(lambda: 1 == len(node.all("ResourceClaim")), "the end of the other claims")
