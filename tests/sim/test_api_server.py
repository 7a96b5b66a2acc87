"""The API server of the embedded kubelet over HTTP: the objects that it stores and refuses, and its watches."""

import asyncio
import json
import os
import shutil
from urllib.parse import quote

import pytest

from vdev.errors import UsageError
from vdev.sim.api.server import ApiServer

SLICES, CLAIMS = "/apis/resource.k8s.io/v1/resourceslices", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
NODES, PODS, MAPS = "/api/v1/nodes", "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/configmaps"
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
STRATEGIC, JSON_PATCH = "application/strategic-merge-patch+json", "application/json-patch+json"


def slice_(*devices, name="one", **spec):
    """A ResourceSlice."""
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    content = {"driver": "acme.dev", "nodeName": "n1", "pool": pool, "devices": list(devices)} | spec
    return of("ResourceSlice", name, content)


def of(kind, name, spec, **more):
    """An object of DRA's group."""
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec, **more}


async def test_an_apply_with_a_uid_creates_no_object(ask):
    """An apply without a UID creates the object if it does not exist."""
    document = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n9", "uid": "1234", "labels": {"a": "b"}}}
    path = "/api/v1/nodes/n9?fieldManager=test"
    status, refused = await ask("PATCH", path, document, content_type="application/apply-patch+yaml")
    assert (409, "Conflict") == (status, refused["reason"])
    assert "UID in precondition: 1234" in refused["message"]
    del document["metadata"]["uid"]
    status, _ = await ask("PATCH", path, document, content_type="application/apply-patch+yaml")
    assert 201 == status


async def test_a_slice_is_refused(ask):
    """The message has all problems; `test_api_slice_rules` knows them."""
    status, answer = await ask("POST", SLICES, slice_({"name": "A"}, nodename="n1"))
    assert (422, "Invalid") == (status, answer["reason"])
    assert ["spec.devices[0].name", "spec.nodename"] == [each["field"] for each in answer["details"]["causes"]]
    assert answer["message"].startswith(
        'ResourceSlice.resource.k8s.io "one" is invalid: [spec.devices[0].name: Invalid'
    )


async def test_immutable_fields(ask):
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


async def test_a_write_by_an_old_version_is_a_conflict(ask):
    """This holds for updates, patches, and deletions with preconditions."""
    _, made = await ask("POST", MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}})
    await ask("PATCH", f"{MAPS}/m", {"data": {"a": "b"}}, MERGE)
    assert (409, "Conflict") == await reason(ask("PUT", f"{MAPS}/m", made))
    old = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"a": "c"}}
    assert (409, "Conflict") == await reason(ask("PATCH", f"{MAPS}/m", old, MERGE))
    gone = {"preconditions": {"uid": "other"}}
    assert (409, "Conflict") == await reason(ask("DELETE", f"{MAPS}/m", gone))


async def reason(asked):
    """Status and reason of an answer."""
    status, answer = await asked
    return status, answer.get("reason", "")


async def test_paths_that_do_not_exist(ask):
    """Objects, kinds, namespaces, subresources."""
    for path in (f"{MAPS}/m", "/api/v1/services", f"{MAPS}/m/status", "/apis/apps/v1/daemonsets", f"{PODS}/p/log"):
        assert (404, "NotFound") == await reason(ask("GET", path))
    elsewhere = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}
    assert (404, "NotFound") == await reason(ask("POST", "/api/v1/namespaces/none/configmaps", elsewhere))


DEEP = '{"metadata": {"name": "m"}, "x": ' + '{"a":' * 600 + "1" + "}" * 600 + "}"


