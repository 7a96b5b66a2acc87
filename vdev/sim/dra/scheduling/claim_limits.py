"""What the API server refuses of claims and classes, as field and message each. Pure."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_REQUEST = {"name", "exactly", "firstAvailable"}
_ASKED = {"deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity", "name"}
_MOST, _MOST_SUBREQUESTS, _MOST_TOLERATIONS = 32, 8, 16
_MOST_CONDITIONS = 8  # of a device
_MOST_RESERVED = 256  # who may use a claim
_STATUSES = ("False", "True", "Unknown")
_ATTRIBUTE = re.compile(r"[a-z0-9][-a-z0-9.]{0,62}/[A-Za-z_][A-Za-z0-9_]{0,31}")
_OPERATORS, _EFFECTS = ("Equal", "Exists"), ("", "NoSchedule", "NoExecute")
_LONGEST_TEXT = 10 * 1024  # bytes of an expression, or of a driver's parameters


def requests(at: str, spec: Any) -> Iterator[tuple[str, str]]:
    """Of a claim's requests: exactly one form each, known fields, names that are labels and different."""
    if not isinstance(spec, Mapping):
        yield at, "Required value"
        return
    devices = spec.get("devices") or {}
    for name in ("requests", "constraints"):
        yield from _at_most(_MOST, f"{at}.devices.{name}", devices.get(name))
    yield from configs(f"{at}.devices.config", devices.get("config"))
    for unknown in sorted(devices.keys() - {"requests", "constraints", "config"}):
        yield f"{at}.devices.{unknown}", "unknown field"
    seen: set[str] = set()
    for index, each in enumerate(devices.get("requests") or ()):
        yield from _request(f"{at}.devices.requests[{index}]", each, seen)
    known = set(_names(devices.get("requests") or ()))
    for index, each in enumerate(devices.get("constraints") or ()):
        yield from _constraint(f"{at}.devices.constraints[{index}]", each, known)
    for index, each in enumerate(devices.get("config") or ()):
        yield from _known(f"{at}.devices.config[{index}].requests", each.get("requests"), known)


