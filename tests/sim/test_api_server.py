"""The API server of the embedded kubelet, by HTTP: what it stores, what it refuses, and what it tells."""

import asyncio
import json
import os
import re
import shutil
from urllib.parse import quote

import pytest

from tests.kit.releases import Release
from tests.kit.rest import Caller
from vdev.errors import UsageError
from vdev.sim.api.kinds import KINDS, ApiKind
from vdev.sim.api.server import ApiServer
from vdev.sim.api.store import Objects

SLICES, CLAIMS = "/apis/resource.k8s.io/v1/resourceslices", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
NODES, PODS, MAPS = "/api/v1/nodes", "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/configmaps"
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
STRATEGIC = "application/strategic-merge-patch+json"
COUNTERS = {"sharedCounters": [{"name": "set", "counters": {"memory": {"value": "8Gi"}}}]}
CONSUMING = {"name": "a", "consumesCounters": [{"counterSet": "set", "counters": {"memory": {"value": "4Gi"}}}]}
TAINT = {"key": "acme.dev/unhealthy", "effect": "NoSchedule"}


@pytest.fixture
async def ask():
    """A caller of a server of 1.36."""
    async with ApiServer() as server:
        yield Caller(server)


def slice_(*devices, name="one", **spec):
    """A ResourceSlice."""
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    content = {"driver": "acme.dev", "nodeName": "n1", "pool": pool, "devices": list(devices)} | spec
    return of("ResourceSlice", name, content)


def of(kind, name, spec, **more):
    """An object of the group of DRA."""
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec, **more}


async def test_a_slice_is_stored_as_the_real_server_does_it(ask):
    """With a UID, a generation, and the times of its taints; empty lists are left out."""
    status, made = await ask("POST", SLICES, slice_({"name": "a", "taints": [TAINT], "attributes": {}}))
    assert 201 == status
    assert 1 == made["metadata"]["generation"]
    (device,) = made["spec"]["devices"]
    assert {"key", "effect", "timeAdded"} == device["taints"][0].keys()
    assert "attributes" not in device
    made["spec"]["devices"] = []
    status, changed = await ask("PUT", f"{SLICES}/one", made)
    assert (200, 2) == (status, changed["metadata"]["generation"])
    assert "devices" not in changed["spec"]


async def test_an_apply_to_an_object_that_is_gone_makes_no_other(ask):
    """Who names the uid means that very object; without one an apply makes what is not there."""
    document = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n9", "uid": "1234", "labels": {"a": "b"}}}
    path = "/api/v1/nodes/n9?fieldManager=test"
    status, refused = await ask("PATCH", path, document, content_type="application/apply-patch+yaml")
    assert (409, "Conflict") == (status, refused["reason"])
    assert "UID in precondition: 1234" in refused["message"]
    del document["metadata"]["uid"]
    status, _ = await ask("PATCH", path, document, content_type="application/apply-patch+yaml")
    assert 201 == status


