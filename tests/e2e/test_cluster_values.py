"""How the driver reads a cluster's objects; needs no cluster."""

from tests.e2e.cluster import ClusterDriver, Target, capacity, filled, placed, pod_status
from vdev.sim import manifest
from vdev.sim.objects import pod_manifest
from vdev.sim.objects.pods import Phase

NPU = "acme.dev/npu"


def test_capacity_counts_extended_resources_only():
    """What is Kubernetes' own, and what is no whole number, is left out."""
    numbers = {"cpu": "2", "hugepages-2Mi": "0", "memory": "8Gi", NPU: "4", "attachable.kubernetes.io/x": "3"}
    node = {"status": {"capacity": numbers, "allocatable": numbers | {NPU: "3"}}}
    found = capacity(node)
    assert ({NPU: 4}, {NPU: 3}) == (found.capacity, found.allocatable)


def test_a_pod_on_a_real_cluster():
    """A scenario's pod gets an image, a command that waits, and the node; limits become quantities."""
    pod = manifest("one", {NPU: 2})
    pod["spec"]["initContainers"] = [{"name": "i", "resources": {"limits": {NPU: 1}}}]
    made = filled(pod, node="n1", image="vdev:dev")["spec"]
    assert ("n1", "vdev:dev", {NPU: "2"}) == (
        made["nodeName"],
        made["containers"][0]["image"],
        made["containers"][0]["resources"]["limits"],
    )
    assert ["true"] == made["initContainers"][0]["command"]


def test_a_refused_pod():
    """The kubelet's refusal comes through as it is."""
    status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Pod was rejected: no"}
    found = pod_status(pod_manifest.parse(manifest("one", {NPU: 1})), {"status": status})
    assert (Phase.FAILED, "UnexpectedAdmissionError") == (found.phase, found.reason)
    assert {} == found.container().devices


def test_devices_and_their_health():
    """A container's devices come from its allocatedResourcesStatus."""
    resources = [{"resourceID": "npu-1", "health": "Unhealthy"}, {"resourceID": "npu-0", "health": "Healthy"}]
    container = {"name": "main", "restartCount": 1, "state": {"running": {}}}
    container["allocatedResourcesStatus"] = [{"name": NPU, "resources": resources}]
    status = {"phase": "Running", "containerStatuses": [container]}
    found = pod_status(pod_manifest.parse(manifest("one", {NPU: 2})), {"status": status}).container()
    assert (True, 1, {NPU: ("npu-0", "npu-1")}) == (found.running, found.restarts, found.devices)
    assert {"npu-0": "Healthy", "npu-1": "Unhealthy"} == found.health[NPU]


def test_the_agent_runs_on_one_node_only():
    """The DaemonSet is kept to the node under test, and its file decides on the strategy."""
    container = {"image": "vdev", "args": ["run", "--device-list-strategy=cdi-cri"]}
    document = {"kind": "DaemonSet", "metadata": {}, "spec": {"template": {"spec": {"containers": [container]}}}}
    driver = ClusterDriver(Target(node="n1", image="mine:1", namespace="e2e"))
    made = placed(document, driver)["spec"]["template"]["spec"]
    assert {"kubernetes.io/hostname": "n1"} == made["nodeSelector"]
    assert ("mine:1", ["run"]) == (made["containers"][0]["image"], made["containers"][0]["args"])
