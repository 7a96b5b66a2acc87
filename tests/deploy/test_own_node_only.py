"""The admission policy that limits an agent's token to its own Node."""

import copy

import yaml

from tests.kit.admission import ERROR, check_policy
from tests.kit.manifests import DEPLOY

POLICY, BINDING = yaml.safe_load_all((DEPLOY / "components" / "own-node-only" / "policy.yaml").read_text())
NODE_NAME = "authentication.kubernetes.io/node-name"
AGENT = "system:serviceaccount:vdev-system:vdev"
NO_NODE = "the token names no node; vdev has to use the one that the kubelet mounts into its pod"
ANOTHER_NODE = 'vdev on node "worker-1" may not change node "worker-2"'
ANOTHER_EVENT = 'vdev on node "worker-1" may only write Events about this node'
ANOTHER_SLICE = 'vdev on node "worker-1" may only publish ResourceSlices of this node'
SPEC = "vdev may not change the spec of a Node, such as its taints"
ISOLATION = "vdev may not change labels of node-restriction.kubernetes.io and node-role.kubernetes.io"
METADATA = "vdev may not change owners and finalizers of a Node"


def user(name=AGENT, **extra):
    """The user of a request. Without `extra`, the key is missing, as in requests of the API server."""
    return {"username": name, "groups": ["system:serviceaccounts"]} | ({"extra": extra} if extra else {})


def bound(name=AGENT, node="worker-1"):
    """The user of a token that the kubelet mounts into a pod."""
    return user(name, **{"authentication.kubernetes.io/pod-name": ["vdev-x"], NODE_NAME: [node]})


def node(name="worker-1", spec=None, more=None, **labels):
    """A Node; without `labels` its metadata has no `labels` key."""
    metadata = {"name": name} | ({"labels": labels} if labels else {}) | (more or {})
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec or {}}


def event(name="worker-1", kind="Node"):
    about = {"kind": kind, "name": name, "uid": "1"}
    return {"apiVersion": "v1", "kind": "Event", "metadata": {"namespace": "default"}, "involvedObject": about}