REFUSED = {
    "129 devices": (slice_(*({"name": f"d{n}"} for n in range(129))), "129 devices; at most 128"),
    "65 with a taint": (
        slice_(*({"name": f"d{n}"} for n in range(64)), {"name": "t", "taints": [TAINT]}),
        "65 devices .* at most 64",
    ),
    "a name": (slice_({"name": "A.b"}), "not a DNS label"),
    "a version": (slice_({"name": "a", "attributes": {"v": {"version": "580.95.05"}}}), "semver"),
    "a type": (slice_({"name": "a", "attributes": {"v": {"int": 1, "bool": True}}}), "exactly one of"),
    "a number": (slice_({"name": "a", "attributes": {"v": {"int": "1"}}}), "v.int: .*must be a whole number"),
    "an amount": (slice_({"name": "a", "capacity": {"m": {"value": "many"}}}), "m.value: .*must be a quantity"),
    "no amount": (slice_({"name": "a", "capacity": {"m": {}}}), "m.value: Required value"),
    "two places": (slice_({"name": "a"}, allNodes=True), "exactly one of nodeName"),
    "no count": (slice_({"name": "a"}, pool={"name": "n1", "generation": 1}), "a resourceSliceCount of at least 1"),
    "counters and devices": (slice_(CONSUMING, **COUNTERS), "exclude each other since 1.35"),
    "a driver": (slice_({"name": "a"}, driver="Acme"), "DNS subdomain"),
    "a device twice": (slice_({"name": "a"}, {"name": "a"}), "device a is there more than once"),
    "counters twice": (slice_(devices=None, sharedCounters=COUNTERS["sharedCounters"] * 2), "is there more than once"),
    "a form of before": (slice_({"name": "a", "basic": {}}), r"spec.devices\[0\].basic: unknown field"),
    "a slip": (slice_(nodename="n1"), "spec.nodename: unknown field"),
    "a slip in a pool": (slice_(pool={"name": "n1", "count": 1, "resourceSliceCount": 1}), "spec.pool.count: unknown"),
    "a slip in a taint": (
        slice_({"name": "a", "taints": [TAINT | {"reason": "hot"}]}),
        r"spec.devices\[0\].taints\[0\].reason: unknown field",
    ),
    "a slip in a capacity": (
        slice_({"name": "a", "capacity": {"memory": {"value": "1Gi", "min": "1Mi"}}}),
        r"spec.devices\[0\].capacity.memory.min: unknown field",
    ),
    "a slip in a use": (
        slice_({"name": "a", "consumesCounters": [CONSUMING["consumesCounters"][0] | {"set": "x"}]}),
        r"spec.devices\[0\].consumesCounters\[0\].set: unknown field",
    ),
    "a slip in a set": (
        slice_(devices=[], sharedCounters=[COUNTERS["sharedCounters"][0] | {"value": 1}]),
        r"spec.sharedCounters\[0\].value: unknown field",
    ),
    "a node": (slice_({"name": "a"}, nodeName="A_b"), "spec.nodeName: Invalid value"),
    "a range from nowhere": (
        slice_(
            {
                "name": "a",
                "allowMultipleAllocations": True,
                "capacity": {"memory": {"value": "2Gi", "requestPolicy": {"default": "1Gi", "validRange": {}}}},
            }
        ),
        "default, and min in a validRange, are required",
    ),
    "no pool": (of("ResourceSlice", "one", {"driver": "acme.dev"}), "spec.pool: Required value"),
}


async def test_a_slice_with_all_that_there_is(ask):
    """No field of the API is unknown."""
    policy = {"default": "1Gi", "validRange": {"min": "1Gi", "max": "2Gi", "step": "1Gi"}}
    device = {
        "name": "a",
        "attributes": {"model": {"string": "x"}},
        "capacity": {"memory": {"value": "2Gi", "requestPolicy": policy}},
        "allowMultipleAllocations": True,
        "taints": [TAINT | {"value": "x", "timeAdded": "2026-01-01T00:00:00Z"}],
        "bindsToNode": True,
        "bindingConditions": ["Ready"],
        "bindingFailureConditions": ["Failed"],
        "nodeName": "n1",
        "consumesCounters": CONSUMING["consumesCounters"],
    }
    document = slice_(device, perDeviceNodeSelection=True)
    del document["spec"]["nodeName"]
    status, made = await ask("POST", SLICES, document)
    assert 201 == status, made["message"]
    assert device == made["spec"]["devices"][0]


async def test_a_slice_is_refused(subtests, ask):
    """As the real server refuses it, and the message says why."""
    for case in REFUSED:
        with subtests.test(case=case):
            document, why = REFUSED[case]
            status, answer = await ask("POST", SLICES, document)
            assert (422, "Invalid") == (status, answer["reason"])
            assert re.search(why, answer["message"]), answer["message"]


async def test_what_is_immutable(ask):
    """The driver, the pool and the node of a slice; the whole specification of a claim."""
    await ask("POST", SLICES, slice_({"name": "a"}))
    for change in ({"driver": "other.dev"}, {"pool": {"name": "n2"}}, {"nodeName": "n2"}):
        status, answer = await ask("PATCH", f"{SLICES}/one", {"spec": change}, MERGE)
        assert (422, True) == (status, "field is immutable" in answer["message"])
    request = {"name": "r", "exactly": {"deviceClassName": "c"}}
    await ask("POST", CLAIMS, of("ResourceClaim", "c", {"devices": {"requests": [request]}}))
    change = {"spec": {"devices": {"requests": []}}}
    assert 422 == (await ask("PATCH", f"{CLAIMS}/c", change, MERGE))[0]
    assert 200 == (await ask("PATCH", f"{CLAIMS}/c", {"metadata": {"labels": {"a": "b"}}}, MERGE))[0]


