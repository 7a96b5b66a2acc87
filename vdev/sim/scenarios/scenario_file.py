"""Reads scenario files. The format is strict, and every error says where it is."""

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import yaml

from ...errors import UsageError
from .scenario import (
    Action,
    AdvanceClock,
    Capability,
    CreateObject,
    CreatePod,
    DeleteObject,
    DeletePod,
    EditConfiguration,
    Expect,
    ForceDeletePod,
    HostNode,
    RestartContainer,
    Scenario,
    Step,
)

_E = TypeVar("_E", bound=Enum)
_POD_KEYS = {"phase", "reason", "message", "containers", "terminating", "events"}
_CONTAINER_KEYS = {"devices", "deviceCounts", "deviceHealth", "restarts"}
_CONTAINER_KEYS |= {"env", "deviceNodes", "mounts", "annotations", "cdiDevices", "claims"}
_POD_STEPS: Mapping[str, type[CreatePod | DeletePod | ForceDeletePod | RestartContainer]] = {
    "createPod": CreatePod,
    "deletePod": DeletePod,
    "forceDeletePod": ForceDeletePod,
    "restartContainer": RestartContainer,
}


class ScenarioFormatError(UsageError):
    """A scenario file is invalid; the text says where."""


def load(path: Path) -> Scenario:
    """Read a scenario's file. Blocks. Raises ScenarioFormatError."""
    try:
        return parse(yaml.safe_load(path.read_text()))
    except (ScenarioFormatError, yaml.YAMLError) as error:
        raise ScenarioFormatError(f"{path.name}: {error}") from error


def parse(document: Any) -> Scenario:
    """A scenario from its YAML document. Raises ScenarioFormatError."""
    optional = {"pods", "requires", "hardware", "objects"}
    keys = _keys(document, "the file", required={"title", "configuration", "steps"}, optional=optional)
    pods = {name: _manifest(name, pod) for name, pod in _mapping(keys.get("pods", {}), "pods").items()}
    steps = tuple(_step(step, f"steps[{i}]", pods) for i, step in enumerate(_list(keys["steps"], "steps")))
    requires = frozenset(_enum(Capability, name, "requires") for name in _list(keys.get("requires", []), "requires"))
    hardware = {
        str(id_): frozenset(map(str, _list(pieces, f"hardware.{id_}")))
        for id_, pieces in _mapping(keys.get("hardware", {}), "hardware").items()
    }
    title, configuration = _text(keys["title"], "title"), _text(keys["configuration"], "configuration")
    objects = [_object(each, f"objects[{i}]") for i, each in enumerate(_list(keys.get("objects", []), "objects"))]
    return Scenario(title, configuration, steps, pods, requires, hardware, tuple(objects))


def _step(document: Any, where: str, pods: Mapping[str, Any]) -> Step:  # noqa: C901, PLR0911  # one case per kind of step
    if not isinstance(document, Mapping) or len(document) != 1:
        raise ScenarioFormatError(f"{where}: expected one step, such as `createPod: name`, found {document!r}")
    ((name, value),) = document.items()
    where = f"{where}.{name}"
    match name:
        case "expect":
            return _expect(value, where)
        case "editConfiguration":
            return EditConfiguration(_text(value, where))
        case "advanceClock":
            return AdvanceClock(float(value))
        case "createObject":
            return CreateObject(_object(value, where))
        case "deleteObject":
            which = _keys(value, where, required={"kind", "name"}, optional={"namespace"})
            return DeleteObject(which["kind"], which["name"], which.get("namespace", ""))
        case "createPod" | "deletePod" | "forceDeletePod" | "restartContainer":
            if value not in pods:
                raise ScenarioFormatError(f"{where}: no pod {value!r}; there are {sorted(pods)}")
            return _POD_STEPS[name](value)
        case "createDeviceNode" | "removeDeviceNode":
            return HostNode(_text(value, where), make=name == "createDeviceNode")
        case _:
            action = _enum(Action, name, where)
            if value not in (None, {}):
                raise ScenarioFormatError(f"{where}: expected nothing, found {value!r}")
            return action


