"""The admission policy that limits a fleet's token to its own Nodes and to device annotations of pods."""

import functools

import pytest
import yaml

from tests.kit.admission import check_policy, refusal
from tests.kit.manifests import DEPLOY, charted, helm

POLICY, BINDING = yaml.safe_load_all((DEPLOY / "fleet/components/own-nodes-only/policy.yaml").read_text())
FLEET = "system:serviceaccount:vdev-system:vdev-fleet"
NOT_MINE = 'the fleet may not change node "x": it did not make it, and the node is none of those that it may choose'
SPEC = "the fleet may not change the spec of a Node that it did not make, such as its taints"
ISOLATION = (
    "the fleet may not change vdev.dev/made-by and labels of node-restriction.kubernetes.io and node-role.kubernetes.io"
)
OWNERS = "the fleet may not change owners and finalizers of a Node that it did not make"
STATUS = "the fleet may not change conditions and addresses of pods"
NO_PODS = "the fleet may not make, change or delete pods"
METADATA = "the fleet may not change labels, owners and finalizers of pods"
ANNOTATIONS = "of a pod's annotations the fleet may only change vdev.dev/devices"
PHASE = "the fleet may only let a pod fail as a kubelet does that does not admit it"
ABOUT = "the fleet may only write Events about nodes and pods"
ONE_NODE = "the fleet may only publish ResourceSlices of one node each"
MADE, MARK = {"vdev.dev/made-by": "vdev-fleet"}, {"vdev.dev/fleet": "vdev-fleet"}
KWOK = {"type": "kwok"}
TAINTS = {"taints": [{"key": "a", "effect": "NoSchedule"}]}


def asked(resource, operation="UPDATE", who=FLEET):
    """An admission request for a resource or `resource/subresource`."""
    resource, _, part = resource.partition("/")
    group = "resource.k8s.io" if resource == "resourceslices" else ""
    return {
        "operation": operation,
        "userInfo": {"username": who, "groups": ["system:serviceaccounts"]},
        "resource": {"group": group, "version": "v1", "resource": resource},
        "subResource": part,
        "name": "x",
    }


def node(labels=None, annotations=None, spec=None, **more):
    """A Node; without `labels` its metadata has no `labels` key."""
    metadata = {"name": "x"} | ({"labels": labels} if labels else {})
    metadata |= {"annotations": annotations} if annotations else {}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata | more, "spec": spec or {}}


def pod(annotations=None, image="a", status=None, **metadata):
    metadata |= {"name": "x"} | ({"annotations": annotations} if annotations else {})
    spec = {"nodeName": "n", "containers": [{"name": "c", "image": image}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status or {}}


def event(kind):
    """An Event about an object of this kind."""
    return {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "involvedObject": {"kind": kind}}


def a_slice(pool="n", **where):
    spec = {"driver": "acme.dev", "pool": {"name": pool}, **(where or {"nodeName": "n"})}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "x"}, "spec": spec}