def asked(**more):
    """A request for one device."""
    return {"name": "r", "exactly": {"deviceClassName": "c", **more}}


async def test_a_claim_is_refused(subtests, ask):
    """A mistake in a request is not found out by a pod that waits."""
    cases = [
        ({"name": "r"}, "exactly one of"),
        ({"name": "R!", "exactly": {"deviceClassName": "c"}}, "RFC 1123 label"),
        ({"name": "r", "exactly": {}}, "deviceClassName: Required value"),
        ({"name": "r", "exactly": {"deviceClassName": "c", "count": -1}}, "greater than zero"),
        ({"name": "r", "exactly": {"deviceClassName": "c", "cuont": 1}}, "cuont: unknown field"),
        ({"name": "r", "firstAvailable": [{"name": "x"}]}, "deviceClassName: Required value"),
        (asked(selectors=[{"cel": {}}]), "selectors[0].cel.expression: Required value"),
    ]
    for request_, why in cases:
        with subtests.test(request_=request_):
            status, answer = await ask("POST", CLAIMS, of("ResourceClaim", "c", {"devices": {"requests": [request_]}}))
            assert 422 == status
            assert why in answer["message"]


OPAQUE = {"opaque": {"driver": "acme.dev", "parameters": {"kind": "X"}}}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"config": [OPAQUE | {"requests": ["x"]}]}, "config[0].requests[0]: Invalid value"),
        ({"constraints": [{"matchAttribute": "acme.dev/a", "requests": ["x"]}]}, "must be the name of a request"),
        ({"constraints": [{"matchAttribute": "model"}]}, "must include the domain"),
        ({"constraints": [{"requests": ["r"]}]}, "exactly one of `matchAttribute` or `distinctAttribute`"),
    ],
)
async def test_a_claim_with_mistakes_besides_its_requests_is_refused(ask, more, why):
    """What is right is taken."""
    devices = {"requests": [asked()], "constraints": [{"matchAttribute": "acme.dev/a"}] * 32, "config": [OPAQUE] * 32}
    assert 201 == (await ask("POST", CLAIMS, of("ResourceClaim", "c", {"devices": devices})))[0]
    status, answer = await ask("POST", CLAIMS, of("ResourceClaim", "d", {"devices": devices | more}))
    assert (422, True) == (status, why in answer["message"]), answer["message"]


@pytest.mark.parametrize(("version", "alpha"), [((1, 35), False), ((1, 36), False), ((1, 34), True)])
async def test_fields_of_gates_that_are_off_are_dropped(version, alpha):
    """Without a word, as the real server does it."""
    async with ApiServer(Objects(rules=Release(version, alpha=alpha))) as server:
        ask = Caller(server)
        shared = {
            "allowMultipleAllocations": True,
            "capacity": {"slots": {"value": "4", "requestPolicy": {"default": "1"}}},
        }
        _, made = await ask("POST", SLICES, slice_({"name": "a", "taints": [TAINT], **shared}))
        (device,) = made["spec"]["devices"]
        is_there = version >= (1, 36) or alpha
        assert is_there is ("taints" in device)
        assert is_there is ("allowMultipleAllocations" in device)
        assert is_there is ("requestPolicy" in device["capacity"]["slots"])


async def test_a_write_by_an_old_version_is_a_conflict(ask):
    """Of an update, of a patch, and of a deletion with preconditions."""
    _, made = await ask("POST", MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}})
    await ask("PATCH", f"{MAPS}/m", {"data": {"a": "b"}}, MERGE)
    assert (409, "Conflict") == await reason(ask("PUT", f"{MAPS}/m", made))
    old = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"a": "c"}}
    assert (409, "Conflict") == await reason(ask("PATCH", f"{MAPS}/m", old, MERGE))
    gone = {"preconditions": {"uid": "other"}}
    assert (409, "Conflict") == await reason(ask("DELETE", f"{MAPS}/m", gone))
    del made["metadata"]["resourceVersion"]
    assert (422, "Invalid") == await reason(ask("PUT", f"{MAPS}/m", made))


