"""How the API server treats unknown fields, null, and fields that only it writes."""

import pytest

from tests.kit.rest import Caller
from vdev.sim.api.server import ApiServer

NODES, PODS, MAPS = "/api/v1/nodes", "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/configmaps"
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"


@pytest.fixture
async def ask():
    """A client of a server."""
    async with ApiServer() as server:
        yield Caller(server)


def of(kind, name="one", **more):
    """An object of the core group."""
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **more}


async def test_an_unknown_field_of_dra_is_refused(ask):
    """A real server drops the field with a warning."""
    document = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "c"}, "spec": {"x": 1}}
    status, answer = await ask("POST", CLASSES, document)
    assert (422, "spec.x") == (status, answer["details"]["causes"][0]["field"])


async def test_null_is_left_out(ask):
    """Go clients, for example, send a creation time of null."""
    document = of("ConfigMap", data={"b": "1"}, binaryData=None)
    document["metadata"]["annotations"] = None
    _, made = await ask("POST", MAPS, document)
    assert {"b": "1"} == made["data"]
    assert "binaryData" not in made
    assert "annotations" not in made["metadata"]


async def test_fields_that_only_the_server_writes(ask):
    """A write neither changes nor removes them."""
    _, made = await ask("POST", MAPS, of("ConfigMap"))
    gone = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert made == (await ask("PATCH", f"{MAPS}/one", gone, MERGE))[1]
    for change, code in (({"name": "two"}, 400), ({"namespace": "other"}, 400), ({"uid": "1"}, 422)):
        assert code == (await ask("PATCH", f"{MAPS}/one", {"metadata": change}, MERGE))[0]
    bare = of("ConfigMap") | {"metadata": {"name": "one", "resourceVersion": made["metadata"]["resourceVersion"]}}
    _, changed = await ask("PUT", f"{MAPS}/one", bare | {"data": {"a": "b"}})
    for field in ("uid", "namespace", "creationTimestamp"):
        assert made["metadata"][field] == changed["metadata"][field]


async def test_an_unknown_field_of_a_claims_status(ask):
    """It is refused like an unknown field of the spec."""
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    request = {"name": "r", "exactly": {"deviceClassName": "c"}}
    await ask("POST", path, {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}})
    status, answer = await ask("PATCH", f"{path}/c/status", {"status": {"alocation": {}}}, MERGE)
    assert (422, "status.alocation") == (status, answer["details"]["causes"][0]["field"])
    result = {"request": "r", "driver": "a.dev", "pool": "p", "device": "d"}
    allocation = {"status": {"allocation": {"devices": {"results": [result]}}}}
    assert 200 == (await ask("PATCH", f"{path}/c/status", allocation, MERGE))[0]
