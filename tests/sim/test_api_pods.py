"""Pods at the API server: defaults as in a real one of 1.36.2, bindings, and evictions."""

PODS, MERGE = "/api/v1/namespaces/default/pods", "application/merge-patch+json"
CONTAINER = {"name": "c", "image": "busybox"}


def pod(*, name="p", container=None, **spec):
    """A pod with one container."""
    spec = {"containers": [CONTAINER | (container or {})], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def limits(**amounts):
    """A container with these limits."""
    return {"container": {"resources": {"limits": amounts}}}


async def test_defaults(ask):
    """Schedulers and operators rely on these fields."""
    _, made = await ask("POST", PODS, pod(**limits(cpu="1")) | {"status": {"phase": "Running"}})
    spec, (container,) = made["spec"], made["spec"]["containers"]
    assert {"cpu": "1"} == container["resources"]["limits"] == container["resources"]["requests"]
    assert ("default-scheduler", "Always", 30) == tuple(
        spec[name] for name in ("schedulerName", "restartPolicy", "terminationGracePeriodSeconds")
    )
    assert {"phase": "Pending"} == made["status"]
    assert not any("status" in str(each["fieldsV1"]) for each in made["metadata"]["managedFields"])


async def test_a_pod_that_no_kubelet_can_run(subtests, ask):
    for spec, why in (
        ({}, "at least one container"),
        ({"containers": [{}]}, "spec.containers[0].name: expected a name"),
        ({"containers": [CONTAINER | {"resources": {"limits": {"acme.dev/npu": "lots"}}}]}, "is not a quantity"),
    ):
        with subtests.test(why=why):
            status, refused = await ask("POST", PODS, pod() | {"spec": spec})
            assert (422, True) == (status, why in refused["message"])


def binding(node="n", **metadata):
    """A Binding as a scheduler creates it."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", **metadata},
        "target": {"kind": "Node", "name": node},
    }


async def test_a_binding(ask):
    """It gives a pod its node, once."""
    await ask("POST", PODS, pod())
    status, done = await ask("POST", f"{PODS}/p/binding", binding(annotations={"a": "b"}))
    assert (201, "Success") == (status, done["status"])
    _, bound = await ask("GET", f"{PODS}/p")
    assert ("n", {"a": "b"}) == (bound["spec"]["nodeName"], bound["metadata"]["annotations"])
    (condition,) = bound["status"]["conditions"]
    assert ("PodScheduled", "True") == (condition["type"], condition["status"])
    status, refused = await ask("POST", f"{PODS}/p/binding", binding("m"))
    assert (409, "Conflict") == (status, refused["reason"])
    assert 'pod p is already assigned to node "n"' in refused["message"]


async def test_wrong_bindings(ask):
    """Of an unknown pod, with another UID, without a node, and of a pod with a scheduling gate."""
    await ask("POST", PODS, pod(schedulingGates=[{"name": "g"}]))
    assert 404 == (await ask("POST", f"{PODS}/q/binding", binding() | {"metadata": {"name": "q"}}))[0]
    assert 409 == (await ask("POST", f"{PODS}/p/binding", binding(uid="another")))[0]
    assert 422 == (await ask("POST", f"{PODS}/p/binding", binding("")))[0]
    assert 409 == (await ask("POST", f"{PODS}/p/binding", binding()))[0]
    assert 400 == (await ask("POST", f"{PODS}/p/binding", binding() | {"kind": "Pod"}))[0]
    assert 405 == (await ask("GET", f"{PODS}/p/binding"))[0]


async def test_an_eviction(ask):
    """It deletes the pod. A pod that has a node stays until its kubelet deletes it."""
    await ask("POST", PODS, pod(nodeName="n"))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    assert 201 == (await ask("POST", f"{PODS}/p/eviction", eviction))[0]
    _, found = await ask("GET", f"{PODS}/p")
    assert "deletionTimestamp" in found["metadata"]
    now = eviction | {"deleteOptions": {"gracePeriodSeconds": 0}}
    assert 201 == (await ask("POST", f"{PODS}/p/eviction", now))[0]
    assert 404 == (await ask("GET", f"{PODS}/p"))[0]