async def reason(asked):
    """Status and reason of an answer."""
    status, answer = await asked
    return status, answer.get("reason", "")


async def test_what_is_not_there(ask):
    """Objects, kinds, namespaces, subresources."""
    for path in (f"{MAPS}/m", "/api/v1/services", f"{MAPS}/m/status", "/apis/apps/v1/daemonsets", f"{PODS}/p/log"):
        assert (404, "NotFound") == await reason(ask("GET", path))
    elsewhere = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}
    assert (404, "NotFound") == await reason(ask("POST", "/api/v1/namespaces/none/configmaps", elsewhere))


async def test_requests_that_are_none(subtests, ask):
    """Each gets an answer of its own, and the server goes on."""
    cases = [
        ("POST", MAPS, "not JSON", "application/json", 400),
        ("POST", MAPS, "{}", "text/plain", 415),
        ("POST", MAPS, {"apiVersion": "v1", "kind": "Pod"}, "application/json", 400),
        ("POST", MAPS, [1], "application/json", 400),
        ("POST", MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": 5}, "application/json", 400),
        ("POST", f"{MAPS}?dryRun=All", {"apiVersion": "v1", "kind": "ConfigMap"}, "application/json", 400),
        ("PATCH", f"{NODES}/n", [{"op": "jump", "path": "/a"}], "application/json-patch+json", 422),
        ("PATCH", f"{NODES}/n", [{"path": "/metadata"}], "application/json-patch+json", 422),
        ("PATCH", f"{NODES}/n", [{"op": "copy", "path": "/metadata"}], "application/json-patch+json", 422),
        ("PATCH", f"{NODES}/n", ["add"], "application/json-patch+json", 422),
        ("POST", "/api/v1/configmaps", {"metadata": {"name": "m"}}, "application/json", 405),
        ("PATCH", f"{NODES}/n", [{"op": "remove", "path": "/a/b"}], "application/json-patch+json", 422),
        ("PATCH", f"{NODES}/n", 7, MERGE, 400),
        ("PATCH", f"{NODES}/n", {"apiVersion": "v1", "kind": "Node"}, APPLY, 422),
        ("PUT", NODES, {}, "application/json", 405),
        ("GET", f"{NODES}?fieldSelector=spec.podCIDR%3D1", None, "", 400),
        ("GET", f"{NODES}?watch=true&resourceVersion=99999999", None, "", 504),
    ]
    for method, path, body, content_type, status in cases:
        with subtests.test(method=method):
            await ask("POST", NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
            got, answer = await ask(method, path, body, content_type)
            assert (status, "Status") == (got, answer["kind"])
            assert 200 == (await ask("GET", f"{NODES}/n"))[0]


async def test_patches_of_other_kinds(ask):
    """A strategic merge joins lists by their keys; a JSON patch has operations."""
    await ask("POST", NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    status = {"capacity": {"a/b": "2"}, "conditions": [{"type": "Ready", "status": "True"}]}
    await ask("PATCH", f"{NODES}/n/status", {"status": status}, MERGE)
    condition = {"type": "GpuHealthy", "status": "True"}
    await ask("PATCH", f"{NODES}/n/status", {"status": {"conditions": [condition]}}, STRATEGIC)
    operations = [{"op": "add", "path": "/status/capacity/c~1d", "value": "1"}]
    code, found = await ask("PATCH", f"{NODES}/n/status", operations, "application/json-patch+json")
    assert (200, {"a/b": "2", "c/d": "1"}) == (code, found["status"]["capacity"])
    assert ["Ready", "GpuHealthy"] == [each["type"] for each in found["status"]["conditions"]]


async def test_an_operation_beyond_the_end_of_a_list(ask):
    """An index that is not there is refused, as an operation on a field that is not there."""
    taint = {"key": "a", "effect": "NoSchedule"}
    await ask("POST", NODES, of("Node", "n", {"taints": [taint]}) | {"apiVersion": "v1"})
    operation = {"op": "add", "path": "/spec/taints/5", "value": taint | {"key": "b"}}
    status, _ = await ask("PATCH", f"{NODES}/n", [operation], "application/json-patch+json")
    assert 422 == status


async def test_a_generated_name_has_the_beginning_that_fits_a_label(ask):
    """58 characters of it and 5 of its own (names.SimpleNameGenerator)."""
    long = slice_({"name": "a"})
    long["metadata"] = {"generateName": "00000-acme.dev-" + "n" * 100 + "-"}
    status, made = await ask("POST", SLICES, long)
    assert (201, 63) == (status, len(made["metadata"]["name"]))


OWNER = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "1"}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"metadata": {"name": "m", "ownerReferences": [OWNER | {"uid": ""}]}}, "ownerReferences.uid"),
    ],
)
async def test_metadata_is_refused(ask, more, why):
    """Whatever the kind."""
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, **more}
    status, answer = await ask("POST", MAPS, document)
    assert (422, "Invalid") == (status, answer["reason"])
    assert re.search(why, answer["message"]), answer["message"]