def _expect(document: Any, where: str) -> Expect:
    dra = {"slices", "claims", "drivers"}
    keys = _keys(document, where, optional={"node", "pods", "registrations", "unhealthy", "findings"} | dra)
    node = {}
    for resource, numbers in _mapping(keys.get("node", {}), f"{where}.node").items():
        pair = _keys(numbers, f"{where}.node.{resource}", required={"capacity", "allocatable"})
        node[resource] = (int(pair["capacity"]), int(pair["allocatable"]))
    pods: dict[str, Mapping[str, Any] | None] = {}
    for name, wanted in _mapping(keys.get("pods", {}), f"{where}.pods").items():
        pods[name] = None if wanted is None else _keys(wanted, f"{where}.pods.{name}", optional=_POD_KEYS)
        for container, parts in (pods[name] or {}).get("containers", {}).items():
            _keys(parts, f"{where}.pods.{name}.containers.{container}", optional=_CONTAINER_KEYS)
    if keys.get("findings", "none") != "none":
        raise ScenarioFormatError(f"{where}.findings: expected none, found {keys['findings']!r}")
    registrations = {r: int(n) for r, n in _mapping(keys.get("registrations", {}), f"{where}.registrations").items()}
    unhealthy = {
        resource: dict(_mapping(reasons, f"{where}.unhealthy.{resource}"))
        for resource, reasons in _mapping(keys.get("unhealthy", {}), f"{where}.unhealthy").items()
    }
    slices, claims = ({**_mapping(keys.get(key, {}), f"{where}.{key}")} for key in ("slices", "claims"))
    drivers = {name: int(n) for name, n in _mapping(keys.get("drivers", {}), f"{where}.drivers").items()}
    return Expect(node, pods, registrations, unhealthy, "findings" in keys, slices, claims, drivers)


def _object(document: Any, where: str) -> Mapping[str, Any]:
    """An object of DRA; its apiVersion is filled in, and where it is needed the namespace `default`."""
    found = _keys(document, where, required={"kind", "metadata"}, optional={"apiVersion", "spec", "status"})
    return {"apiVersion": "resource.k8s.io/v1", **found}


def _manifest(name: str, document: Any) -> Mapping[str, Any]:
    """A Pod manifest; apiVersion, kind and name are filled in."""
    pod = dict(_keys(document, f"pods.{name}", required={"spec"}, optional={"apiVersion", "kind", "metadata"}))
    pod["metadata"] = {**(pod.get("metadata") or {}), "name": name}
    return {"apiVersion": "v1", "kind": "Pod", **pod}


def _keys(
    document: Any, where: str, *, required: set[str] | frozenset[str] = frozenset(), optional: set[str] | None = None
) -> Mapping[str, Any]:
    found = _mapping(document, where)
    allowed = required | (optional or set())
    if unknown := sorted(map(str, found.keys() - allowed)):
        raise ScenarioFormatError(f"{where}: unknown key {unknown[0]!r}; expected one of {sorted(allowed)}")
    if missing := sorted(required - found.keys()):
        raise ScenarioFormatError(f"{where}: {missing[0]!r} is missing")
    return found


def _mapping(document: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(document, Mapping):
        raise ScenarioFormatError(f"{where}: expected a mapping, found {document!r}")
    return document


def _list(document: Any, where: str) -> list[Any]:
    if not isinstance(document, list):
        raise ScenarioFormatError(f"{where}: expected a list, found {document!r}")
    return document


def _text(document: Any, where: str) -> str:
    if not isinstance(document, str):
        raise ScenarioFormatError(f"{where}: expected text, found {document!r}")
    return document


def _enum(kind: type[_E], name: Any, where: str) -> _E:
    try:
        return kind(name)
    except ValueError:
        raise ScenarioFormatError(f"{where}: unknown {name!r}; expected one of {[e.value for e in kind]}") from None
