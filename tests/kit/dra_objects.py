"""Objects of DRA for tests: classes, claims, templates, and pods that use them."""


def device_class(name, *expressions, **spec):
    """A DeviceClass with CEL selectors."""
    selectors = {"selectors": [{"cel": {"expression": each}} for each in expressions]} if expressions else {}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {**selectors, **spec},
    }


def exactly(class_name="acme.dev", *expressions, name="main", **fields):
    """Return a request for exactly one class."""
    if expressions:
        fields["selectors"] = [{"cel": {"expression": each}} for each in expressions]
    return {"name": name, "exactly": {"deviceClassName": class_name, **fields}}


def claim(name, *requests, namespace="default", **devices):
    """A ResourceClaim; by default for one device of class acme.dev."""
    spec = {"devices": {"requests": list(requests) or [exactly()], **devices}}
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": meta, "spec": spec}


def template(name, *requests, **devices):
    """Return a ResourceClaimTemplate with the spec of a claim for these requests."""
    spec = claim(name, *requests, **devices)["spec"]
    meta = {"name": name, "namespace": "default"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": meta,
        "spec": {"spec": spec},
    }


def pod(name, *, claims=(), templates=(), containers=None, limits=None, node="", uid=None):
    """A Pod with these claims and templates, by name; by default one container uses all of them."""
    rows = [{"name": each, "resourceClaimName": each} for each in claims]
    rows += [{"name": each, "resourceClaimTemplateName": each} for each in templates]
    used = containers or {"main": [{"name": each} for each in (*claims, *templates)]}
    spec = {
        "containers": [
            {"name": c, "image": "none", "resources": {"claims": uses, "limits": limits or {}}}
            for c, uses in used.items()
        ]
    }
    spec |= {"resourceClaims": rows} if rows else {}
    spec |= {"nodeName": node} if node else {}
    meta = {"name": name} | ({"uid": uid} if uid else {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