async def test_another_kind_is_refused(ask):
    """Another kind by a patch."""
    await ask("POST", NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    assert 400 == (await ask("PATCH", f"{NODES}/n", {"kind": "Pod"}, MERGE))[0]


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("a in(x,y)", ["n1", "n2"]),
        ("a  notin ( x )", ["n2", "n3"]),
        ("! a", ["n3"]),
        ("a=x,b", ["n1"]),
    ],
)
async def test_label_selectors(ask, selector, chosen):
    """Every form of a requirement, with blanks or without."""
    for name, labels in (("n1", {"a": "x", "b": "1"}), ("n2", {"a": "y", "b": "2"}), ("n3", {})):
        await ask("POST", NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
    _, found = await ask("GET", f"{NODES}?labelSelector={quote(selector)}")
    assert chosen == [each["metadata"]["name"] for each in found["items"]]


async def test_a_label_selector_that_is_none(subtests, ask):
    """It is refused, and never matches everything or nothing without a word."""
    for selector in ["a in (x", "a b", "a=x y", "a>x", "=x", "a in x", "a,,b"]:
        with subtests.test(selector=selector):
            status, answer = await ask("GET", f"{NODES}?labelSelector={quote(selector)}")
            assert (400, "BadRequest") == (status, answer["reason"])


async def test_a_claim_has_one_allocation(ask):
    """Another one only after it was taken back."""
    assert 201 == (await ask("POST", CLAIMS, of("ResourceClaim", "c", {"devices": {"requests": [asked()]}})))[0]
    pod = {"resource": "pods", "name": "p", "uid": "1"}
    results = [{"request": "r", "driver": "acme.dev", "pool": "n1", "device": name} for name in "ab"]
    path = f"{CLAIMS}/c/status"
    allocation = {"devices": {"results": results[:1]}}
    assert 200 == (await ask("PATCH", path, {"status": {"allocation": allocation, "reservedFor": [pod]}}, MERGE))[0]
    other = {"devices": {"results": results[1:]}}
    status, answer = await ask("PATCH", path, {"status": {"allocation": other}}, MERGE)
    assert (422, True) == (status, "status.allocation: Invalid value: field is immutable" in answer["message"])
    assert 200 == (await ask("PATCH", path, {"status": {"allocation": None, "reservedFor": None}}, MERGE))[0]
    assert 200 == (await ask("PATCH", path, {"status": {"allocation": other}}, MERGE))[0]


async def test_a_watch(ask):
    """From a version on, by selectors: an object that leaves the selection is deleted, for who watches it."""
    _, begin = await ask("GET", MAPS)
    for name in ("a", "b"):
        meta = {"name": name, "labels": {"x": name}}
        await ask("POST", MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
    await ask("PATCH", f"{MAPS}/a", {"metadata": {"labels": {"x": "c"}}}, MERGE)
    version = begin["metadata"]["resourceVersion"]
    all_, some, marks = await asyncio.gather(
        ask.watch(f"{MAPS}?resourceVersion={version}"),
        ask.watch(f"{MAPS}?resourceVersion={version}&labelSelector=x%20in%20(a,b)"),
        ask.watch(f"{SLICES}?resourceVersion={version}&allowWatchBookmarks=true"),
    )
    assert [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "a")] == [named(each) for each in all_]
    assert [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")] == [named(each) for each in some]
    assert ["BOOKMARK"] == [each["type"] for each in marks]
    ask.server.objects.forgotten = ask.server.objects.version
    (error,) = await ask.watch(f"{MAPS}?resourceVersion={version}")
    assert ("ERROR", 410) == (error["type"], error["object"]["code"])


async def test_bookmarks_are_rare(ask):
    """As on a real server: one a minute, however much happens to what is not watched."""
    _, begin = await ask("GET", MAPS)
    path = f"{SLICES}?resourceVersion={begin['metadata']['resourceVersion']}&allowWatchBookmarks=true"
    watching = asyncio.create_task(ask.watch(path))
    while not ask.server.watching:
        await ask("GET", MAPS)
    for name in ("a", "b", "c"):
        await ask("POST", MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
    assert ["BOOKMARK"] == [each["type"] for each in await watching]


def named(event):
    """Type and name."""
    return event["type"], event["object"]["metadata"]["name"]


async def test_many_at_once_are_deleted(ask):
    """As a kubelet does it with the slices of its node."""
    for number, node in enumerate(["n1", "n1", "n2"]):
        await ask("POST", SLICES, slice_({"name": "a"}, name=f"s{number}", nodeName=node))
    assert 200 == (await ask("DELETE", f"{SLICES}?fieldSelector=spec.nodeName%3Dn1"))[0]
    _, rest = await ask("GET", SLICES)
    assert ["s2"] == [each["metadata"]["name"] for each in rest["items"]]


async def test_finalizers_hold_an_object(ask):
    """Until the last one is taken off."""
    meta = {"name": "m", "finalizers": ["acme.dev/mine"]}
    await ask("POST", MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
    _, marked = await ask("DELETE", f"{MAPS}/m")
    assert marked["metadata"]["deletionTimestamp"]
    await ask("PATCH", f"{MAPS}/m", {"metadata": {"finalizers": None}}, MERGE)
    assert 404 == (await ask("GET", f"{MAPS}/m"))[0]


async def test_a_pod_stays_until_its_kubelet_lets_it_go(ask):
    """With a node it is Terminating; without one, or without grace, it is gone at once."""
    for name, node in (("bound", "n1"), ("forced", "n1"), ("free", None)):
        spec = {"containers": [{"name": "c", "image": "i"}]} | ({"nodeName": node} if node else {})
        await ask("POST", PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    _, marked = await ask("DELETE", f"{PODS}/bound")
    assert marked["metadata"]["deletionTimestamp"]
    await ask("DELETE", f"{PODS}/forced", {"gracePeriodSeconds": 0})
    await ask("DELETE", f"{PODS}/free")
    _, left = await ask("GET", PODS)
    assert ["bound"] == [each["metadata"]["name"] for each in left["items"]]
    await ask("DELETE", f"{PODS}/bound?gracePeriodSeconds=0")
    assert 404 == (await ask("GET", f"{PODS}/bound"))[0]


async def test_a_namespace_goes_with_what_is_in_it(ask):
    """As its controller would see to."""
    await ask("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}})
    inside = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}
    assert 201 == (await ask("POST", "/api/v1/namespaces/x/configmaps", inside))[0]
    await ask("DELETE", "/api/v1/namespaces/x")
    _, left = await ask("GET", "/api/v1/configmaps")
    assert [] == left["items"]


async def test_another_kind_is_one_line():
    """It has everything that the others have."""
    widgets = ApiKind("acme.dev", "v1", "Widget", "widgets", generation=True, immutable=("spec.size",))
    async with ApiServer(kinds=(*KINDS, widgets)) as server:
        ask = Caller(server)
        path = "/apis/acme.dev/v1/namespaces/default/widgets"
        document = {"apiVersion": "acme.dev/v1", "kind": "Widget", "spec": {"size": 1}}
        status, made = await ask("PATCH", f"{path}/w?fieldManager=me", document, APPLY)
        assert (201, "me") == (status, made["metadata"]["managedFields"][0]["manager"])
        assert 422 == (await ask("PATCH", f"{path}/w", {"spec": {"size": 2}}, MERGE))[0]
        _, found = await ask("GET", "/apis/acme.dev/v1")
        assert ["widgets"] == [each["name"] for each in found["resources"]]


def test_it_listens_on_loopback_alone():
    """It knows no users."""
    with pytest.raises(UsageError, match=r"0\.0\.0\.0: the API server knows no users"):
        ApiServer(host="0.0.0.0")  # which is refused


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not here")
async def test_kubectl_speaks_with_it(ask, tmp_path):
    """It finds the kinds, applies, reads, labels and deletes."""
    config = tmp_path / "kubeconfig"
    config.write_text(ask.server.kubeconfig())
    claim = of("ResourceClaim", "c", {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "x"}}]}})

    async def kubectl(*words, stdin=None):
        environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KUBECONFIG": str(config)}
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            "kubectl", *words, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.STDOUT, env=environ
        )
        out, _ = await process.communicate(json.dumps(stdin).encode() if stdin else b"")
        return out.decode()

    assert "resourceclaim.resource.k8s.io/c created" in await kubectl("apply", "-f", "-", stdin=claim)
    assert "resourceclaim.resource.k8s.io/c configured" in await kubectl("apply", "-f", "-", stdin=claim)
    wrong = {**claim, "metadata": {"name": "d"}, "spec": {"devices": {"requests": [{"name": "r"}]}}}
    assert "exactly one of" in await kubectl("apply", "--server-side", "-f", "-", stdin=wrong)
    assert "labeled" in await kubectl("label", "resourceclaim", "c", "a=b")
    assert "c" in (await kubectl("get", "resourceclaims", "--selector=a=b", "--output=name"))
    assert '"c" deleted' in await kubectl("delete", "resourceclaim", "c")


