"""The groups, versions and kinds of the API, which kubectl asks for first.

The OpenAPI document has no schemas. It says only that the server checks patches, so kubectl does not check them.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from .kinds import POD_ACTIONS, ApiKind, Document

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def documents(kinds: Iterable[ApiKind], version: tuple[int, int]) -> Mapping[str, Document]:
    """The documents about the server by path."""
    major, minor = map(str, version)
    by_root: dict[str, list[ApiKind]] = {}
    for each in kinds:
        by_root.setdefault(each.root, []).append(each)
    groups = [_group(rows[0]) for rows in by_root.values() if rows[0].group]
    found: dict[str, Document] = {
        "/version": {"major": major, "minor": minor, "gitVersion": f"v{major}.{minor}.2", "platform": "vdev/sim"},
        "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups},
        "/openapi/v3": {"paths": {root[1:]: {"serverRelativeURL": f"/openapi/v3{root}"} for root in by_root}},
    }
    found |= {f"/{name}": {"status": "ok"} for name in ("healthz", "livez", "readyz")}
    found |= {f"/apis/{each['name']}": {"kind": "APIGroup", "apiVersion": "v1", **each} for each in groups}
    for root, rows in by_root.items():
        found[root] = _resources(rows)
        found[f"/openapi/v3{root}"] = _openapi(rows)
    return found


def _group(kind: ApiKind) -> dict[str, Any]:
    only = {"groupVersion": kind.api_version, "version": "v1"}
    return {"name": kind.group, "versions": [only], "preferredVersion": only}


def _resources(kinds: list[ApiKind]) -> Document:
    """The kinds of one group and version."""
    rows: list[dict[str, Any]] = []
    for each in kinds:
        row = {"name": each.plural, "singularName": each.kind.lower(), "namespaced": each.namespaced, "kind": each.kind}
        rows.append({**row, "verbs": _VERBS, "shortNames": list(each.short)})
        if each.status:
            rows.append({**row, "name": f"{each.plural}/status", "verbs": ["get", "patch", "update"]})
        for action in each.actions:
            api_version, kind = POD_ACTIONS[action]
            group, _, version = api_version.rpartition("/")
            created = {"group": group, "version": version, "kind": kind, "verbs": ["create"]}
            rows.append({**row, **created, "name": f"{each.plural}/{action}"})
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": kinds[0].api_version, "resources": rows}


def _openapi(kinds: list[ApiKind]) -> Document:
    paths = {}
    for each in kinds:
        identity = {"group": each.group, "version": "v1", "kind": each.kind}
        checked = [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}]
        patch = {"parameters": checked, "x-kubernetes-group-version-kind": identity, "responses": {}}
        paths[f"{each.path}/{{name}}"] = {"patch": patch}
    return {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1"}, "paths": paths}