async def test_wrong_requests(subtests, ask):
    """Each is answered, and the server continues."""
    cases = [
        ("POST", MAPS, "not JSON", "application/json", 400),
        ("POST", MAPS, "{}", "text/plain", 415),
        ("POST", MAPS, {"apiVersion": "v1", "kind": "Pod"}, "application/json", 400),
        ("POST", MAPS, [1], "application/json", 400),
        ("POST", MAPS, DEEP, "application/json", 400),
        ("PATCH", f"{NODES}/n", DEEP, MERGE, 400),
        ("POST", MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": 5}, "application/json", 400),
        ("POST", f"{MAPS}?dryRun=All", {"apiVersion": "v1", "kind": "ConfigMap"}, "application/json", 400),
        ("PATCH", f"{NODES}/n", [{"op": "jump", "path": "/a"}], JSON_PATCH, 422),
        ("PATCH", f"{NODES}/n", [{"path": "/metadata"}], JSON_PATCH, 422),
        ("PATCH", f"{NODES}/n", [{"op": "copy", "path": "/metadata"}], JSON_PATCH, 422),
        ("PATCH", f"{NODES}/n", [{"op": "replace", "path": "/spec/b", "value": "1"}], JSON_PATCH, 422),
        ("PATCH", f"{NODES}/n", ["add"], JSON_PATCH, 422),
        ("POST", "/api/v1/configmaps", {"metadata": {"name": "m"}}, "application/json", 405),
        ("PATCH", f"{NODES}/n", [{"op": "remove", "path": "/a/b"}], JSON_PATCH, 422),
        ("PATCH", f"{NODES}/n", 7, MERGE, 400),
        ("PATCH", f"{NODES}/n", {"apiVersion": "v1", "kind": "Node"}, APPLY, 422),
        ("PUT", NODES, {}, "application/json", 405),
        ("DELETE", "/api/v1/configmaps", None, "", 405),
        ("GET", f"{NODES}?fieldSelector=spec.podCIDR%3D1", None, "", 400),
        *(
            ("GET", f"{NODES}?labelSelector={quote(selector)}", None, "", 400)
            for selector in ("a in (x", "a b", "a=x y", "a>x", "=x", "a in x", "a,,b")
        ),
        ("GET", f"{NODES}?watch=true&resourceVersion=99999999", None, "", 504),
    ]
    for method, path, body, content_type, status in cases:
        with subtests.test(method=method, path=path):
            await ask("POST", NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
            got, answer = await ask(method, path, body, content_type)
            assert (status, "Status") == (got, answer["kind"])
            assert 200 == (await ask("GET", f"{NODES}/n"))[0]


async def test_a_strategic_merge_patch(ask):
    """It merges lists by their keys."""
    await ask("POST", NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    for name in ("Ready", "GpuHealthy"):
        status = {"conditions": [{"type": name, "status": "True"}]}
        _, found = await ask("PATCH", f"{NODES}/n/status", {"status": status}, STRATEGIC)
    assert ["Ready", "GpuHealthy"] == [each["type"] for each in found["status"]["conditions"]]


async def test_a_json_patch(ask):
    """It has operations. A test of a missing field compares with null."""
    await ask("POST", MAPS, {"metadata": {"name": "m"}, "data": {"a": "1"}})
    operations = [
        {"op": "test", "path": "/metadata/labels", "value": None},
        {"op": "replace", "path": "/data/a", "value": "2"},
        {"op": "add", "path": "/data/c~1d", "value": "1"},
        {"op": "test", "path": "/data/c~1d", "value": "1"},
        {"op": "add", "path": "/data/b", "value": "1"},
        {"op": "remove", "path": "/data/b"},
        {"op": "add", "path": "/metadata/finalizers", "value": ["a/a"]},
        {"op": "add", "path": "/metadata/finalizers/0", "value": "b/b"},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "c/c"},
        {"op": "replace", "path": "/metadata/finalizers/1", "value": "d/d"},
        {"op": "remove", "path": "/metadata/finalizers/0"},
    ]
    status, found = await ask("PATCH", f"{MAPS}/m", operations, JSON_PATCH)
    assert (200, {"a": "2", "c/d": "1"}) == (status, found["data"])
    assert ["d/d", "c/c"] == found["metadata"]["finalizers"]
    for place in ("3", "-1", "x"):
        beyond = [{"op": "add", "path": f"/metadata/finalizers/{place}", "value": "e/e"}]
        assert 422 == (await ask("PATCH", f"{MAPS}/m", beyond, JSON_PATCH))[0]


async def test_metadata_is_refused(ask):
    """This holds for objects of every kind."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": ""}
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "ownerReferences": [owner]}}
    status, answer = await ask("POST", MAPS, document)
    assert (422, "Invalid") == (status, answer["reason"])
    assert "ownerReferences.uid" in answer["message"]


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("labelSelector=a in(x,y)", ["n1", "n2"]),
        ("labelSelector=a  notin ( x )", ["n2", "n3"]),
        ("labelSelector=! a", ["n3"]),
        ("labelSelector=a=x,b", ["n1"]),
        ("fieldSelector=metadata.name=n1", ["n1"]),
        ("fieldSelector=metadata.name!=n1", ["n2", "n3"]),
        ("fieldSelector=spec.unschedulable=true", ["n1"]),
        ("fieldSelector=spec.unschedulable==false", ["n2", "n3"]),
    ],
)
async def test_selectors(ask, selector, chosen):
    """Every form of a requirement, with or without spaces. A Node without `unschedulable` is schedulable."""
    nodes = [("n1", {"a": "x", "b": "1"}, {"unschedulable": True}), ("n2", {"a": "y", "b": "2"}, {}), ("n3", {}, {})]
    for name, labels, spec in nodes:
        await ask("POST", NODES, {"metadata": {"name": name, "labels": labels}, "spec": spec})
    _, found = await ask("GET", f"{NODES}?{quote(selector, safe='=')}")
    assert chosen == [each["metadata"]["name"] for each in found["items"]]


async def test_a_claim_has_one_allocation(ask):
    """It can get another one only after the first was removed."""
    assert 201 == (await ask("POST", CLAIMS, of("ResourceClaim", "c", {"devices": {"requests": [asked()]}})))[0]
    pod = {"resource": "pods", "name": "p", "uid": "1"}
    results = [{"request": "r", "driver": "acme.dev", "pool": "n1", "device": name} for name in "ab"]
    path = f"{CLAIMS}/c/status"
    allocation = {"devices": {"results": results[:1]}}
    assert 200 == (await ask("PATCH", path, {"status": {"allocation": allocation, "reservedFor": [pod]}}, MERGE))[0]
    other = {"devices": {"results": results[1:]}}
    status, answer = await ask("PATCH", path, {"status": {"allocation": other}}, MERGE)
    assert (422, True) == (status, "field is immutable" in answer["message"])
    assert 200 == (await ask("PATCH", path, {"status": {"allocation": None, "reservedFor": None}}, MERGE))[0]
    assert 200 == (await ask("PATCH", path, {"status": {"allocation": other}}, MERGE))[0]


async def test_a_watch(ask):
    """It starts at a version. An object that a selector no longer selects is reported as deleted."""
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


def named(event):
    """Type and name."""
    return event["type"], event["object"]["metadata"]["name"]


async def test_a_deletion_by_selector(ask):
    """A kubelet deletes the slices of its node so."""
    for number, node in enumerate(["n1", "n1", "n2"]):
        await ask("POST", SLICES, slice_({"name": "a"}, name=f"s{number}", nodeName=node))
    assert 200 == (await ask("DELETE", f"{SLICES}?fieldSelector=spec.nodeName%3Dn1"))[0]
    _, rest = await ask("GET", SLICES)
    assert ["s2"] == [each["metadata"]["name"] for each in rest["items"]]


async def test_finalizers_hold_an_object(ask):
    """The object is deleted when the last finalizer is removed."""
    meta = {"name": "m", "finalizers": ["acme.dev/mine"]}
    await ask("POST", MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
    _, marked = await ask("DELETE", f"{MAPS}/m")
    assert marked["metadata"]["deletionTimestamp"]
    await ask("PATCH", f"{MAPS}/m", {"metadata": {"finalizers": None}}, MERGE)
    assert 404 == (await ask("GET", f"{MAPS}/m"))[0]


async def test_a_pod_stays_until_its_kubelet_deletes_it(ask):
    """A pod with a node is Terminating. Without a node, or without a grace period, it is deleted at once."""
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


async def test_a_namespace_is_deleted_with_its_objects(ask):
    """In a cluster, a controller does this."""
    await ask("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}})
    inside = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}
    assert 201 == (await ask("POST", "/api/v1/namespaces/x/configmaps", inside))[0]
    await ask("DELETE", "/api/v1/namespaces/x")
    _, left = await ask("GET", "/api/v1/configmaps")
    assert [] == left["items"]


def test_the_server_listens_on_loopback_only():
    """It has no users and permissions."""
    with pytest.raises(UsageError, match=r"0\.0\.0\.0: the API server knows no users"):
        ApiServer(host="0.0.0.0")  # which is refused


async def test_a_server_that_is_stopped_twice_at_once():
    server = ApiServer()
    await server.up()
    await asyncio.gather(server.down(), server.down())
    await server.up()
    await server.down()


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not here")
async def test_kubectl(ask, tmp_path):
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
    assert "resourceclaim.resource.k8s.io/c unchanged" in await kubectl("apply", "-f", "-", stdin=claim)
    wrong = {**claim, "metadata": {"name": "d"}, "spec": {"devices": {"requests": [{"name": "r"}]}}}
    assert "exactly one of" in await kubectl("apply", "--server-side", "-f", "-", stdin=wrong)
    assert "labeled" in await kubectl("label", "resourceclaim", "c", "a=b")
    assert "c" in (await kubectl("get", "resourceclaims", "--selector=a=b", "--output=name"))
    assert '"c" deleted' in await kubectl("delete", "resourceclaim", "c")


NOT_OLDER = "resourceVersionMatch=NotOlderThan"


async def test_a_watch_that_begins_with_the_existing_objects(ask):
    """Current informers ask for a bookmark after the last of them."""
    for name in ("a", "b"):
        await ask("POST", MAPS, {"metadata": {"name": name}})
    bookmarks = f"sendInitialEvents=true&{NOT_OLDER}&allowWatchBookmarks=true"
    cases = {
        f"sendInitialEvents=true&{NOT_OLDER}": ["ADDED", "ADDED"],
        bookmarks: ["ADDED", "ADDED", "BOOKMARK"],
        f"{bookmarks}&resourceVersion=1": ["ADDED", "ADDED", "BOOKMARK"],
        f"sendInitialEvents=false&{NOT_OLDER}": [],
    }
    watches = await asyncio.gather(*(ask.watch(f"{MAPS}?{query}") for query in cases))
    for (query, kinds), events in zip(cases.items(), watches, strict=True):
        assert kinds == [each["type"] for each in events], query
        if "BOOKMARK" in kinds:
            metadata = events[-1]["object"]["metadata"]
            assert {"k8s.io/initial-events-end": "true"} == metadata["annotations"]
            assert int(metadata["resourceVersion"]) >= int(events[0]["object"]["metadata"]["resourceVersion"])


async def test_a_list_that_is_not_older(ask):
    """An informer that restarts names its last version."""
    _, made = await ask("POST", MAPS, {"metadata": {"name": "a"}})
    version = made["metadata"]["resourceVersion"]
    await ask("POST", MAPS, {"metadata": {"name": "b"}})
    for query in ("", f"&{NOT_OLDER}", "&limit=5"):
        status, found = await ask("GET", f"{MAPS}?resourceVersion={version}{query}")
        assert (200, ["a", "b"]) == (status, [each["metadata"]["name"] for each in found["items"]])
    assert 504 == (await ask("GET", f"{MAPS}?resourceVersion=99999999"))[0]


async def test_null_is_left_out(ask):
    """Go clients, for example, send a creation time of null."""
    document = {"metadata": {"name": "one"}, "data": {"b": "1"}, "binaryData": None}
    document["metadata"]["annotations"] = None
    _, made = await ask("POST", MAPS, document)
    assert {"b": "1"} == made["data"]
    assert "binaryData" not in made
    assert "annotations" not in made["metadata"]


async def test_an_object_need_not_name_its_kind(ask):
    """The items of a list do not name it."""
    status, made = await ask("POST", MAPS, {"metadata": {"name": "m"}})
    assert (201, "ConfigMap") == (status, made["kind"])
    del made["kind"], made["apiVersion"]
    assert 200 == (await ask("PUT", f"{MAPS}/m", made))[0]


async def test_fields_that_only_the_server_writes(ask):
    """A write neither changes nor removes them."""
    _, made = await ask("POST", MAPS, {"metadata": {"name": "one"}})
    gone = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert made == (await ask("PATCH", f"{MAPS}/one", gone, MERGE))[1]
    for change, code in (({"name": "two"}, 400), ({"namespace": "other"}, 400), ({"uid": "1"}, 422)):
        assert code == (await ask("PATCH", f"{MAPS}/one", {"metadata": change}, MERGE))[0]
    bare = {"metadata": {"name": "one", "resourceVersion": made["metadata"]["resourceVersion"]}}
    _, changed = await ask("PUT", f"{MAPS}/one", bare | {"data": {"a": "b"}})
    for field in ("uid", "namespace", "creationTimestamp"):
        assert made["metadata"][field] == changed["metadata"][field]
