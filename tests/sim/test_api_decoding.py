"""What the API server makes of fields that it does not know, of other types, and of what only it may write."""

import pytest

from tests.kit.rest import Caller
from vdev.sim.api.server import ApiServer

NODES, PODS, MAPS = "/api/v1/nodes", "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/configmaps"
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"


@pytest.fixture
async def ask():
    """A caller of a server."""
    async with ApiServer() as server:
        yield Caller(server)


def of(kind, name="one", **more):
    """An object of the core's group."""
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **more}


async def test_unknown_fields_are_lost_with_a_warning(ask):
    """Or without one, or the object is refused: as the client wants it."""
    written = of("Node", spec={"taint": []}, foo=1)
    status, made, warned = await ask.whole("POST", NODES, written)
    assert (201, False, {}) == (status, "foo" in made, made["spec"])
    assert ['299 - "unknown field \\"spec.taint\\""', '299 - "unknown field \\"foo\\""'] == warned
    status, _, warned = await ask.whole("PUT", f"{NODES}/one?fieldValidation=Ignore", made | {"foo": 1})
    assert (200, []) == (status, warned)
    status, answer = await ask("POST", f"{NODES}?fieldValidation=Strict", written)
    assert (400, "BadRequest") == (status, answer["reason"])
    assert answer["message"].endswith('strict decoding error: unknown field "spec.taint", unknown field "foo"')
    status, answer = await ask("PATCH", f"{NODES}/one?fieldValidation=Strict", {"foo": 1}, MERGE)
    assert (422, True) == (status, 'strict decoding error: unknown field "foo"' in answer["message"])
    status, answer = await ask("POST", f"{NODES}?fieldValidation=Loose", written)
    assert (422, "fieldValidation") == (status, answer["details"]["causes"][0]["field"])


async def test_an_unknown_field_of_dra_is_refused(ask):
    """Which is more than a real server does: there the field would be gone with a warning that few read."""
    document = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "c"}, "spec": {"x": 1}}
    assert 422 == (await ask("POST", CLASSES, document))[0]
    assert 400 == (await ask("POST", f"{CLASSES}?fieldValidation=Strict", document))[0]


@pytest.mark.parametrize(
    ("path", "document", "why"),
    [
        (MAPS, of("ConfigMap", data={"a": 1}), "cannot unmarshal number into Go struct field ConfigMap.data"),
        (MAPS, of("ConfigMap", data=[]), "cannot unmarshal array"),
        (NODES, of("Node") | {"metadata": {"name": "n", "labels": {"a": True}}}, "cannot unmarshal bool"),
        (NODES, of("Node") | {"metadata": 5}, "cannot unmarshal number"),
        (NODES, of("Node", spec={"taints": [{"key": "a", "timeAdded": "today"}]}), 'parsing time "today"'),
        (PODS, of("Pod", spec={"containers": [{"name": "c", "command": "x"}]}), "of type []string"),
        (PODS, of("Pod", spec={"priority": 2**31}), "of type int32"),
    ],
)
async def test_a_value_of_another_type(ask, path, document, why):
    """It is a bad request."""
    status, answer = await ask("POST", path, document)
    assert (400, "BadRequest") == (status, answer["reason"])
    assert why in answer["message"]


async def test_nothing_is_no_value(ask):
    """What is null is left out; as an item it is a value without content."""
    document = of("ConfigMap", data={"a": None, "b": "1"}, binaryData=None)
    _, made = await ask("POST", MAPS, document)
    assert {"a": "", "b": "1"} == made["data"]
    assert "binaryData" not in made


async def test_the_kind_may_be_left_to_the_path(ask):
    """As items of a list have none."""
    status, made = await ask("POST", MAPS, {"metadata": {"name": "m"}})
    assert (201, "ConfigMap") == (status, made["kind"])
    del made["kind"], made["apiVersion"]
    assert 200 == (await ask("PUT", f"{MAPS}/m", made))[0]


async def test_what_only_the_server_writes(ask):
    """A deletion is asked for; what a write leaves out of it stays."""
    _, made = await ask("POST", MAPS, of("ConfigMap"))
    gone = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    status, answer = await ask("PATCH", f"{MAPS}/one", gone, MERGE)
    assert (422, "metadata.deletionTimestamp") == (status, answer["details"]["causes"][0]["field"])
    for change, code in (({"name": "two"}, 400), ({"namespace": "other"}, 400), ({"uid": "1"}, 422)):
        assert code == (await ask("PATCH", f"{MAPS}/one", {"metadata": change}, MERGE))[0]
    bare = of("ConfigMap") | {"metadata": {"name": "one", "resourceVersion": made["metadata"]["resourceVersion"]}}
    _, changed = await ask("PUT", f"{MAPS}/one", bare | {"data": {"a": "b"}})
    for field in ("uid", "namespace", "creationTimestamp"):
        assert made["metadata"][field] == changed["metadata"][field]


