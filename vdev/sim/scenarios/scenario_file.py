"""Reads scenario files. The format is strict, and every error says where it is."""

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import yaml

from ...errors import UsageError, reason_of
from ..lint import unknown_code
from ..objects import yaml_text
from .scenario import (
    Action,
    AdvanceClock,
    Amount,
    Capability,
    CreateObject,
    DeleteObject,
    EditConfiguration,
    Expect,
    Hook,
    HostNode,
    Meaning,
    PodAction,
    PodStep,
    Remember,
    Scenario,
    Step,
)

_E = TypeVar("_E", bound=Enum)
_REMEMBERED = "remembered"
_LONGEST_STEP = 160  # characters of a step's text that a report shows
_POD_KEYS = {"phase", "reason", "message", "containers", "terminating", "events"}
_POD_STEPS = {action.value for action in PodAction}
_BARE_STEPS = {"remember", *(action.value for action in Action)}
_STEPS = {"expect", "editConfiguration", "advanceClock", "createObject", "deleteObject", "hook"}
_STEPS |= {"createDeviceNode", "removeDeviceNode", *_POD_STEPS, *_BARE_STEPS}
_EXPECT_KEYS = {"node", "pods", "registrations", "unhealthy", "findings", "slices", "claims", "drivers", "stays"}
_CONTAINER_KEYS = {"devices", "deviceCounts", "deviceHealth", "restarts"}
_CONTAINER_KEYS |= {"env", "deviceNodes", "mounts", "annotations", "cdiDevices", "claims"}


class ScenarioFormatError(UsageError):
    """A scenario file is invalid; the text says where."""


def load(path: Path) -> Scenario:
    """Read a scenario's file. Blocks. Raises ScenarioFormatError."""
    try:
        text = path.read_text()
        return replace(parse(yaml_text.document(text)), lines=_lines(text))
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioFormatError(f"{path}: cannot read the scenario: {reason_of(error)}") from error
    except yaml.constructor.ConstructorError as error:
        hint = '; write a placeholder in quotes: "{resource}"' if "unhashable" in str(error.problem) else ""
        raise ScenarioFormatError(f"{path.name}: {error}{hint}") from error
    except (ScenarioFormatError, yaml.YAMLError) as error:
        raise ScenarioFormatError(f"{path.name}: {error}") from error


def _lines(text: str) -> tuple[tuple[int, str], ...]:
    """Where each step begins, and what it says, on one line."""
    tree = yaml.compose(text, yaml.SafeLoader)
    assert tree is not None  # it was parsed
    (steps,) = (value for key, value in tree.value if key.value == "steps")
    return tuple(
        (node.start_mark.line + 1, _one_line(text[node.start_mark.index : node.end_mark.index])) for node in steps.value
    )


def _one_line(source: str) -> str:
    text = " ".join(" ".join(row for row in source.splitlines() if not row.lstrip().startswith("#")).split())
    return text if len(text) <= _LONGEST_STEP else f"{text[: _LONGEST_STEP - 1]}…"


def parse(document: Any) -> Scenario:
    """A scenario from its YAML document. Raises ScenarioFormatError."""
    optional = {"configuration", "pods", "requires", "hardware", "objects"}
    keys = _keys(document, "the file", required={"title", "steps"}, optional=optional)
    pods = {name: _manifest(name, pod) for name, pod in _mapping(keys.get("pods", {}), "pods").items()}
    steps = tuple(_step(step, f"steps[{i}]", pods) for i, step in enumerate(_list(keys["steps"], "steps")))
    requires = frozenset(_enum(Capability, name, "requires") for name in _list(keys.get("requires", []), "requires"))
    hardware = {
        str(id_): frozenset(map(str, _list(pieces, f"hardware.{id_}")))
        for id_, pieces in _mapping(keys.get("hardware", {}), "hardware").items()
    }
    title, configuration = _text(keys["title"], "title"), _text(keys.get("configuration", ""), "configuration")
    objects = [_object(each, f"objects[{i}]") for i, each in enumerate(_list(keys.get("objects", []), "objects"))]
    return Scenario(title, configuration, steps, pods, requires, hardware, tuple(objects))


