"""The tables in which kubectl shows Pods and Nodes."""

import datetime as dt

import pytest

from vdev.sim.api import tables

NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
KUBECTL = f"{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"


async def add(ask, path, name, status, **content):
    """Create an object with a status."""
    await ask("POST", path, {"metadata": {"name": name}, **content})
    code, _ = await ask("PATCH", f"{path}/{name}/status", {"status": status}, "application/merge-patch+json")
    assert 200 == code


def container(name="main", **state):
    """The status of a container: running, unless another state is given."""
    ready = not state
    return {"name": name, "image": "", "imageID": "", "ready": ready, "restartCount": 2, "state": state or RUNNING}


RUNNING = {"running": {}}
WAITING = {"waiting": {"reason": "CreateContainerError"}}
DONE, FAILED = ({"terminated": {"exitCode": code, "reason": why}} for code, why in ((0, "Completed"), (1, "Error")))
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
    "running": (main({}, {}), "Running"),
    "gated": ({"phase": "Pending"}, "SchedulingGated"),
    "pending": ({"phase": "Pending"}, "Pending"),
    "refused": ({"phase": "Failed", "reason": "UnexpectedAdmissionError"}, "UnexpectedAdmissionError"),
    "waiting": (main(WAITING, {}, phase="Pending"), "CreateContainerError"),
    "failed": (main(FAILED, {}), "Error"),
    "all are done": (main(DONE, DONE, phase="Succeeded"), "Succeeded"),
    "the first counts": (main(FAILED, WAITING), "Error"),
    "one is done": (main(DONE, {}, conditions=[READY]), "Running"),
    "an init container waits": (init(DONE, WAITING), "CreateContainerError"),
    "an init container fails": (init(FAILED), "Error"),
}


async def cells(ask, path):
    """The rows of a table, as cells by column."""
    status, table = await ask("GET", path, accept=KUBECTL)
    assert (200, "Table", "meta.k8s.io/v1") == (status, table["kind"], table["apiVersion"])
    names = [each["name"] for each in table["columnDefinitions"]]
    return [dict(zip(names, row["cells"], strict=True)) for row in table["rows"]]


@pytest.mark.parametrize("case", PODS_SHOWN)
async def test_how_a_pod_is_shown(ask, case):
    status, shown = PODS_SHOWN[case]
    gates = {"schedulingGates": [{"name": "example.com/quota"}]} if case == "gated" else {}
    await add(ask, PODS, "p", status, spec={"containers": [{"name": "c0", "image": "i"}], **gates})
    (row,) = await cells(ask, PODS)
    assert ("p", shown) == (row["Name"], row["Status"])


async def test_a_pod_that_is_deleted(ask):
    """It is Terminating until its node deletes it."""
    await add(ask, PODS, "p", main({}), spec={"nodeName": "n1", "containers": [{"name": "c0", "image": "i"}]})
    await ask("DELETE", f"{PODS}/p")
    (row,) = await cells(ask, PODS)
    assert "Terminating" == row["Status"]


@pytest.mark.parametrize(
    ("conditions", "spec", "shown"),
    [
        ([READY], {}, "Ready"),
        ([{**READY, "status": "Unknown"}], {}, "NotReady"),
        ([], {}, "Unknown"),
        ([READY], {"unschedulable": True}, "Ready,SchedulingDisabled"),
    ],
)
async def test_how_a_node_is_shown(ask, conditions, spec, shown):
    """By its condition Ready."""
    await add(ask, NODES, "n1", {"conditions": conditions}, spec=spec)
    (row,) = await cells(ask, NODES)
    assert shown == row["Status"]


async def test_the_object_of_a_row(ask):
    """It is complete, because kubectl sorts by its fields."""
    await add(ask, NODES, "n1", {"phase": "x"})
    _, table = await ask("GET", NODES, accept=KUBECTL)
    assert table["metadata"].keys() == {"resourceVersion"}
    found = table["rows"][0]["object"]
    assert ("Node", "v1", {"phase": "x"}) == tuple(found[each] for each in ("kind", "apiVersion", "status"))


async def test_a_watch_of_rows(ask):
    """Each event has a table of one row."""
    for name in ("n1", "n2"):
        await add(ask, NODES, name, {})
    added = await ask.watch(NODES, accept=KUBECTL)
    assert ["ADDED", "ADDED"] == [each["type"] for each in added]
    assert ["n1", "n2"] == [each["object"]["rows"][0]["cells"][0] for each in added]


@pytest.mark.parametrize(
    ("path", "accept"),
    [
        (NODES, f"application/json,{TABLE}"),
        (NODES, "application/vnd.kubernetes.protobuf,application/json"),
        (NODES, "*/*"),
        (MAPS, KUBECTL),
    ],
)
async def test_requests_that_get_objects(ask, path, accept):
    """Clients that prefer objects, and all clients for kinds without a table."""
    _, found = await ask("GET", path, accept=accept)
    assert found["kind"] in ("NodeList", "ConfigMapList")


def test_an_age(subtests):
    """It is shown in the largest unit of which it has at least two."""
    for seconds, shown in [(-9, "0s"), (119, "119s"), (3600, "60m"), (4 * 3600, "4h"), (49 * 3600, "2d")]:
        with subtests.test(seconds=seconds):
            assert shown == tables.age(dt.timedelta(seconds=seconds))
