"""Reads scenario files. The format is strict, and every error says where it is."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from ...errors import UsageError, reason_of
from ..lint import unknown_code
from ..objects import yaml_text
from .scenario import POD_STEPS, Action, Amount, Capability, Expect, Scenario, Step

_REMEMBERED = "remembered"
_COMPARISONS = {"atLeast": "at least", "lessThan": "less than"}
_LONGEST_STEP = 160  # characters of a step's text that a report shows
_POD_KEYS = {"phase", "reason", "message", "containers", "terminating", "events"}
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
    requires = frozenset(_capability(name) for name in _list(keys.get("requires", []), "requires"))
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
    if name not in _STEPS:
        raise ScenarioFormatError(f"{where}: unknown {name!r}; expected one of {sorted(_STEPS)}")
    step = Step(name, _STEPS[name](value, where))
    if name in POD_STEPS and value not in pods:
        raise ScenarioFormatError(f"{where}: no pod {value!r}; there are {sorted(pods)}")
    return step


def _expect(document: Any, where: str) -> Expect:
    keys = _keys(document, where, optional=_EXPECT_KEYS)
    node = {}
    for resource, numbers in _mapping(keys.get("node", {}), f"{where}.node").items():
        place = f"{where}.node.{resource}"
        both = {"capacity": numbers, "allocatable": numbers} if numbers == _REMEMBERED else numbers
        pair = _keys(both, place, required={"capacity", "allocatable"})
        capacity, allocatable = (_amount(pair[each], f"{place}.{each}") for each in ("capacity", "allocatable"))
        node[resource] = capacity, allocatable
    pods: dict[str, Mapping[str, Any] | None] = {}
    for name, wanted in _mapping(keys.get("pods", {}), f"{where}.pods").items():
        pods[name] = None if wanted is None else _keys(wanted, f"{where}.pods.{name}", optional=_POD_KEYS)
        for container, parts in (pods[name] or {}).get("containers", {}).items():
            _keys(parts, f"{where}.pods.{name}.containers.{container}", optional=_CONTAINER_KEYS)
    unhealthy = {
        resource: dict(_mapping(reasons, f"{where}.unhealthy.{resource}"))
        for resource, reasons in _mapping(keys.get("unhealthy", {}), f"{where}.unhealthy").items()
    }
    return Expect(
        node=node,
        pods=pods,
        registrations=_amounts(keys, "registrations", where),
        unhealthy=unhealthy,
        no_error_findings="findings" in keys,
        slices=_mapping(keys.get("slices", {}), f"{where}.slices"),
        claims=_mapping(keys.get("claims", {}), f"{where}.claims"),
        drivers=_amounts(keys, "drivers", where),
        no_warnings=_codes(keys.get("findings", "none"), f"{where}.findings"),
        stays=_seconds(keys.get("stays", 0), f"{where}.stays"),
    )


def _amounts(keys: Mapping[str, Any], key: str, where: str) -> dict[str, Amount]:
    found = _mapping(keys.get(key, {}), f"{where}.{key}")
    amounts = {name: _amount(value, f"{where}.{key}.{name}") for name, value in found.items()}
    if refers := next((name for name, each in amounts.items() if each.count is None), None):
        raise ScenarioFormatError(f"{where}.{key}.{refers}: only numbers of the node are remembered")
    return amounts


def _amount(document: Any, where: str) -> Amount:
    comparison, number = "", document
    if isinstance(document, Mapping) and len(document) == 1:
        ((key, number),) = document.items()
        comparison = _COMPARISONS.get(key, "")
    count = None if number == _REMEMBERED else number
    is_count = count is None or (isinstance(count, int) and not isinstance(count, bool) and count >= 0)
    if is_count and bool(comparison) == isinstance(document, Mapping):
        return Amount(count, comparison)
    raise ScenarioFormatError(
        f"{where}: expected a number or remembered, or one of them in {{atLeast: …}} or {{lessThan: …}}, "
        f"found {document!r}"
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


def _seconds(document: Any, where: str) -> float:
    if isinstance(document, bool) or not isinstance(document, int | float) or document < 0:
        raise ScenarioFormatError(f"{where}: expected seconds, found {document!r}")
    return float(document)


def _nothing(document: Any, where: str) -> None:
    if document not in (None, {}):
        raise ScenarioFormatError(f"{where}: expected nothing, found {document!r}")


def _deleted(document: Any, where: str) -> Mapping[str, Any]:
    return _keys(document, where, required={"kind", "name"}, optional={"namespace"})


def _capability(name: Any) -> Capability:
    try:
        return Capability(name)
    except ValueError:
        known = [each.value for each in Capability]
        raise ScenarioFormatError(f"requires: unknown {name!r}; expected one of {known}") from None


_STEPS: Mapping[str, Callable[[Any, str], Any]] = {
    "expect": _expect,
    "advanceClock": _seconds,
    "createObject": _object,
    "deleteObject": _deleted,
    **dict.fromkeys(["editConfiguration", "hook", "createDeviceNode", "removeDeviceNode", *POD_STEPS], _text),
    **dict.fromkeys(["remember", *(action.value for action in Action)], _nothing),
}
"""What reads the value of each step."""
