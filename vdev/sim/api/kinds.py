"""The kinds of objects that the API server serves, its errors, and its discovery documents.

To add a kind, add it to `KINDS`.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Document: TypeAlias = Mapping[str, Any]
Stored: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ApiKind:
    """A kind of API object. The version is always v1."""

    group: str
    kind: str
    plural: str
    namespaced: bool = True
    status: bool = False  # the status is a subresource
    graceful: bool = False  # an object that is bound to a node exists until the kubelet deletes it
    selectable: tuple[str, ...] = ()  # fields for field selectors, besides name and namespace
    immutable: tuple[str, ...] = ()
    short: tuple[str, ...] = ()  # names for kubectl
    actions: tuple[str, ...] = ()  # subresources that accept an object of another kind

    @property
    def api_version(self) -> str:
        return f"{self.group}/v1" if self.group else "v1"

    @property
    def root(self) -> str:
        """The path of the group and version."""
        return f"/apis/{self.group}/v1" if self.group else "/api/v1"

    @property
    def path(self) -> str:
        """The path of the objects. It contains `{namespace}` if the kind is namespaced."""
        return f"{self.root}{'/namespaces/{namespace}' * self.namespaced}/{self.plural}"

    @property
    def subresources(self) -> Mapping[str, list[str]]:
        status = {"status": ["get", "patch", "update"]} if self.status else {}
        return {**status, **{action: ["create"] for action in self.actions}}

    @property
    def full(self) -> str:
        """The name in messages, such as `resourceslices.resource.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


_INVOLVED = tuple(f"involvedObject.{each}" for each in ("kind", "name", "namespace", "uid"))
POD_ACTIONS = {"binding": ("v1", "Binding"), "eviction": ("policy/v1", "Eviction")}  # apiVersion and kind of the body
DRA = "resource.k8s.io"
KINDS = (
    ApiKind("", "Namespace", "namespaces", namespaced=False, short=("ns",)),
    ApiKind("", "Node", "nodes", namespaced=False, status=True, selectable=("spec.unschedulable",), short=("no",)),
    ApiKind(
        "",
        "Pod",
        "pods",
        status=True,
        graceful=True,
        selectable=("spec.nodeName", "spec.schedulerName", "spec.restartPolicy", "status.phase"),
        short=("po",),
        actions=tuple(POD_ACTIONS),
    ),
    ApiKind("", "Event", "events", selectable=("reason", "type", *_INVOLVED), short=("ev",)),
    ApiKind("", "ConfigMap", "configmaps", short=("cm",)),
    ApiKind("coordination.k8s.io", "Lease", "leases"),
    ApiKind(
        DRA,
        "ResourceSlice",
        "resourceslices",
        namespaced=False,
        selectable=("spec.nodeName", "spec.driver"),
        immutable=("spec.driver", "spec.pool.name", "spec.nodeName"),
    ),
    ApiKind(DRA, "DeviceClass", "deviceclasses", namespaced=False),
    ApiKind(DRA, "ResourceClaim", "resourceclaims", status=True, immutable=("spec",)),
    ApiKind(DRA, "ResourceClaimTemplate", "resourceclaimtemplates", immutable=("spec",)),
)
BY_NAME = {each.kind: each for each in KINDS}
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def value_at(document: Document, path: str) -> Any:
    """Return the value at a path such as `spec.pool.name`, or None if it does not exist."""
    found: Any = document
    for part in path.split("."):
        found = (found or {}).get(part)
    return found


class Refused(Exception):
    """An error response of the API server: a `Status` object."""

    def __init__(self, status: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.status = status
        self.document = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "details": details,
            "code": status,
        }


def wrong(value: Any, why: str) -> str:
    """Return the API server's message for an invalid value."""
    return f"Invalid value: {json.dumps(value, ensure_ascii=False)}: {why}"


def not_found(kind: ApiKind, name: str) -> Refused:
    return Refused(404, "NotFound", f'{kind.full} "{name}" not found', name=name)


def conflict(kind: ApiKind, name: str, why: str) -> Refused:
    """The error if an object is not in the state that a request expects."""
    return Refused(409, "Conflict", f'Operation cannot be fulfilled on {kind.full} "{name}": {why}')


def invalid(kind: ApiKind, name: str, problems: Iterable[tuple[str, str]]) -> Refused:
    """The error for an invalid object. `problems` are pairs of field and message."""
    full = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    causes = [{"reason": "FieldValueInvalid", "message": text, "field": field} for field, text in problems]
    texts = ", ".join(f"{each['field']}: {each['message']}" if each["field"] else each["message"] for each in causes)
    message = f'{full} "{name}" is invalid: {texts if len(causes) == 1 else f"[{texts}]"}'
    return Refused(422, "Invalid", message, name=name, kind=kind.kind, causes=causes)


# --- discovery --------------------------------------------------------------------------------------------------------


def discovery(kinds: Iterable[ApiKind]) -> Mapping[str, Document]:
    """Return the discovery documents by path: groups, versions and kinds. kubectl requests them first.

    The OpenAPI document has no schemas. It only declares server-side validation of patches, so kubectl does not
    validate them.
    """
    by_root: dict[str, list[ApiKind]] = {}
    for each in kinds:
        by_root.setdefault(each.root, []).append(each)
    groups = [_group(rows[0]) for rows in by_root.values() if rows[0].group]
    found: dict[str, Document] = {
        "/version": {"major": "1", "minor": "36", "gitVersion": "v1.36.2", "platform": "vdev/sim"},
        "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups},
        "/openapi/v3": {"paths": {root[1:]: {"serverRelativeURL": f"/openapi/v3{root}"} for root in by_root}},
    }
    found |= {f"/{name}": {"status": "ok"} for name in ("healthz", "livez", "readyz")}
    for root, rows in by_root.items():
        found[root] = _resources(rows)
        found[f"/openapi/v3{root}"] = _openapi(rows)
    return found


def _group(kind: ApiKind) -> dict[str, Any]:
    only = {"groupVersion": kind.api_version, "version": "v1"}
    return {"name": kind.group, "versions": [only], "preferredVersion": only}


def _resources(kinds: list[ApiKind]) -> Document:
    rows: list[dict[str, Any]] = []
    for each in kinds:
        row = {"name": each.plural, "singularName": each.kind.lower(), "namespaced": each.namespaced, "kind": each.kind}
        rows.append({**row, "verbs": _VERBS, "shortNames": list(each.short)})
        for name, verbs in each.subresources.items():
            rows.append({**row, "name": f"{each.plural}/{name}", "verbs": verbs})
            if name in POD_ACTIONS:
                api_version, kind = POD_ACTIONS[name]
                group, _, version = api_version.rpartition("/")
                rows[-1] |= {"group": group, "version": version, "kind": kind}
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": kinds[0].api_version, "resources": rows}


def _openapi(kinds: list[ApiKind]) -> Document:
    paths = {}
    for each in kinds:
        identity = {"group": each.group, "version": "v1", "kind": each.kind}
        checked = [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}]
        patch = {"parameters": checked, "x-kubernetes-group-version-kind": identity, "responses": {}}
        paths[f"{each.path}/{{name}}"] = {"patch": patch}
    return {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1"}, "paths": paths}
