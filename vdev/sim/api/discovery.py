"""The groups, versions and kinds of the API, which kubectl asks for first.

The OpenAPI document has no schemas. It says only that the server checks patches, so kubectl does not check them.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from .kinds import POD_ACTIONS, ApiKind

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def answer(path: str, kinds: Iterable[ApiKind], version: tuple[int, int]) -> Mapping[str, Any] | None:
    """The document at a path about the server; None for the paths of objects."""
    parts = [part for part in path.split("/") if part]
    found = list(kinds)
    groups = {each.group: each.version for each in found if each.group}
    match parts:
        case ["version"]:
            major, minor = version
            return {
                "major": str(major),
                "minor": str(minor),
                "gitVersion": f"v{major}.{minor}.2",
                "platform": "vdev/sim",
            }
        case ["healthz" | "livez" | "readyz"]:
            return {"status": "ok"}
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            return {
                "kind": "APIGroupList",
                "apiVersion": "v1",
                "groups": [_group(name, version) for name, version in groups.items()],
            }
        case ["apis", group] if group in groups:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, groups[group])}
        case ["api", version_] if version_ == "v1":
            return _resources("", version_, found)
        case ["apis", group, version_] if groups.get(group) == version_:
            return _resources(group, version_, found)
        case ["openapi", "v3"]:
            paths = ["api/v1", *(f"apis/{group}/{version}" for group, version in groups.items())]
            return {"paths": {each: {"serverRelativeURL": f"/openapi/v3/{each}"} for each in paths}}
        case ["openapi", "v3", *rest]:
            return _openapi([each for each in found if rest == _root(each)])
        case _:
            return None


def _group(name: str, version: str) -> dict[str, Any]:
    only = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [only], "preferredVersion": only}


def _resources(group: str, version: str, kinds: Iterable[ApiKind]) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for each in kinds:
        if (each.group, each.version) != (group, version):
            continue
        row = {"name": each.plural, "singularName": each.kind.lower(), "namespaced": each.namespaced, "kind": each.kind}
        rows.append({**row, "verbs": _VERBS, "shortNames": list(each.short)})
        if each.status:
            rows.append({**row, "name": f"{each.plural}/status", "verbs": ["get", "patch", "update"]})
        for action in each.actions:
            api_version, kind = POD_ACTIONS[action]
            row_group, _, row_version = api_version.rpartition("/")
            created = {"group": row_group, "version": row_version, "kind": kind, "verbs": ["create"]}
            rows.append({**row, **created, "name": f"{each.plural}/{action}"})
    full = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": full, "resources": rows}


def _root(kind: ApiKind) -> list[str]:
    return ["apis", kind.group, kind.version] if kind.group else ["api", kind.version]


def _openapi(kinds: Iterable[ApiKind]) -> dict[str, Any]:
    paths = {}
    for each in kinds:
        middle = ["namespaces", "{namespace}"] if each.namespaced else []
        identity = {"group": each.group, "version": each.version, "kind": each.kind}
        checked = [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}]
        patch = {"parameters": checked, "x-kubernetes-group-version-kind": identity, "responses": {}}
        paths["/" + "/".join([*_root(each), *middle, each.plural, "{name}"])] = {"patch": patch}
    return {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1"}, "paths": paths}
