"""What the API server says of claims, templates and classes: field and reason, as a real one of 1.36.2 answered."""

import builtins

import pytest

from tests.kit.rest import Caller
from vdev.sim.api.server import ApiServer
from vdev.sim.dra import cel_selectors

GROUP = "/apis/resource.k8s.io/v1"
PATHS = {
    "ResourceClaim": f"{GROUP}/namespaces/default/resourceclaims",
    "ResourceClaimTemplate": f"{GROUP}/namespaces/default/resourceclaimtemplates",
    "DeviceClass": f"{GROUP}/deviceclasses",
}
EXACTLY = "spec.devices.requests[0].exactly"
CEL = f"{EXACTLY}.selectors[0].cel.expression"
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


def cel(expression):
    """One with a selector."""
    return asked(selectors=[{"cel": {"expression": expression}}])


def config(**opaque):
    """A configuration of a driver."""
    return {"config": [{"opaque": {"parameters": {"a": 1}} | opaque}]}


async def make(ask, kind, spec, **metadata):
    """What comes of making such an object."""
    document = {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": "one", **metadata}}
    return await ask("POST", PATHS[kind], document | ({} if spec is None else {"spec": spec}))


REFUSED = {
    "a number with All": (asked(allocationMode="All", count=1), f"{EXACTLY}.count", "Invalid"),
    "another mode": (asked(allocationMode="Most"), f"{EXACTLY}.allocationMode", "NotSupported"),
    "a driver": (
        asked() | {"devices": asked()["devices"] | config(driver="a b")},
        "spec.devices.config[0].opaque.driver",
        "Invalid",
    ),
    "a long driver": (
        asked() | {"devices": asked()["devices"] | config(driver="a" * 64)},
        "spec.devices.config[0].opaque.driver",
        "TooLong",
    ),
    "no expression": (asked(selectors=[{}]), CEL, "Required"),
    "half an expression": (cel("device.driver =="), CEL, "Invalid"),
    "a variable that is none": (cel("dev.driver == 'x'"), CEL, "Invalid"),
    "a function that is none": (cel("device.attributes['a.dev'].x.includes('b')"), CEL, "Invalid"),
    "no truth value": (cel("'text'"), CEL, "Invalid"),
    "an expression among several": (
        either("a", selectors=[{"cel": {"expression": "1"}}]),
        "spec.devices.requests[0].firstAvailable[0].selectors[0].cel.expression",
        "Invalid",
    ),
}


def needs_cel(field):
    """Skip what only a compiler of expressions refuses."""
    if field.endswith("cel.expression"):
        pytest.importorskip("cel_expr_python", reason="cel-expr-python, which compiles selectors, is not installed")


async def test_a_claim_is_refused(subtests, ask):
    """One that no scheduler could do anything with is not stored."""
    for case in REFUSED:
        with subtests.test(case=case):
            spec, field, why = REFUSED[case]
            needs_cel(field)
            status, answer = await make(ask, "ResourceClaim", spec)
            assert (422, "Invalid", "resource.k8s.io") == (status, answer["reason"], answer["details"]["group"])
            assert [(field, why)] == [
                (each["field"], each["reason"].removeprefix("FieldValue")) for each in answer["details"]["causes"]
            ]
            assert answer["message"].startswith('ResourceClaim.resource.k8s.io "one" is invalid: ')


@pytest.mark.parametrize(
    "expression",
    [
        "device.attributes['a.dev'].x",  # whose type nobody knows
        "device.attributes[?'a.dev'].orValue({}) == {}",
        "cel.bind(found, device.attributes['a.dev'], found.x == 1)",
        "sets.contains([1], [1])",  # a function that the allocator here does not have
        "semver('v1.0', true).major() == 1",
    ],
)
async def test_an_expression_is_taken(ask, expression):
    """Of what a real server takes nothing is refused."""
    status, _ = await make(ask, "ResourceClaim", cel(expression))
    assert 201 == status


async def test_without_cel_expressions_are_stored_as_they_are(ask, monkeypatch):
    """Who does not allocate by them needs nothing that reads them."""

    def missing(name, *args, real=builtins.__import__, **kwargs):
        if name.startswith("cel_expr_python"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    cel_selectors._library.cache_clear()
    status, _ = await make(ask, "ResourceClaim", cel("neither this nor that"))
    cel_selectors._library.cache_clear()
    assert 201 == status


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


@pytest.mark.parametrize(
    ("spec", "field", "why"),
    [
        ({"spec": cel("x")}, f"spec.{CEL}", "Invalid"),
    ],
)
async def test_a_template_is_refused(ask, spec, field, why):
    """As the claim that would be made from it."""
    needs_cel(field)
    status, answer = await make(ask, "ResourceClaimTemplate", {"spec": asked()} | spec)
    assert 422 == status
    assert [(field, f"FieldValue{why}")] == [(each["field"], each["reason"]) for each in answer["details"]["causes"]]


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


REQUEST = "spec.devices.requests[0]"


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (asked(count="1"), f"{REQUEST}.exactly.count"),
        (asked(count=1.5), f"{REQUEST}.exactly.count"),
        (asked(adminAccess="true"), f"{REQUEST}.exactly.adminAccess"),
        (asked(capacity={"requests": {"memory": "lots"}}), f"{REQUEST}.exactly.capacity.requests.memory"),
        ({"devices": []}, "spec.devices"),
        ({"devices": {"requests": {}}}, "spec.devices.requests"),
    ],
)
async def test_what_is_no_claim(ask, spec, field):
    """A value of another type."""
    status, answer = await make(ask, "ResourceClaim", spec)
    assert (422, [field]) == (status, [each["field"] for each in answer["details"]["causes"]])


RESULT = {"request": "r", "driver": "a.dev", "pool": "p", "device": "d"}
READY = {"type": "Ready", "status": "True", "reason": "R", "lastTransitionTime": "2026-01-01T00:00:00Z"}
DEVICE = "status.devices[0]"


def given(result, devices=(), **allocation):
    """A status with an allocation."""
    devices = [{"driver": "a.dev", "pool": "p", "device": "d"} | each for each in devices]
    return {"allocation": {"devices": {"results": [RESULT | result]}, **allocation}, "devices": devices}


STATUSES = {
    "data": (given({}, [{"data": "x"}]), f"{DEVICE}.data", "Invalid"),
    "an address": (
        given({}, [{"networkData": {"ips": ["10.0.0.1"]}}]),
        f"{DEVICE}.networkData.ips[0]",
        "Invalid",
    ),
    "a condition twice": (given({}, [{"conditions": [READY] * 2}]), f"{DEVICE}.conditions[1].type", "Duplicate"),
}


@pytest.mark.parametrize("case", STATUSES)
async def test_a_status_is_refused(ask, case):
    """What a driver writes is looked at as well."""
    status, field, why = STATUSES[case]
    await make(ask, "ResourceClaim", asked())
    code, answer = await ask("PATCH", f"{PATHS['ResourceClaim']}/one/status", {"status": status}, MERGE)
    assert 422 == code
    assert [(field, f"FieldValue{why}")] == [(each["field"], each["reason"]) for each in answer["details"]["causes"]]


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