def _names(written: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What requests can be called elsewhere in a claim: subrequests by both names."""
    for each in written:
        yield str(each.get("name"))
        yield from (f"{each.get('name')}/{sub.get('name')}" for sub in each.get("firstAvailable") or ())


def _known(at: str, names: Sequence[Any] | None, known: Collection[str]) -> Iterator[tuple[str, str]]:
    for index, each in enumerate(names or ()):
        if each not in known:
            yield f"{at}[{index}]", f"Invalid value: {json.dumps(each)}: must be the name of a request in the claim"
        elif each in (names or ())[:index]:
            yield f"{at}[{index}]", f"Duplicate value: {json.dumps(each)}"


def _constraint(at: str, constraint: Mapping[str, Any], known: Collection[str]) -> Iterator[tuple[str, str]]:
    yield from _known(f"{at}.requests", constraint.get("requests"), known)
    for unknown in sorted(constraint.keys() - {"requests", "matchAttribute", "distinctAttribute"}):
        yield f"{at}.{unknown}", "unknown field"
    forms = [name for name in ("matchAttribute", "distinctAttribute") if constraint.get(name)]
    if len(forms) != 1:
        yield at, "Required value: exactly one of `matchAttribute` or `distinctAttribute` is required"
    for name in forms:
        if not _ATTRIBUTE.fullmatch(str(constraint[name])):
            yield f"{at}.{name}", f"Invalid value: {json.dumps(constraint[name])}: must include the domain: domain/name"


def _request(at: str, request: Mapping[str, Any], seen: set[str]) -> Iterator[tuple[str, str]]:
    yield from _dns_label(f"{at}.name", request.get("name"))
    if request.get("name") in seen:
        yield f"{at}.name", f'Duplicate value: "{request["name"]}"'
    seen.add(str(request.get("name")))
    for unknown in sorted(request.keys() - _REQUEST):
        yield f"{at}.{unknown}", "unknown field"
    forms = [name for name in ("exactly", "firstAvailable") if request.get(name) not in (None, [])]
    if len(forms) != 1:
        yield at, "Required value: exactly one of `exactly` or `firstAvailable` is required"
        return
    if forms == ["exactly"]:
        yield from _asked(f"{at}.exactly", request["exactly"])
        return
    subrequests = request["firstAvailable"]
    yield from _at_most(_MOST_SUBREQUESTS, f"{at}.firstAvailable", subrequests)
    for index, each in enumerate(subrequests):
        yield from _dns_label(f"{at}.firstAvailable[{index}].name", each.get("name"))
        yield from _asked(f"{at}.firstAvailable[{index}]", each)


def _asked(at: str, asked: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for unknown in sorted(asked.keys() - _ASKED):
        yield f"{at}.{unknown}", "unknown field"
    if not asked.get("deviceClassName"):
        yield f"{at}.deviceClassName", "Required value"
    yield from selectors(f"{at}.selectors", asked.get("selectors"))
    yield from _at_most(_MOST_TOLERATIONS, f"{at}.tolerations", asked.get("tolerations"))
    for index, each in enumerate(asked.get("tolerations") or ()):
        yield from _toleration(f"{at}.tolerations[{index}]", each)
    mode = asked.get("allocationMode", "ExactCount")
    if mode not in ("ExactCount", "All"):
        yield f"{at}.allocationMode", f'Unsupported value: "{mode}": supported values: "All", "ExactCount"'
    count = asked.get("count", 1)
    if type(count) is not int or count < 1 or (mode == "All" and "count" in asked):
        yield f"{at}.count", f"Invalid value: {json.dumps(count)}: must be greater than zero, and only for ExactCount"


def _toleration(at: str, toleration: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    operator = toleration.get("operator") or "Equal"
    yield from _one_of(_OPERATORS, f"{at}.operator", operator)
    yield from _one_of(_EFFECTS, f"{at}.effect", toleration.get("effect") or "")
    if operator == "Exists" and toleration.get("value"):
        yield f"{at}.value", "Invalid value: must be empty for operator `Exists`"
    if operator == "Equal" and not toleration.get("key"):
        yield f"{at}.operator", 'Invalid value: "Equal": must be `Exists` when `key` is empty'


def _one_of(allowed: Sequence[str], at: str, value: Any) -> Iterator[tuple[str, str]]:
    if value not in allowed:
        supported = ", ".join(json.dumps(each) for each in allowed if each)
        yield at, f"Unsupported value: {json.dumps(value)}: supported values: {supported}"


def _at_most(most: int, at: str, items: Sequence[Any] | None) -> Iterator[tuple[str, str]]:
    if items is not None and len(items) > most:
        yield at, f"Too many: {len(items)}: must have at most {most} items"


def selectors(at: str, found: Sequence[Mapping[str, Any]] | None) -> Iterator[tuple[str, str]]:
    """Of the selectors of a request or a class."""
    yield from _at_most(_MOST, at, found)
    for index, each in enumerate(found or ()):
        expression = (each.get("cel") or {}).get("expression") or ""
        if not expression:
            yield f"{at}[{index}].cel.expression", "Required value"
        yield from _short(f"{at}[{index}].cel.expression", expression)


def configs(at: str, found: Sequence[Mapping[str, Any]] | None) -> Iterator[tuple[str, str]]:
    """Of the configuration of a claim or a class."""
    yield from _at_most(_MOST, at, found)
    for index, each in enumerate(found or ()):
        opaque = each.get("opaque") or {}
        if not opaque:
            yield f"{at}[{index}].opaque", "Required value"
            continue
        if not opaque.get("driver"):
            yield f"{at}[{index}].opaque.driver", "Required value"
        if not isinstance(opaque.get("parameters"), Mapping):
            yield f"{at}[{index}].opaque.parameters", "Invalid value: must be a valid JSON object"
        parameters = json.dumps(opaque.get("parameters"), separators=(",", ":"))
        yield from _short(f"{at}[{index}].opaque.parameters", parameters)


def _short(at: str, text: str) -> Iterator[tuple[str, str]]:
    if len(text.encode()) > _LONGEST_TEXT:
        yield at, f"Too long: may not be more than {_LONGEST_TEXT} bytes"


def _dns_label(at: str, name: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(name, str) or not _DNS_LABEL.fullmatch(name):
        yield at, f"Invalid value: {json.dumps(name)}: a lowercase RFC 1123 label must consist of …"


def status(written: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is wrong with the status of a claim."""
    results = ((written.get("allocation") or {}).get("devices") or {}).get("results") or ()
    yield from _reserved(written)
    names = ("driver", "pool", "device", "shareID")
    allocated = [tuple(each.get(name) for name in names) for each in results]
    seen: set[tuple[Any, ...]] = set()
    for index, each in enumerate(written.get("devices") or ()):
        at, key = f"status.devices[{index}]", tuple(each.get(name) for name in names)
        if key not in allocated:
            yield at, f'Invalid value: "{"/".join(map(str, key[:3]))}": must be an allocated device in the claim'
        if key in seen:
            yield at, f'Duplicate value: "{"/".join(map(str, key[:3]))}"'
        seen.add(key)
        if len(each.get("conditions") or ()) > _MOST_CONDITIONS:
            yield f"{at}.conditions", f"Too many: must have at most {_MOST_CONDITIONS} items"
        for number, condition in enumerate(each.get("conditions") or ()):
            for name in ("type", "status", "reason", "lastTransitionTime"):
                if not condition.get(name):
                    yield f"{at}.conditions[{number}].{name}", "Required value"
            yield from _one_of(_STATUSES, f"{at}.conditions[{number}].status", condition.get("status"))


def _reserved(written: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    reserved = written.get("reservedFor") or ()
    if reserved and not written.get("allocation"):
        yield "status.reservedFor", "Forbidden: may not be specified when `allocated` is not set"
    if len(reserved) > _MOST_RESERVED:
        yield "status.reservedFor", f"Too many: {len(reserved)}: must have at most {_MOST_RESERVED} items"
    uids = [each.get("uid") for each in reserved]
    for index, each in enumerate(reserved):
        for name in ("resource", "name", "uid"):
            if not each.get(name):
                yield f"status.reservedFor[{index}].{name}", "Required value"
        if each.get("uid") in uids[:index]:
            yield f"status.reservedFor[{index}]", f'Duplicate value: "{each.get("uid")}"'