HELD, FOREIGN = {"vdev.dev/devices": "{}"}, {"a.example/b": "c"}
REFUSED = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}
REQUESTS = {
    "a node to make": (asked("nodes", "CREATE"), None, node(MADE), ""),
    "a node that looks like a real one": (asked("nodes", "CREATE"), None, node(), NOT_MINE),
    "another fleet's node to make": (
        asked("nodes", "CREATE"), None, node({"vdev.dev/made-by": "lab"}), NOT_MINE,
    ),
    "a node for KWOK that it did not make": (asked("nodes", "CREATE"), None, node(KWOK), NOT_MINE),
    "taints of a made node": (asked("nodes"), node(MADE), node(MADE, spec=TAINTS), ""),
    "the end of a made node": (asked("nodes", "DELETE"), node(MADE), None, ""),
    "the end of a real node": (asked("nodes", "DELETE"), node(), None, NOT_MINE),
    "the end of a chosen node": (asked("nodes", "DELETE"), node(KWOK, MARK), None, NOT_MINE),
    "a real node taken as made": (asked("nodes"), node(), node(MADE), NOT_MINE),
    "a chosen node taken as made": (asked("nodes"), node(KWOK, MARK), node(KWOK | MADE, MARK), ISOLATION),
    "a made node that got a kubelet": (asked("nodes"), node(MADE, spec=TAINTS), node(), ""),
    "a mark on a chosen node": (asked("nodes"), node(KWOK), node(KWOK, MARK), ""),
    "labels of a chosen node": (asked("nodes"), node(KWOK, MARK), node({**KWOK, "a": "b"}, MARK), ""),
    "what is taken back of a node that lost its label": (
        asked("nodes"), node({"type": "x", "a": "b"}, MARK), node({"type": "x"}, MARK), "",
    ),
    "a mark that goes": (asked("nodes"), node(None, MARK), node(), ""),
    "a mark on a real node": (asked("nodes"), node(), node(None, MARK), NOT_MINE),
    "labels of a real node": (asked("nodes"), node({"b": "c"}), node({"a": "b"}), NOT_MINE),
    "a real node made one to choose": (asked("nodes"), node({"b": "c"}), node(KWOK), NOT_MINE),
    "status of a real node": (asked("nodes/status"), node(), node(), NOT_MINE),
    "status of a node that another fleet has": (
        asked("nodes/status"), node({"type": "x"}, {"vdev.dev/fleet": "lab"}),
        node({"type": "x"}, {"vdev.dev/fleet": "lab"}), NOT_MINE,
    ),
    "status of a chosen node": (asked("nodes/status"), node(KWOK), node(KWOK), ""),
    "status of a made node": (asked("nodes/status"), node(MADE), node(MADE), ""),
    "taints of a chosen node": (asked("nodes"), node(KWOK), node(KWOK, spec=TAINTS), SPEC),
    "a label of isolation": (
        asked("nodes"), node(KWOK), node({**KWOK, "a.node-restriction.kubernetes.io/b": "c"}), ISOLATION,
    ),
    "a label of isolation of a made node": (
        asked("nodes"), node(MADE), node({**MADE, "a.node-restriction.kubernetes.io/b": "c"}), "",
    ),
    "a role of a chosen node": (
        asked("nodes"), node(KWOK), node({**KWOK, "node-role.kubernetes.io/control-plane": ""}), ISOLATION,
    ),
    "an owner of a chosen node": (asked("nodes"), node(KWOK), node(KWOK, ownerReferences=[{"name": "a"}]), OWNERS),
    "a finalizer of a chosen node": (asked("nodes"), node(KWOK, finalizers=["a"]), node(KWOK), OWNERS),
    "who holds what": (asked("pods"), pod(), pod(HELD), ""),
    "who holds what, beside others": (asked("pods"), pod(FOREIGN), pod({**FOREIGN, **HELD}), ""),
    "another annotation": (asked("pods"), pod(), pod(FOREIGN), ANNOTATIONS),
    "one annotation less": (asked("pods"), pod({**FOREIGN, **HELD}), pod(HELD), ANNOTATIONS),
    "another image": (asked("pods"), pod(), pod(HELD, image="b"), NO_PODS),
    "a new pod": (asked("pods", "CREATE"), None, pod(), NO_PODS),
    "a pod's end": (asked("pods", "DELETE"), pod(), None, NO_PODS),
    "a pod's labels": (asked("pods"), pod(), pod(HELD, labels={"app": "x"}), METADATA),
    "a pod's owner": (asked("pods"), pod(ownerReferences=[{"name": "a"}]), pod(), METADATA),
    "a pod's finalizer": (asked("pods"), pod(finalizers=["a"]), pod(finalizers=["b"]), METADATA),
    "health of what a pod has": (
        asked("pods/status"), pod(HELD, status={"phase": "Running"}),
        pod(HELD, status={"phase": "Running", "containerStatuses": []}), "",
    ),
    "a pod that a kubelet would refuse": (
        asked("pods/status"), pod(status={"phase": "Pending"}), pod(status=REFUSED), "",
    ),
    "a pod that fails otherwise": (
        asked("pods/status"), pod(status={"phase": "Running"}), pod(status={"phase": "Failed"}), PHASE,
    ),
    "a pod's address": (
        asked("pods/status"), pod(status={"podIP": "10.0.0.1"}), pod(status={"podIP": "10.0.0.2"}), STATUS,
    ),
    "a pod that becomes Ready": (
        asked("pods/status"), pod(status={"phase": "Running"}),
        pod(status={"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}), STATUS,
    ),
    "a pod that is Ready, refused": (
        asked("pods/status"), pod(status={"conditions": [{"type": "PodScheduled"}]}),
        pod(status=REFUSED | {"conditions": [{"type": "PodScheduled"}]}), "",
    ),
    "a pod that succeeds": (
        asked("pods/status"), pod(status={"phase": "Running"}), pod(status={"phase": "Succeeded"}), PHASE,
    ),
    "an event about a node": (asked("events", "CREATE"), None, event("Node"), ""),
    "an event about a pod again": (asked("events"), event("Pod"), event("Pod"), ""),
    "an event about a secret": (asked("events", "CREATE"), None, event("Secret"), ABOUT),
    "slices of a node": (asked("resourceslices", "CREATE"), None, a_slice(), ""),
    "a slice's end": (asked("resourceslices", "DELETE"), a_slice(), None, ""),
    "a slice of all nodes": (asked("resourceslices", "CREATE"), None, a_slice(allNodes=True), ONE_NODE),
    "a slice in the pool of another node": (
        asked("resourceslices", "CREATE"), None, a_slice("m", nodeName="n"), ONE_NODE,
    ),
    "a person": (asked("nodes", "DELETE", "admin"), node(), None, ""),
    "an agent": (asked("nodes", who="system:serviceaccount:vdev-system:vdev"), node(), node({"a": "b"}), ""),
}  # fmt: skip


def test_each_request(subtests):
    """The fleet's token may write its own Nodes and annotations of pods; other accounts are not affected."""
    check_policy(subtests, POLICY, BINDING, REQUESTS)


@functools.cache
def chart(labels):
    """The policy that the chart renders for release `lab` and nodes with these labels."""
    values = {"fleet": {"enabled": True, "ownNodesOnly": {"enabled": True, "labels": dict(labels)}}}
    (spec,) = (each["spec"] for each in charted(values, release="lab") if each["kind"] == "ValidatingAdmissionPolicy")
    return spec


@helm
@pytest.mark.parametrize(
    ("labels", "wanted"),
    [
        ({}, [NOT_MINE] * 3),
        ({"type": "kwok", "pool": "a"}, [NOT_MINE, NOT_MINE, ""]),
        ({"pool": "a"}, [NOT_MINE, "", ""]),
    ],
)
def test_configured_labels(labels, wanted):
    """A node must have all configured labels; without any, only nodes that the fleet created are allowed."""
    nodes = [node(KWOK), node({"pool": "a"}), node({**KWOK, "pool": "a"})]
    request = asked("nodes/status", who="system:serviceaccount:vdev-system:lab-vdev-fleet")
    # Helm merges mappings; null removes the default label
    spec = chart(tuple(({"type": None} | labels).items()))
    assert wanted == [refusal(spec, request, each, each) for each in nodes]
