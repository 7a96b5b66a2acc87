"""The tables in which kubectl shows Pods and Nodes."""

import pytest

from tests.kit.rest import Caller
from vdev.sim.api.server import ApiServer

NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
KUBECTL = f"{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"


@pytest.fixture
async def server():
    """A server of 1.36."""
    async with ApiServer() as api:
        yield api


class Store:
    """Creates objects with any status."""

    def __init__(self, api):
        self.objects, self.kind = api.objects, api.kind

    def add(self, kind, name, status, **content):
        """Create an object."""
        kind = self.kind(kind)
        where = "default" if kind.namespaced else ""
        metadata = {"name": name, **content.pop("metadata", {})}
        new = self.objects.create(kind, where, {"metadata": metadata, **content}, "test")
        key = where, name
        return self.objects.change(kind, key, {**new, "status": status}, manager="test", subresource="status")


def container(name="main", **state):
    """The status of a container: running, unless another state is given."""
    ready = not state
    return {"name": name, "image": "", "imageID": "", "ready": ready, "restartCount": 2, "state": state or RUNNING}


RUNNING = {"running": {}}
WAITING = {"waiting": {"reason": "CreateContainerError"}}
DONE, FAILED = ({"terminated": {"exitCode": code, "reason": why}} for code, why in ((0, "Completed"), (1, "Error")))
GATED = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
READY = {"type": "Ready", "status": "True"}
INITS = [{"name": "first"}, {"name": "side", "restartPolicy": "Always"}]


def main(*states, phase="Running", **more):
    """The status of a pod whose containers are in these states."""
    return {"phase": phase, "containerStatuses": [container(f"c{n}", **each) for n, each in enumerate(states)], **more}


def init(*states, **more):
    """The status of a pod that waits for its init containers."""
    rows = [container(each["name"], **state) for each, state in zip(INITS, states, strict=False)]
    return {"phase": "Pending", "initContainerStatuses": rows, **more}


PODS_SHOWN = {
    "running": (main({}, {}), "2/2", "Running", "4"),
    "pending": ({"phase": "Pending"}, "0/2", "Pending", "0"),
    "refused": ({"phase": "Failed", "reason": "UnexpectedAdmissionError"}, "0/2", "UnexpectedAdmissionError", "0"),
    "waiting": (main(WAITING, {}, phase="Pending"), "1/2", "CreateContainerError", "4"),
    "failed": (main(FAILED, {}), "1/2", "Error", "4"),
    "all are done": (main(DONE, DONE, phase="Succeeded"), "0/2", "Completed", "4"),
    "the first counts": (main(FAILED, WAITING), "0/2", "Error", "4"),
    "one is done": (main(DONE, {}, conditions=[READY]), "1/2", "Running", "4"),
    "gated": ({"phase": "Pending", "conditions": [GATED]}, "0/2", "SchedulingGated", "0"),
}
INITS_SHOWN = {
    "the first is done": (init(DONE, WAITING), "0/3", "Init:CreateContainerError"),
    "the first fails": (init(FAILED), "0/3", "Init:Error"),
    "the sidecar runs": (
        {
            **main({}, {}),
            "initContainerStatuses": [container("first", **DONE), container("side")],
        },
        "3/3",
        "Running",
    ),
}


async def cells(server, path, accept=KUBECTL):
    """The rows of a table, as cells by column."""
    status, table = await Caller(server)("GET", path, accept=accept)
    assert (200, "Table", "meta.k8s.io/v1") == (status, table["kind"], table["apiVersion"])
    names = [each["name"] for each in table["columnDefinitions"]]
    return [dict(zip(names, row["cells"], strict=True)) for row in table["rows"]]


@pytest.mark.parametrize("case", PODS_SHOWN)
async def test_how_a_pod_is_shown(server, case):
    """Ready containers, the reason, restarts."""
    status, ready, reason, restarts = PODS_SHOWN[case]
    gates = {"schedulingGates": [{"name": "acme.dev/gate"}]} if case == "gated" else {}
    spec = {"containers": [{"name": "c0", "image": "i"}, {"name": "c1", "image": "i"}], **gates}
    Store(server).add("Pod", "p", status, spec=spec)
    (row,) = await cells(server, PODS)
    assert ("p", ready, reason, restarts) == tuple(row[each] for each in ("Name", "Ready", "Status", "Restarts"))


@pytest.mark.parametrize("case", INITS_SHOWN)
async def test_how_a_pod_with_init_containers_is_shown(server, case):
    """A sidecar counts as a container."""
    status, ready, reason = INITS_SHOWN[case]
    containers = [{"name": "c0", "image": "i"}, {"name": "c1", "image": "i"}]
    spec = {"initContainers": [{**each, "image": "i"} for each in INITS], "containers": containers}
    Store(server).add("Pod", "p", status, spec=spec)
    (row,) = await cells(server, f"{PODS}/p")
    assert (ready, reason) == (row["Ready"], row["Status"])


async def test_a_pod_that_is_deleted(server):
    """It is Terminating until its node deletes it."""
    spec = {"nodeName": "n1", "containers": [{"name": "c0", "image": "i"}]}
    Store(server).add("Pod", "p", main({}), spec=spec)
    await Caller(server)("DELETE", f"{PODS}/p")
    (row,) = await cells(server, PODS)
    assert ("Terminating", "n1", "<none>") == tuple(row[each] for each in ("Status", "Node", "IP"))


@pytest.mark.parametrize(
    ("conditions", "spec", "shown"),
    [
        ([READY], {}, "Ready"),
        ([{**READY, "status": "Unknown"}], {}, "NotReady"),
        ([], {}, "Unknown"),
        ([READY], {"unschedulable": True}, "Ready,SchedulingDisabled"),
    ],
)
async def test_how_a_node_is_shown(server, conditions, spec, shown):
    """By its condition Ready, roles and version."""
    labels = {"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/gpu": "", "kubernetes.io/role": "edge"}
    status = {"conditions": conditions, "nodeInfo": {"kubeletVersion": "v1.36.2"}}
    Store(server).add("Node", "n1", status, spec=spec, metadata={"labels": labels})
    Store(server).add("Node", "n2", {})
    first, second = await cells(server, NODES)
    assert (shown, "edge,gpu,worker", "v1.36.2") == (first["Status"], first["Roles"], first["Version"])
    assert ("Unknown", "<none>") == (second["Status"], second["Roles"])
