"""The claims, templates and classes that the API server refuses."""

GROUP = "/apis/resource.k8s.io/v1"
PATHS = {
    "ResourceClaim": f"{GROUP}/namespaces/default/resourceclaims",
    "ResourceClaimTemplate": f"{GROUP}/namespaces/default/resourceclaimtemplates",
    "DeviceClass": f"{GROUP}/deviceclasses",
}
REQUEST = "spec.devices.requests[0]"
EXACTLY = f"{REQUEST}.exactly"


def requests(*written, **more):
    """The spec of a claim with these requests."""
    return {"devices": {"requests": list(written), **more}}


def asked(**more):
    """The spec of a claim for one device."""
    return requests({"name": "r", "exactly": {"deviceClassName": "c", **more}})


def configured(**more):
    """The spec of a claim for one device, with constraints or configuration."""
    return {"devices": asked()["devices"] | more}


async def make(ask, kind, spec, **metadata):
    """The answer to a request that creates an object."""
    document = {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": "one", **metadata}}
    return await ask("POST", PATHS[kind], document | ({} if spec is None else {"spec": spec}))


OPAQUE = {"opaque": {"driver": "acme.dev", "parameters": {"kind": "X"}}}


REFUSED = [
    (requests({"name": "r"}), REQUEST),
    (requests({"name": "r", "exactly": {}}), f"{EXACTLY}.deviceClassName"),
    (requests({"name": "r", "firstAvailable": [{"name": "x"}]}), f"{REQUEST}.firstAvailable[0].deviceClassName"),
    (
        configured(constraints=[{"matchAttribute": "acme.dev/a", "requests": ["x"]}]),
        "spec.devices.constraints[0].requests[0]",
    ),
    (configured(constraints=[{"requests": ["r"]}]), "spec.devices.constraints[0]"),
    (
        requests(asked()["devices"]["requests"][0], config=[OPAQUE | {"requests": ["x"]}]),
        "spec.devices.config[0].requests[0]",
    ),
    (asked(count=-1), f"{EXACTLY}.count"),
    (asked(cuont=1), f"{EXACTLY}.cuont"),
    (asked(allocationMode="Most"), f"{EXACTLY}.allocationMode"),
    (asked(selectors=[{}]), f"{EXACTLY}.selectors[0].cel"),
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
            assert (422, "Invalid") == (status, answer["reason"])
            assert [field] == fields(answer)
            assert answer["message"].startswith('ResourceClaim.resource.k8s.io "one" is invalid: ')
            status, answer = await make(ask, "ResourceClaimTemplate", {"spec": spec})
            assert (422, [f"spec.{field}"]) == (status, fields(answer))


MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
RESULT = {"request": "r", "driver": "a.dev", "pool": "p", "device": "d"}
READY = {"type": "Ready", "status": "True", "reason": "R", "lastTransitionTime": "2026-01-01T00:00:00Z"}
DEVICE = "status.devices[0]"


def given(result, devices=(), **allocation):
    """A status with an allocation."""
    devices = [{"driver": "a.dev", "pool": "p", "device": "d"} | each for each in devices]
    return {"allocation": {"devices": {"results": [RESULT | result]}, **allocation}, "devices": devices}


async def test_a_status_is_refused(subtests, ask):
    """The server checks the status that drivers write."""
    await make(ask, "ResourceClaim", asked())
    for status, field in (
        (given({}, [{"conditions": [{**READY, "status": True}]}]), f"{DEVICE}.conditions[0].status"),
        ({"alocation": {}}, "status.alocation"),
    ):
        with subtests.test(field=field):
            code, answer = await ask("PATCH", f"{PATHS['ResourceClaim']}/one/status", {"status": status}, MERGE)
            assert (422, [field]) == (code, fields(answer))


async def test_the_data_of_a_driver_is_one_value(ask):
    """A server-side apply replaces it, and null and `$` mean nothing in it."""
    await make(ask, "ResourceClaim", asked())
    path = f"{PATHS['ResourceClaim']}/one/status"
    await ask("PATCH", path, {"status": given({})}, MERGE)
    for data in ({"a": 1, "b": None}, {"$c": None}):
        status = {"devices": [{"driver": "a.dev", "pool": "p", "device": "d", "data": data}]}
        code, answer = await ask("PATCH", f"{path}?fieldManager=a.dev", {"status": status}, APPLY)
        assert (200, data) == (code, answer["status"]["devices"][0]["data"]), answer
