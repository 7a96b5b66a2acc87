"""How the driver reads a cluster's objects; needs no cluster."""

import pytest

from tests.e2e import claims
from tests.e2e.cluster import ClusterDriver, Target, capacity, filled, placed, pod_status, unbound
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


@pytest.mark.parametrize(
    ("minor", "versions", "why"),
    [
        ("36", ["v1", "v1beta2"], ""),
        ("37+", ["v1"], ""),
        ("35", ["v1"], "the cluster is 1.35, and gates are off before 1.36"),
        ("33", ["v1beta1"], "the cluster has no resource.k8s.io/v1"),
    ],
)
def test_which_clusters_have_claims(minor, versions, why):
    """Those with the group, and with its gates on."""
    groups = [{"name": "resource.k8s.io", "versions": [{"version": each} for each in versions]}]
    assert why == claims.missing({"major": "1", "minor": minor}, {"groups": groups})


def test_a_pod_with_claims_is_the_schedulers():
    """It has the node under test alone to choose, and is not bound to it: nobody would allocate."""
    made = unbound(filled(manifest("one"), node="n1", image="i"), "host-1")["spec"]
    assert "nodeName" not in made
    assert {"kubernetes.io/hostname": "host-1"} == made["nodeSelector"]


def test_what_a_container_has_of_claims():
    """By the claims that the pod's status names, each request by itself, and the hidden one of extended resources."""
    pod = {
        "spec": {
            "resourceClaims": [
                {"name": "a", "resourceClaimName": "whole"},
                {"name": "b", "resourceClaimTemplateName": "t"},
            ],
            "containers": [{"name": "main", "resources": {"claims": [{"name": "a"}, {"name": "b", "request": "r"}]}}],
        },
        "status": {
            "resourceClaimStatuses": [{"name": "b", "resourceClaimName": "one-b-x"}],
            "extendedResourceClaimStatus": {
                "resourceClaimName": "one-extended-resources-y",
                "requestMappings": [
                    {"containerName": "main", "resourceName": NPU, "requestName": "container-0-request-0"}
                ],
            },
        },
    }
    hidden = "one-extended-resources-y"
    assert [("a", "whole", ""), ("b", "one-b-x", "r"), (hidden, hidden, "container-0-request-0")] == claims.uses(
        pod, pod["spec"]["containers"][0]
    )


def test_classes_say_whose_they_are():
    """They are in no namespace, and the next run takes away those of a run that was killed."""
    made = claims.placed({"kind": "DeviceClass", "metadata": {"name": "c"}, "spec": {}}, "e2e-1", "vdev.dev/e2e-run")
    assert ("resource.k8s.io/v1", {"vdev.dev/e2e-run": "e2e-1"}) == (made["apiVersion"], made["metadata"]["labels"])
    made = claims.placed({"kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "default"}}, "e2e-1", "x")
    assert {"name": "c", "namespace": "e2e-1"} == made["metadata"]


def test_roles_of_a_run_are_its_own():
    """The agent's role has the run's name in its own, so that no other agent loses or gets a permission by it."""
    driver = ClusterDriver(Target(namespace="e2e-1"))
    subject = {"kind": "ServiceAccount", "name": "vdev", "namespace": "vdev-system"}
    binding = {
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "vdev-dra"},
        "roleRef": {"kind": "ClusterRole", "name": "vdev-dra"},
        "subjects": [subject],
    }
    made = placed(binding, driver)
    assert ("vdev-dra-e2e-1", "vdev-dra-e2e-1", "e2e-1") == (
        made["metadata"]["name"],
        made["roleRef"]["name"],
        made["subjects"][0]["namespace"],
    )
    assert "namespace" not in made["metadata"]
