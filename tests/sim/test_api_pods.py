"""Pods at the API server: what is refused, filled in and kept, as by a real one of 1.36.2; bindings, evictions."""

import pytest

from tests.kit.rest import Caller
from vdev.sim.api.server import ApiServer

PODS, MERGE = "/api/v1/namespaces/default/pods", "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
CONTAINER = {"name": "c", "image": "busybox"}
CLAIM = {"name": "g", "resourceClaimName": "x"}
FIRST = "spec.containers[0]"


@pytest.fixture
async def ask():
    """A caller of a server."""
    async with ApiServer() as server:
        yield Caller(server)


def pod(*, name="p", container=None, **spec):
    """A pod with one container."""
    spec = {"containers": [CONTAINER | (container or {})], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def limits(requests=None, **amounts):
    """A container that asks for so much."""
    asked = {name.replace("__", "/").replace("_", "."): amount for name, amount in amounts.items()}
    return {"container": {"resources": {"limits": asked} | ({"requests": requests} if requests else {})}}


def uses(*claims):
    """A container that has claims of the pod's."""
    return {"container": {"resources": {"claims": list(claims)}}}


def required(**term):
    """A pod for some nodes alone."""
    terms = {"nodeSelectorTerms": [term] if term else []}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


REQUIRED = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
REFUSED = {
    "no container": ({"containers": []}, "spec.containers", "Required"),
    "a container twice": ({"containers": [CONTAINER] * 2}, "spec.containers[1].name", "Duplicate"),
    "a name of both kinds": ({"initContainers": [CONTAINER]}, "spec.initContainers[0].name", "Duplicate"),
    "no image": ({"container": {"image": ""}}, f"{FIRST}.image", "Required"),
    "a container's name": ({"container": {"name": "C"}}, f"{FIRST}.name", "Invalid"),
    "half a device": (limits(a_dev__x="1500m"), f"{FIRST}.resources.limits[a.dev/x]", "Invalid"),
    "less than nothing": (limits(cpu="-1"), f"{FIRST}.resources.limits[cpu]", "Invalid"),
    "a bare name": (limits(gpu="1"), f"{FIRST}.resources.limits[gpu]", "Invalid"),
    "no limit of devices": (
        {"container": {"resources": {"requests": {"a.dev/x": "1"}}}},
        f"{FIRST}.resources.limits",
        "Required",
    ),
    "devices in doubt": (limits({"a.dev/x": "1"}, a_dev__x="2"), f"{FIRST}.resources.requests", "Invalid"),
    "more than the limit": (limits({"cpu": "2"}, cpu="1"), f"{FIRST}.resources.requests", "Invalid"),
    "huge pages alone": (
        {"container": {"resources": {"limits": {"hugepages-2Mi": "2Mi"}}}},
        f"{FIRST}.resources",
        "Forbidden",
    ),
    "a claim of nobody": (uses({"name": "h"}), f"{FIRST}.resources.claims[0]", "NotFound"),
    "another claim": (uses({"name": "h"}) | {"resourceClaims": [CLAIM]}, f"{FIRST}.resources.claims[0]", "NotFound"),
    "a claim twice": (
        uses({"name": "g"}, {"name": "g", "request": "r"}) | {"resourceClaims": [CLAIM]},
        f"{FIRST}.resources.claims[1]",
        "Duplicate",
    ),
    "a claim named twice": ({"resourceClaims": [CLAIM] * 2}, "spec.resourceClaims[1].name", "Duplicate"),
    "a claim of no kind": ({"resourceClaims": [{"name": "g"}]}, "spec.resourceClaims[0]", "Invalid"),
    "a claim of both kinds": (
        {"resourceClaims": [CLAIM | {"resourceClaimTemplateName": "y"}]},
        "spec.resourceClaims[0]",
        "Invalid",
    ),
    "a toleration of nothing": ({"tolerations": [{}]}, "spec.tolerations[0].operator", "Invalid"),
    "a toleration's operator": (
        {"tolerations": [{"key": "a", "operator": "In"}]},
        "spec.tolerations[0].operator",
        "NotSupported",
    ),
    "a toleration's time": (
        {"tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 5}]},
        "spec.tolerations[0].effect",
        "Invalid",
    ),
    "a gate twice": ({"schedulingGates": [{"name": "g"}] * 2}, "spec.schedulingGates[1]", "Duplicate"),
    "a node behind a gate": (
        {"schedulingGates": [{"name": "g"}], "nodeName": "n"},
        "spec.nodeName",
        "Forbidden",
    ),
    "a selector's key": ({"nodeSelector": {"a b": "c"}}, "spec.nodeSelector", "Invalid"),
    "no term": (required(), REQUIRED, "Required"),
    "a term's operator": (
        required(matchExpressions=[{"key": "a", "operator": "Is"}]),
        f"{REQUIRED}[0].matchExpressions[0].operator",
        "Invalid",
    ),
    "a policy": ({"restartPolicy": "Sometimes"}, "spec.restartPolicy", "NotSupported"),
    "a mount of nothing": (
        {"container": {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}},
        f"{FIRST}.volumeMounts[0].name",
        "NotFound",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_pod_is_refused(ask, case):
    """What no kubelet could run, or no scheduler place."""
    spec, field, why = REFUSED[case]
    status, answer = await ask("POST", PODS, pod(**spec))
    assert (422, "Invalid") == (status, answer["reason"])
    first = answer["details"]["causes"][0]
    assert (field, f"FieldValue{why}") == (first["field"], first["reason"])


async def test_a_pod_with_all_that_there_is(ask):
    """Nothing of it is refused, and nothing of it is lost."""
    spec = {
        "resourceClaims": [CLAIM, {"name": "h", "resourceClaimTemplateName": "t"}],
        "container": {
            "resources": {
                "limits": {"cpu": "500m", "memory": "1Gi", "a.dev/x": "2", "hugepages-2Mi": "4Mi"},
                "claims": [{"name": "g", "request": "r"}, {"name": "g", "request": "s"}, {"name": "h"}],
            },
            "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        },
        "volumes": [{"name": "v", "emptyDir": {}}],
        "tolerations": [{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "PreferNoSchedule"}],
        "nodeSelector": {"a.dev/b": "c"},
        "schedulingGates": [{"name": "a.dev/g"}],
        **required(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["n"]}]),
    }
    status, made, warned = await ask.whole("POST", PODS, pod(**spec))
    assert (201, []) == (status, warned), made["message"]
    for field in spec.keys() - {"container"}:
        assert spec[field] == made["spec"][field]


@pytest.mark.parametrize(
    ("amounts", "quality"),
    [
        ({}, "BestEffort"),
        ({"cpu": "1"}, "Burstable"),
        ({"cpu": "1", "memory": "1Gi"}, "Guaranteed"),
        ({"a_dev__x": "1"}, "BestEffort"),
    ],
)
async def test_defaults(ask, amounts, quality):
    """What schedulers and operators read without asking whether it is there."""
    _, made = await ask("POST", PODS, pod(**limits(**amounts)) | {"status": {"phase": "Running"}})
    spec, (container,) = made["spec"], made["spec"]["containers"]
    assert container["resources"].get("limits", {}) == container["resources"].get("requests", {})
    assert ("default-scheduler", "Always", 30, 0) == tuple(
        spec[name] for name in ("schedulerName", "restartPolicy", "terminationGracePeriodSeconds", "priority")
    )
    assert "Always" == container["imagePullPolicy"]
    assert {"phase": "Pending", "qosClass": quality} == made["status"]
    assert 1 == made["metadata"]["generation"]
    assert not any("status" in str(each["fieldsV1"]) for each in made["metadata"]["managedFields"])


async def test_little_of_a_pod_changes(ask):
    """Images, gates that go and tolerations that come; everything else is made again."""
    gates = [{"name": "a"}, {"name": "b"}]
    _, made = await ask("POST", PODS, pod(schedulingGates=gates, **limits(cpu="1")))
    for change in (
        {"nodeName": "n"},
        {"schedulerName": "other"},
        {"containers": [CONTAINER | {"resources": {"limits": {"cpu": "2"}}}]},
        {"schedulingGates": [*gates, {"name": "c"}]},
    ):
        status, answer = await ask("PATCH", f"{PODS}/p", {"spec": change}, MERGE)
        assert (422, "FieldValueForbidden") == (status, answer["details"]["causes"][0]["reason"])
    free = {
        "schedulingGates": gates[:1],
        "nodeSelector": {"rack": "r1"},
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "c", "image": "other"}],
    }
    status, changed = await ask("PATCH", f"{PODS}/p", {"spec": free}, STRATEGIC)
    assert (200, 2) == (status, changed["metadata"]["generation"]), changed["message"]
    assert made["spec"]["containers"][0]["resources"] == changed["spec"]["containers"][0]["resources"]
    await ask("PATCH", f"{PODS}/p", {"spec": {"schedulingGates": None}}, MERGE)
    status, _ = await ask("PATCH", f"{PODS}/p", {"spec": {"nodeSelector": {"rack": "r2"}}}, MERGE)
    assert 422 == status
    status, _ = await ask("PATCH", f"{PODS}/p", {"spec": {"tolerations": None}}, MERGE)
    assert 422 == status


def binding(node="n", **metadata):
    """What a scheduler creates."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", **metadata},
        "target": {"kind": "Node", "name": node},
    }


async def test_a_binding(ask):
    """It gives a pod its node, once, and says so in one change."""
    _, made = await ask("POST", PODS, pod())
    status, done = await ask("POST", f"{PODS}/p/binding", binding(annotations={"a": "b"}))
    assert (201, "Success") == (status, done["status"])
    _, bound = await ask("GET", f"{PODS}/p")
    assert ("n", {"a": "b"}) == (bound["spec"]["nodeName"], bound["metadata"]["annotations"])
    (condition,) = bound["status"]["conditions"]
    assert ("PodScheduled", "True") == (condition["type"], condition["status"])
    (change,) = await ask.watch(f"{PODS}?resourceVersion={made['metadata']['resourceVersion']}")
    assert "MODIFIED" == change["type"]
    status, refused = await ask("POST", f"{PODS}/p/binding", binding("m"))
    assert (409, "Conflict") == (status, refused["reason"])
    assert 'pod p is already assigned to node "n"' in refused["message"]


async def test_bindings_that_are_none(ask):
    """Of a pod that is not there, another one of that name, no node, and behind a gate."""
    await ask("POST", PODS, pod(schedulingGates=[{"name": "g"}]))
    assert 404 == (await ask("POST", f"{PODS}/q/binding", binding() | {"metadata": {"name": "q"}}))[0]
    assert 409 == (await ask("POST", f"{PODS}/p/binding", binding(uid="another")))[0]
    assert 500 == (await ask("POST", f"{PODS}/p/binding", binding("")))[0]
    assert 409 == (await ask("POST", f"{PODS}/p/binding", binding()))[0]
    assert 400 == (await ask("POST", f"{PODS}/p/binding", binding() | {"kind": "Pod"}))[0]
    assert 405 == (await ask("GET", f"{PODS}/p/binding"))[0]


async def test_an_eviction(ask):
    """It deletes as a deletion does: a pod that has a node stays until its kubelet lets it go."""
    await ask("POST", PODS, pod(nodeName="n"))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    assert 201 == (await ask("POST", f"{PODS}/p/eviction", eviction))[0]
    _, found = await ask("GET", f"{PODS}/p")
    assert (True, 2) == ("deletionTimestamp" in found["metadata"], found["metadata"]["generation"])
    now = eviction | {"deleteOptions": {"gracePeriodSeconds": 0}}
    assert 201 == (await ask("POST", f"{PODS}/p/eviction", now))[0]
    assert 404 == (await ask("GET", f"{PODS}/p"))[0]