async def test_no_new_finalizers_for_what_goes(ask):
    """Those that are there can only be taken away."""
    one = of("ConfigMap") | {"metadata": {"name": "one", "finalizers": ["a.dev/x"]}}
    await ask("POST", MAPS, one)
    await ask("DELETE", f"{MAPS}/one")
    more = {"metadata": {"finalizers": ["a.dev/x", "a.dev/y"]}}
    status, answer = await ask("PATCH", f"{MAPS}/one", more, MERGE)
    assert (422, "FieldValueForbidden") == (status, answer["details"]["causes"][0]["reason"])
    status, answer = await ask(
        "POST", MAPS, of("ConfigMap", "two") | {"metadata": {"name": "two", "finalizers": ["x"]}}
    )
    assert (422, "metadata.finalizers[0]") == (status, answer["details"]["causes"][0]["field"])


async def test_a_map_is_no_larger_than_a_mebibyte(ask):
    """Whatever is in it."""
    status, answer = await ask("POST", MAPS, of("ConfigMap", data={"a": "x" * 1_048_577}))
    assert (422, "FieldValueTooLong") == (status, answer["details"]["causes"][0]["reason"])
    status, answer = await ask("POST", MAPS, of("ConfigMap", data={"a": "x"}, binaryData={"a": "eA=="}))
    assert (422, "data[a]") == (status, answer["details"]["causes"][0]["field"])


async def test_what_is_stored_is_never_changed(ask):
    """Code that has an object may keep it, whatever is written afterwards and through which door."""
    objects, nodes = ask.server.objects, ask.server.kind("nodes")
    await ask("POST", NODES, of("Node"))
    first = objects.get(nodes, "", "one")
    version = first["metadata"]["resourceVersion"]
    for path in (f"{NODES}/one/status", f"{NODES}/one"):
        await ask("PATCH", path, {"metadata": {"labels": {"a": path[-3:]}}, "status": {"phase": "Running"}}, MERGE)
    await ask("PATCH", f"{NODES}/one?fieldManager=me", of("Node", spec={"unschedulable": True}), APPLY)
    assert (
        version == first["metadata"]["resourceVersion"] != objects.get(nodes, "", "one")["metadata"]["resourceVersion"]
    )
    assert "labels" not in first["metadata"]


async def test_an_unknown_field_of_a_claims_status(ask):
    """It is refused as one of its spec is, and not stored."""
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    request = {"name": "r", "exactly": {"deviceClassName": "c"}}
    await ask("POST", path, {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}})
    status, answer = await ask("PATCH", f"{path}/c/status", {"status": {"alocation": {}}}, MERGE)
    assert (422, "status.alocation") == (status, answer["details"]["causes"][0]["field"])
    result = {"request": "s", "driver": "a.dev", "pool": "p", "device": "d"}
    allocation = {"status": {"allocation": {"devices": {"results": [result]}}}}
    status, answer = await ask("PATCH", f"{path}/c/status", allocation, MERGE)
    field = "status.allocation.devices.results[0].request"
    assert (422, field) == (status, answer["details"]["causes"][0]["field"])
    result["request"] = "r"
    assert 200 == (await ask("PATCH", f"{path}/c/status", allocation, MERGE))[0]


@pytest.mark.parametrize(
    ("door", "first", "change", "field"),
    [
        ("", {"spec": {"podCIDR": "10.0.0.0/24"}}, {"spec": {"podCIDR": "10.0.1.0/24"}}, "spec.podCIDR"),
        ("", {"spec": {"providerID": "a"}}, {"spec": {"providerID": "b"}}, "spec.providerID"),
        ("/status", {}, {"status": {"declaredFeatures": ["a b"]}}, "status.declaredFeatures[0]"),
        (
            "/status",
            {},
            {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}] * 2}},
            "status.addresses[1]",
        ),
    ],
)
async def test_a_change_of_a_node_is_refused(ask, door, first, change, field):
    """What is there once, and names that are none."""
    assert 201 == (await ask("POST", NODES, of("Node", **first)))[0]
    status, answer = await ask("PATCH", f"{NODES}/one{door}", change, MERGE)
    assert (422, field) == (status, answer["details"]["causes"][0]["field"])


async def test_events_of_today(ask):
    """Who tells it has a name, and the time microseconds."""
    path = "/api/v1/namespaces/default/events"
    told = {"eventTime": "2026-01-01T00:00:00.000000Z", "action": "A", "reportingComponent": "a.dev/c"}
    event = {"reason": "R", "message": "m", "type": "Normal", "reportingInstance": "i", **told}
    event |= {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}}
    assert 400 == (await ask("POST", path, event | {"eventTime": "2026-01-01T00:00:00Z"}))[0]
    assert 422 == (await ask("POST", path, event | {"reportingComponent": "a b"}))[0]
    assert 422 == (await ask("POST", path, event | {"reportingInstance": "i" * 129}))[0]
    assert 201 == (await ask("POST", path, event))[0]
