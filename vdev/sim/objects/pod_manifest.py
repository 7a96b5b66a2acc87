"""Parses resources and claims of v1 Pod manifests with the API server's rules for extended resources."""

import math
import uuid
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from ...errors import UsageError
from ...model.quantity import amount_of
from .pods import ContainerSpec, Kind, PodClaim, PodSpec


class ManifestError(UsageError):
    """A manifest is not a Pod, or the API server would reject it."""


def manifest(name: str, limits: Mapping[str, int] | None = None, **containers: Mapping[str, int]) -> dict[str, Any]:
    """Return a small Pod manifest for tests: one container `main` with `limits`, or one per keyword argument."""
    wanted = {**({"main": limits} if limits is not None or not containers else {}), **containers}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "containers": [
                {"name": c, "image": "none", "resources": {"limits": {r: str(n) for r, n in (amounts or {}).items()}}}
                for c, amounts in wanted.items()
            ]
        },
    }


def parse(document: Any) -> PodSpec:
    """Parse a v1 Pod. It gets a UID if it has none. Raises ManifestError."""
    pod = _mapping(document, "the manifest")
    if pod.get("kind") != "Pod" or pod.get("apiVersion") != "v1":
        raise ManifestError(f"expected a v1 Pod, found {pod.get('apiVersion')!r} {pod.get('kind')!r}")
    meta = _mapping(pod.get("metadata"), "metadata")
    uid = str(meta.get("uid") or uuid.uuid4())
    name = meta.get("name") or (f"{meta['generateName']}{uid[:8]}" if meta.get("generateName") else None)
    if not isinstance(name, str) or not name:
        raise ManifestError("metadata.name: expected a name")
    namespace = str(meta.get("namespace") or "default")
    spec = _mapping(pod.get("spec"), "spec")
    found = [
        _container(container, where, init=field == "initContainers")
        for field in ("initContainers", "containers")
        for where, container in _items(spec.get(field), f"spec.{field}")
    ]
    if not any(container.kind is Kind.APP for container in found):
        raise ManifestError("spec.containers: expected at least one container")
    names = [container.name for container in found]
    if len(set(names)) != len(names):
        raise ManifestError(f"spec: container names must be unique, found {names}")
    claims = _claims(spec.get("resourceClaims"))
    for container in found:
        if unknown := {claim for claim, _ in container.claims} - {claim.name for claim in claims}:
            raise ManifestError(
                f"spec.containers[{container.name}].resources.claims: {min(unknown)!r} is not among "
                f"spec.resourceClaims, which are {[claim.name for claim in claims]}"
            )
    return PodSpec(name, namespace, uid, tuple(found), claims, str(spec.get("nodeName") or ""))


def quantity(value: Any, where: str) -> Fraction:
    """Parse a Kubernetes quantity (`2`, `500m`, `1Gi`, `1e3`). Raises ManifestError."""
    amount = amount_of(value) if isinstance(value, str | int | float) else None
    if amount is None:
        raise ManifestError(f"{where}: {value!r} is not a quantity; expected something like 2, 500m or 1Gi")
    return amount


def _container(container: Mapping[str, Any], where: str, *, init: bool) -> ContainerSpec:
    name = container.get("name")
    if not isinstance(name, str) or not name:
        raise ManifestError(f"{where}.name: expected a name")
    resources = _mapping(container.get("resources") or {}, f"{where}.resources")
    limits = _quantities(resources.get("limits"), f"{where}.resources.limits")
    requests = _quantities(resources.get("requests"), f"{where}.resources.requests")
    for resource in {**limits, **requests}:
        if "/" in resource and "kubernetes.io/" not in resource:
            _check_extended(resource, limits.get(resource), requests.get(resource), f"{where}.resources")
    kind = Kind.APP if not init else Kind.SIDECAR if container.get("restartPolicy") == "Always" else Kind.INIT
    counts = {r: math.ceil(amount) for r, amount in limits.items()}
    rows = [row for _, row in _items(resources.get("claims"), f"{where}.resources.claims")]
    claims = tuple((str(row.get("name") or ""), str(row.get("request") or "")) for row in rows)
    return ContainerSpec(name, kind, counts, {**limits, **requests}, claims)


def _claims(documents: Any) -> tuple[PodClaim, ...]:
    found: list[PodClaim] = []
    for where, claim in _items(documents, "spec.resourceClaims"):
        name, given, template = (
            str(claim.get(key) or "") for key in ("name", "resourceClaimName", "resourceClaimTemplateName")
        )
        if not name or name in {each.name for each in found}:
            raise ManifestError(f"{where}.name: expected a name that no other claim of the pod has, found {name!r}")
        if bool(given) == bool(template):
            raise ManifestError(f"{where}: expected one of resourceClaimName and resourceClaimTemplateName")
        found.append(PodClaim(name, given, template))
    return tuple(found)


def _check_extended(resource: str, limit: Fraction | None, request: Fraction | None, where: str) -> None:
    if limit is None:
        raise ManifestError(f"{where}.limits: {resource} needs a limit (extended resources cannot be overcommitted)")
    if limit < 0 or limit.denominator != 1:
        raise ManifestError(f"{where}.limits[{resource}]: {float(limit):g} is not a whole number")
    if request is not None and request != limit:
        raise ManifestError(f"{where}.requests[{resource}]: {float(request):g} must equal the limit, {float(limit):g}")


def _quantities(document: Any, where: str) -> dict[str, Fraction]:
    return {str(key): quantity(value, f"{where}[{key}]") for key, value in _mapping(document or {}, where).items()}


def _items(documents: Any, where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the place and the content of each mapping in a list."""
    if not isinstance(documents or [], list):
        raise ManifestError(f"{where}: expected a list, found {type(documents).__name__}")
    for number, document in enumerate(documents or []):
        at = f"{where}[{number}]"
        yield at, _mapping(document, at)


def _mapping(document: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(document, Mapping):
        raise ManifestError(f"{where}: expected a mapping, found {type(document).__name__}")
    return document
