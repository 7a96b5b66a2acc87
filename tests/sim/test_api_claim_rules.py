"""What the API server says of claims, templates and classes: field and reason, as a real one of 1.36.2 answered."""

import pytest

from tests.kit.rest import Caller
from vdev.sim.api.server import ApiServer

GROUP = "/apis/resource.k8s.io/v1"
PATHS = {
    "ResourceClaim": f"{GROUP}/namespaces/default/resourceclaims",
    "ResourceClaimTemplate": f"{GROUP}/namespaces/default/resourceclaimtemplates",
    "DeviceClass": f"{GROUP}/deviceclasses",
}
EXACTLY = "spec.devices.requests[0].exactly"
DEFAULTS = {"allocationMode": "ExactCount", "count": 1}


@pytest.fixture
async def ask():
    """A caller of a server."""
    async with ApiServer() as server:
        yield Caller(server)


def asked(**more):
    """A claim's spec that asks for one device."""
    return {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c", **more}}]}}


def either(*names, **more):
    """One that takes the first of several."""
    return {"devices": {"requests": [{"name": "r", "firstAvailable": [sub(name, **more) for name in names]}]}}


def sub(name, **more):
    """A request among several."""
    return {"name": name, "deviceClassName": "c", **more}


async def make(ask, kind, spec, **metadata):
    """What comes of making such an object."""
    document = {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": "one", **metadata}}
    return await ask("POST", PATHS[kind], document | ({} if spec is None else {"spec": spec}))


REFUSED = [
    (asked(allocationMode="All", count=1), f"{EXACTLY}.count"),
    (asked(allocationMode="Most"), f"{EXACTLY}.allocationMode"),
    (asked(selectors=[{}]), f"{EXACTLY}.selectors[0].cel.expression"),
    (asked(count="1"), f"{EXACTLY}.count"),
    (asked(count=1.5), f"{EXACTLY}.count"),
    (asked(adminAccess="true"), f"{EXACTLY}.adminAccess"),
    (asked(capacity={"requests": {"memory": "lots"}}), f"{EXACTLY}.capacity.requests.memory"),
    ({"devices": []}, "spec.devices"),
    ({"devices": {"requests": {}}}, "spec.devices.requests"),
]


def fields(answer):
    """The fields that an answer names."""
    return [each["field"] for each in answer["details"]["causes"]]


async def test_a_claim_is_refused(subtests, ask):
    """The scheduler could not work with it. A template is refused as the claim that would be made from it."""
    for spec, field in REFUSED:
        with subtests.test(field=field):
            status, answer = await make(ask, "ResourceClaim", spec)
            assert (422, "Invalid", "resource.k8s.io") == (status, answer["reason"], answer["details"]["group"])
            assert [field] == fields(answer)
            assert answer["message"].startswith('ResourceClaim.resource.k8s.io "one" is invalid: ')
            status, answer = await make(ask, "ResourceClaimTemplate", {"spec": spec})
            assert (422, [f"spec.{field}"]) == (status, fields(answer))


@pytest.mark.parametrize(
    ("spec", "where"),
    [
        (asked(), ("exactly",)),
        (asked(count=0, allocationMode=""), ("exactly",)),
        (either("a"), ("firstAvailable", 0)),
    ],
)
async def test_defaults_of_requests(ask, spec, where):
    """Mode and number are there for readers of the claim; and a second apply of the same changes nothing."""
    _, made = await make(ask, "ResourceClaim", spec)
    (request,) = made["spec"]["devices"]["requests"]
    for step in where:
        request = request[step]
    assert DEFAULTS == {name: request[name] for name in DEFAULTS}
    status, changed = await ask("PATCH", f"{PATHS['ResourceClaim']}/one", {"spec": spec}, MERGE)
    assert (200, made["metadata"]["resourceVersion"]) == (status, changed["metadata"]["resourceVersion"])


MERGE = "application/merge-patch+json"


async def test_all_devices_and_tolerations(ask):
    """All are not counted; how a toleration compares is written down."""
    _, made = await make(ask, "ResourceClaim", asked(allocationMode="All", tolerations=[{"key": "a"}]))
    request = made["spec"]["devices"]["requests"][0]["exactly"]
    assert "count" not in request
    assert "Equal" == request["tolerations"][0]["operator"]


async def test_a_class_with_a_name_for_pods_that_is_none(subtests, ask):
    """No pod could ask for it."""
    cases = [
        "",
        "cpu",
        "gpu",
        "hugepages-2Mi",
        "kubernetes.io/x",
        "a.kubernetes.io/x",
        "requests.a.dev/x",
        "A.dev/x",
        "a.dev/x y",
        f"{'a' * 250}/x",
    ]
    for name in cases:
        with subtests.test(name=name):
            status, answer = await make(ask, "DeviceClass", {"extendedResourceName": name})
            assert (422, "spec.extendedResourceName") == (status, answer["details"]["causes"][0]["field"])


RESULT = {"request": "r", "driver": "a.dev", "pool": "p", "device": "d"}
READY = {"type": "Ready", "status": "True", "reason": "R", "lastTransitionTime": "2026-01-01T00:00:00Z"}
DEVICE = "status.devices[0]"


def given(result, devices=(), **allocation):
    """A status with an allocation."""
    devices = [{"driver": "a.dev", "pool": "p", "device": "d"} | each for each in devices]
    return {"allocation": {"devices": {"results": [RESULT | result]}, **allocation}, "devices": devices}


async def test_a_status_is_refused(subtests, ask):
    """What a driver writes is checked as well."""
    await make(ask, "ResourceClaim", asked())
    for status, field in (
        (given({}, [{"data": "x"}]), f"{DEVICE}.data"),
        (given({}, [{"networkData": {"ips": ["10.0.0.1"]}}]), f"{DEVICE}.networkData.ips[0]"),
        (given({}, [{"conditions": [READY] * 2}]), f"{DEVICE}.conditions[1].type"),
    ):
        with subtests.test(field=field):
            code, answer = await ask("PATCH", f"{PATHS['ResourceClaim']}/one/status", {"status": status}, MERGE)
            assert (422, [field]) == (code, fields(answer))


async def test_a_status_with_all_that_there_is(ask):
    """Nothing of it is refused."""
    share = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
    told = {"shareID": share, "data": {"a": 1}, "networkData": {"ips": ["10.0.0.1/24", "2001:db8::1/64"]}}
    binding = {"bindingConditions": ["a.dev/a"], "bindingFailureConditions": ["a.dev/b"]}
    status = given(
        {"shareID": share, "consumedCapacity": {"memory": "1Gi"}, **binding}, [told | {"conditions": [READY]}]
    )
    await make(ask, "ResourceClaim", asked())
    code, answer = await ask("PATCH", f"{PATHS['ResourceClaim']}/one/status", {"status": status}, MERGE)
    assert 200 == code, answer["message"]