def _step(document: Any, where: str, pods: Mapping[str, Any]) -> Step:
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
        case str() if name in _POD_STEPS:
            if value not in pods:
                raise ScenarioFormatError(f"{where}: no pod {value!r}; there are {sorted(pods)}")
            return PodStep(PodAction(name), value)
        case "hook":
            return Hook(_text(value, where))
        case "createDeviceNode" | "removeDeviceNode":
            return HostNode(_text(value, where), make=name == "createDeviceNode")
        case _:
            if name not in _BARE_STEPS:
                raise ScenarioFormatError(f"{where}: unknown {name!r}; expected one of {sorted(_STEPS)}")
            if value not in (None, {}):
                raise ScenarioFormatError(f"{where}: expected nothing, found {value!r}")
            return Remember() if name == "remember" else Action(name)


def _expect(document: Any, where: str) -> Expect:
    keys = _keys(document, where, optional=_EXPECT_KEYS)
    node = {}
    for resource, numbers in _mapping(keys.get("node", {}), f"{where}.node").items():
        place = f"{where}.node.{resource}"
        if numbers == _REMEMBERED:
            node[resource] = (_amount(numbers, place), _amount(numbers, place))
            continue
        pair = _keys(numbers, place, required={"capacity", "allocatable"})
        node[resource] = (
            _amount(pair["capacity"], f"{place}.capacity"),
            _amount(pair["allocatable"], f"{place}.allocatable"),
        )
    pods: dict[str, Mapping[str, Any] | None] = {}
    for name, wanted in _mapping(keys.get("pods", {}), f"{where}.pods").items():
        pods[name] = None if wanted is None else _keys(wanted, f"{where}.pods.{name}", optional=_POD_KEYS)
        for container, parts in (pods[name] or {}).get("containers", {}).items():
            _keys(parts, f"{where}.pods.{name}.containers.{container}", optional=_CONTAINER_KEYS)
    unhealthy = {
        resource: dict(_mapping(reasons, f"{where}.unhealthy.{resource}"))
        for resource, reasons in _mapping(keys.get("unhealthy", {}), f"{where}.unhealthy").items()
    }
    slices, claims = ({**_mapping(keys.get(key, {}), f"{where}.{key}")} for key in ("slices", "claims"))
    stays = keys.get("stays", 0)
    if isinstance(stays, bool) or not isinstance(stays, int | float) or stays < 0:
        raise ScenarioFormatError(f"{where}.stays: expected seconds, found {stays!r}")
    return Expect(
        node,
        pods,
        _amounts(keys, "registrations", where),
        unhealthy,
        "findings" in keys,
        slices,
        claims,
        _amounts(keys, "drivers", where),
        _codes(keys.get("findings", "none"), f"{where}.findings"),
        float(stays),
    )


def _amounts(keys: Mapping[str, Any], key: str, where: str) -> dict[str, Amount]:
    found = _mapping(keys.get(key, {}), f"{where}.{key}")
    amounts = {name: _amount(value, f"{where}.{key}.{name}") for name, value in found.items()}
    if refers := next((name for name, each in amounts.items() if each.refers), None):
        raise ScenarioFormatError(f"{where}.{key}.{refers}: only numbers of the node are remembered")
    return amounts


def _amount(document: Any, where: str) -> Amount:
    if isinstance(document, int) and not isinstance(document, bool) and document >= 0:
        return Amount(document)
    if document == _REMEMBERED:
        return Amount(meaning=Meaning.REMEMBERED)
    if document == {Meaning.LESS.value: _REMEMBERED}:
        return Amount(meaning=Meaning.LESS)
    if isinstance(document, Mapping) and document.keys() == {Meaning.AT_LEAST.value}:
        least = _amount(document[Meaning.AT_LEAST.value], where)
        if least.meaning is Meaning.REMEMBERED:
            return Amount(meaning=Meaning.NOT_LESS)
        if least.meaning is Meaning.EXACTLY:
            return Amount(least.count, Meaning.AT_LEAST)
    raise ScenarioFormatError(
        f"{where}: expected a number, remembered, {{lessThan: remembered}} or {{atLeast: …}} of a number or "
        f"remembered, found {document!r}"
    )


def _codes(document: Any, where: str) -> frozenset[str]:
    """The warnings that an expectation forbids beside the errors."""
    if document == "none":
        return frozenset()
    if isinstance(document, list):
        codes = [_text(each, where) for each in document]
        if wrong := next(filter(None, map(unknown_code, codes)), ""):
            raise ScenarioFormatError(f"{where}: {wrong}")
        return frozenset(codes)
    raise ScenarioFormatError(
        f"{where}: expected none, or a list of codes of warnings that must not be there either, found {document!r}"
    )


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