def a_slice(pool="worker-1", **where):
    """A ResourceSlice; by default of the agent's node."""
    spec = {"driver": "acme.dev", "pool": {"name": pool}, **(where or {"nodeName": "worker-1"})}
    metadata = {"name": "00000-acme.dev-worker-1-x7k2p"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": spec}


THEIRS = a_slice("worker-2", nodeName="worker-2")


def asked(resource, operation="UPDATE", who=None, group="", version="v1"):
    """An admission request for `nodes`, `nodes/status`, `events` or `resourceslices`."""
    resource, _, part = resource.partition("/")
    group = "resource.k8s.io" if resource == "resourceslices" else group
    kind = {"group": group, "version": version, "resource": resource}
    return {
        "operation": operation,
        "userInfo": who or bound(),
        "resource": kind,
        "subResource": part,
        "name": "worker-2",
    }


ROLE = {"node-role.kubernetes.io/control-plane": ""}
OWNER = {"ownerReferences": [{"kind": "Pod", "name": "p", "uid": "1"}]}
FINALIZER = {"finalizers": ["a.example/b"]}
SECRET = {"acme.node-restriction.kubernetes.io/secret": "yes"}
NAMELESS = copy.deepcopy(event())
del NAMELESS["involvedObject"]["name"]

REQUESTS = {
    "labels of the own node": (asked("nodes"), node(), node(), ""),
    "status of the own node": (asked("nodes/status"), node(), node(), ""),
    "a label more": (asked("nodes"), node(), node(a="b"), ""),
    "a label another": (asked("nodes"), node(a="b", c="d"), node(a="c", c="d"), ""),
    "a label less": (asked("nodes"), node(a="b"), node(), ""),
    "a taint less": (asked("nodes"), node(spec={"taints": [{"key": "a"}]}), node(), SPEC),
    "a label of isolation more": (asked("nodes"), node(a="b"), node(a="b", **SECRET), ISOLATION),
    "the first label, of isolation": (asked("nodes"), node(), node(**SECRET), ISOLATION),
    "a label of isolation another": (asked("nodes"), node(**SECRET), node(**dict.fromkeys(SECRET, "no")), ISOLATION),
    "a label of isolation less": (asked("nodes"), node(**SECRET), node(a="b"), ISOLATION),
    "a label of isolation as it was": (asked("nodes"), node(**SECRET), node(a="b", **SECRET), ""),
    "a role more": (asked("nodes"), node(), node(**ROLE), ISOLATION),
    "a role less": (asked("nodes"), node(**ROLE), node(), ISOLATION),
    "an owner": (asked("nodes"), node(), node(more=OWNER), METADATA),
    "an owner less": (asked("nodes"), node(more=OWNER), node(), METADATA),
    "a finalizer": (asked("nodes"), node(), node(more=FINALIZER), METADATA),
    "a finalizer as it was": (asked("nodes"), node(more=FINALIZER), node(more=FINALIZER, a="b"), ""),
    "labels of another node": (asked("nodes"), node("worker-2"), node("worker-2"), ANOTHER_NODE),
    "status of another node": (asked("nodes/status"), node("worker-2"), node("worker-2"), ANOTHER_NODE),
    "another node by the name of the own one": (asked("nodes"), node("worker-2"), node(), ANOTHER_NODE),
    "a new node": (asked("nodes", "CREATE"), None, node("worker-2"), ANOTHER_NODE),
    "another node's end": (asked("nodes", "DELETE"), node("worker-2"), None, ANOTHER_NODE),
    "an event about the own node": (asked("events", "CREATE"), None, event(), ""),
    "the own event again": (asked("events"), event(), event(), ""),
    "an event about another node": (asked("events", "CREATE"), None, event("worker-2"), ANOTHER_EVENT),
    "another node's event again": (asked("events"), event("worker-2"), event("worker-2"), ANOTHER_EVENT),
    "another node's event taken over": (asked("events"), event("worker-2"), event(), ANOTHER_EVENT),
    "the own event given away": (asked("events"), event(), event("worker-2"), ANOTHER_EVENT),
    "an event about a pod of that name": (asked("events", "CREATE"), None, event(kind="Pod"), ANOTHER_EVENT),
    "an event about no name": (asked("events", "CREATE"), None, NAMELESS, ERROR),
    "a slice of the own node": (asked("resourceslices", "CREATE"), None, a_slice(), ""),
    "the own slice again": (asked("resourceslices"), a_slice(), a_slice(), ""),
    "the own slice's end": (asked("resourceslices", "DELETE"), a_slice(), None, ""),
    "a slice of another node": (asked("resourceslices", "CREATE"), None, THEIRS, ANOTHER_SLICE),
    "another node's slice again": (asked("resourceslices"), THEIRS, THEIRS, ANOTHER_SLICE),
    "another node's slice taken over": (asked("resourceslices"), THEIRS, a_slice(), ANOTHER_SLICE),
    "the own slice given away": (asked("resourceslices"), a_slice(), THEIRS, ANOTHER_SLICE),
    "another node's slice's end": (asked("resourceslices", "DELETE"), THEIRS, None, ANOTHER_SLICE),
    "a slice of another node, by an older version": (
        asked("resourceslices", "CREATE", version="v1beta1"), None, THEIRS, ANOTHER_SLICE,
    ),
    "a slice of the own node in the pool of another one": (
        asked("resourceslices", "CREATE"), None, a_slice("worker-2"), ANOTHER_SLICE,
    ),
    "a slice of another node in the own pool": (
        asked("resourceslices", "CREATE"), None, a_slice(nodeName="worker-2"), ANOTHER_SLICE,
    ),
    "a slice of all nodes": (asked("resourceslices", "CREATE"), None, a_slice(allNodes=True), ANOTHER_SLICE),
    "a slice of all nodes' end": (asked("resourceslices", "DELETE"), a_slice(allNodes=True), None, ANOTHER_SLICE),
    "a slice, and no node in the token": (asked("resourceslices", "CREATE", user()), None, a_slice(), NO_NODE),
    "a slice's end, and no node in the token": (asked("resourceslices", "DELETE", user()), a_slice(), None, NO_NODE),
    "a slice of another driver": (
        asked("resourceslices", "CREATE", bound("system:serviceaccount:nvidia:driver")), None, THEIRS, "",
    ),
    "the kubelet that wipes": (
        asked("resourceslices", "DELETE", user("system:node:worker-2")), THEIRS, None, "",
    ),
    "no extra values": (asked("nodes", who=user()), node(), node(), NO_NODE),
    "no node in the token": (asked("nodes", who=user(other=["worker-1"])), node(), node(), NO_NODE),
    "an event, and no node in the token": (asked("events", "CREATE", user()), None, event(), NO_NODE),
    "an empty node in the token": (asked("nodes", who=bound(node="")), node(""), node(""), NO_NODE),
    "a node in the token without a value": (asked("nodes", who=user(**{NODE_NAME: []})), node(), node(), ERROR),
    "an account of another name": (asked("nodes", who=bound(f"{AGENT}-2")), node("worker-2"), node("worker-2"), ""),
    "the same name in another namespace": (
        asked("nodes", who=bound("system:serviceaccount:default:vdev")), node("worker-2"), node("worker-2"), "",
    ),
    "a kubelet": (asked("nodes/status", who=user("system:node:worker-2")), node("worker-2"), node("worker-2"), ""),
    "a person": (asked("events", "CREATE", user("admin")), None, event("worker-2"), ""),
    "something else": (asked("pods", "DELETE"), {"metadata": {"name": "a"}}, None, ""),
    "nodes of another group": (asked("nodes", group="metrics.k8s.io"), node("worker-2"), node("worker-2"), ""),
}  # fmt: skip


def test_each_request(subtests):
    """The agent's token may change its own node and Events about it; other accounts are not affected."""
    check_policy(subtests, POLICY, BINDING, REQUESTS)