async def test_json_patches_copy_and_move(ask):
    """And look at what is not there."""
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1"}}
    await ask("POST", MAPS, document)
    operations = [
        {"op": "test", "path": "/metadata/labels", "value": None},
        {"op": "copy", "from": "/data/a", "path": "/data/b"},
        {"op": "move", "from": "/data/a", "path": "/data/c~1d"},
        {"op": "test", "path": "/data/c~1d", "value": "1"},
        {"op": "move", "from": "/data/c~1d", "path": "/data/c"},
    ]
    status, found = await ask("PATCH", f"{MAPS}/m", operations, "application/json-patch+json")
    assert (200, {"b": "1", "c": "1"}) == (status, found["data"])
    refused = [{"op": "move", "from": "/data/a", "path": "/data/b"}]
    assert 422 == (await ask("PATCH", f"{MAPS}/m", refused, "application/json-patch+json"))[0]


NOT_OLDER = "resourceVersionMatch=NotOlderThan"


@pytest.mark.parametrize(
    ("query", "kinds"),
    [
        (f"sendInitialEvents=true&{NOT_OLDER}", ["ADDED", "ADDED"]),
        (f"sendInitialEvents=true&{NOT_OLDER}&allowWatchBookmarks=true", ["ADDED", "ADDED", "BOOKMARK"]),
        (
            f"sendInitialEvents=true&{NOT_OLDER}&allowWatchBookmarks=true&resourceVersion=1",
            ["ADDED", "ADDED", "BOOKMARK"],
        ),
        (f"sendInitialEvents=false&{NOT_OLDER}", []),
    ],
)
async def test_a_watch_that_begins_with_what_there_is(ask, query, kinds):
    """And says where that ends, as informers of today ask for."""
    for name in ("a", "b"):
        await ask("POST", MAPS, {"metadata": {"name": name}})
    events = await ask.watch(f"{MAPS}?{query}")
    assert kinds == [each["type"] for each in events]
    if "BOOKMARK" in kinds:
        metadata = events[-1]["object"]["metadata"]
        assert {"k8s.io/initial-events-end": "true"} == metadata["annotations"]
        assert int(metadata["resourceVersion"]) >= int(events[0]["object"]["metadata"]["resourceVersion"])


async def test_a_list_that_is_not_older(ask):
    """An informer that begins again names the version that it had."""
    _, made = await ask("POST", MAPS, {"metadata": {"name": "a"}})
    version = made["metadata"]["resourceVersion"]
    await ask("POST", MAPS, {"metadata": {"name": "b"}})
    for query in ("", f"&{NOT_OLDER}", "&limit=5"):
        status, found = await ask("GET", f"{MAPS}?resourceVersion={version}{query}")
        assert (200, ["a", "b"]) == (status, [each["metadata"]["name"] for each in found["items"]])
    assert 504 == (await ask("GET", f"{MAPS}?resourceVersion=99999999"))[0]
