"""What the API server refuses of claims and classes, as field and message each. Pure."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ...objects import formats
from . import cel_selectors

ADMIN_ACCESS = "resource.kubernetes.io/admin-access"
MOST, _MOST_SUBREQUESTS, _MOST_TOLERATIONS = 32, 8, 16
_ATTRIBUTE = re.compile(r"[a-z0-9][-a-z0-9.]{0,62}/[A-Za-z_][A-Za-z0-9_]{0,31}")
_OPERATORS, _EFFECTS = ("Equal", "Exists"), ("", "NoSchedule", "NoExecute", "None")
_MODES = ("All", "ExactCount")
_C_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
_LONGEST_TEXT = 10 * 1024  # bytes of an expression, or of a driver's parameters
_TOO_LONG = f"Too long: may not be more than {_LONGEST_TEXT} bytes"


def requests(at: str, spec: Any) -> Iterator[tuple[str, str]]:
    """Of a claim's requests: exactly one form each, names that are labels and different."""
    if not isinstance(spec, Mapping):
        yield at, "Required value"
        return
    devices = spec.get("devices") or {}
    for name in ("requests", "constraints"):
        yield from at_most(MOST, f"{at}.devices.{name}", devices.get(name))
    yield from configs(f"{at}.devices.config", devices.get("config"))
    seen: set[str] = set()
    for index, each in enumerate(devices.get("requests") or ()):
        yield from _request(f"{at}.devices.requests[{index}]", each, seen)
    known = set(names(devices.get("requests") or ()))
    for index, each in enumerate(devices.get("constraints") or ()):
        yield from _constraint(f"{at}.devices.constraints[{index}]", each, known)
    for index, each in enumerate(devices.get("config") or ()):
        yield from _known(f"{at}.devices.config[{index}].requests", each.get("requests"), known)


def with_admin_access(at: str, spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Of requests for admin access, where the namespace does not have the label that allows it."""
    for index, each in enumerate((spec.get("devices") or {}).get("requests") or ()):
        if (each.get("exactly") or {}).get("adminAccess"):
            why = f"admin access to devices requires the `{ADMIN_ACCESS}: true` label on the containing namespace"
            yield f"{at}.devices.requests[{index}].adminAccess", f"Forbidden: {why}"


def names(written: Sequence[Mapping[str, Any]]) -> Iterator[str]:
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
    forms = [name for name in ("matchAttribute", "distinctAttribute") if constraint.get(name)]
    if len(forms) != 1:
        yield at, "Required value: exactly one of `matchAttribute` or `distinctAttribute` is required"
    for name in forms:
        if not _ATTRIBUTE.fullmatch(str(constraint[name])):
            yield f"{at}.{name}", f"Invalid value: {json.dumps(constraint[name])}: must include the domain: domain/name"


def _request(at: str, request: Mapping[str, Any], seen: set[str]) -> Iterator[tuple[str, str]]:
    yield from _named(at, request, seen)
    forms = [name for name in ("exactly", "firstAvailable") if request.get(name) not in (None, [])]
    if len(forms) != 1:
        yield at, "Required value: exactly one of `exactly` or `firstAvailable` is required"
        return
    if forms == ["exactly"]:
        yield from _asked(f"{at}.exactly", request["exactly"])
        return
    subrequests = request["firstAvailable"]
    yield from at_most(_MOST_SUBREQUESTS, f"{at}.firstAvailable", subrequests)
    inside: set[str] = set()
    for index, each in enumerate(subrequests):
        yield from _named(f"{at}.firstAvailable[{index}]", each, inside)
        yield from _asked(f"{at}.firstAvailable[{index}]", each)


def _named(at: str, request: Mapping[str, Any], seen: set[str]) -> Iterator[tuple[str, str]]:
    name = request.get("name", "")
    yield from ((f"{at}.name", text) for text in formats.dns_label(name))
    if name in seen:
        yield at, f"Duplicate value: {json.dumps(name)}"
    seen.add(str(name))


def _asked(at: str, asked: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if not (class_ := asked.get("deviceClassName")):
        yield f"{at}.deviceClassName", "Required value"
    else:
        yield from ((f"{at}.deviceClassName", text) for text in formats.subdomain(class_))
    yield from selectors(f"{at}.selectors", asked.get("selectors"))
    yield from at_most(_MOST_TOLERATIONS, f"{at}.tolerations", asked.get("tolerations"))
    for index, each in enumerate(asked.get("tolerations") or ()):
        yield from _toleration(f"{at}.tolerations[{index}]", each)
    yield from _counted(at, asked.get("allocationMode") or "ExactCount", asked.get("count") or 0)
    yield from _measured(f"{at}.capacity", asked.get("capacity") or {})


def _counted(at: str, mode: Any, count: Any) -> Iterator[tuple[str, str]]:
    """Of the number of devices; one that is left out, or 0, is one where they are counted."""
    yield from formats.one_of(_MODES, f"{at}.allocationMode", mode)
    if mode == "All" and count:
        yield f"{at}.count", formats.wrong(count, "must not be specified when allocationMode is 'All'")
    elif type(count) is not int or count < 0:
        yield f"{at}.count", formats.wrong(count, "must be greater than zero")


def _measured(at: str, capacity: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in capacity.get("requests") or {}:
        domain, slash, bare = name.rpartition("/")
        if not _C_NAME.fullmatch(bare) or (slash and any(formats.subdomain(domain))):
            yield (
                f"{at}.requests",
                formats.wrong(name, "must be a C identifier, after a domain and a slash or by itself"),
            )


def _toleration(at: str, toleration: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    operator = toleration.get("operator") or "Equal"
    yield from formats.one_of(_OPERATORS, f"{at}.operator", operator)
    yield from formats.one_of(_EFFECTS, f"{at}.effect", toleration.get("effect") or "")
    if key := toleration.get("key"):
        yield from ((f"{at}.key", text) for text in formats.qualified_name(str(key)))
    if operator == "Equal":
        yield from ((f"{at}.value", text) for text in formats.label_value(toleration.get("value") or ""))
    if operator == "Exists" and toleration.get("value"):
        yield f"{at}.value", "Invalid value: must be empty for operator `Exists`"
    if operator == "Equal" and not toleration.get("key"):
        yield f"{at}.operator", 'Invalid value: "Equal": must be `Exists` when `key` is empty'


def at_most(most: int, at: str, items: Sequence[Any] | None) -> Iterator[tuple[str, str]]:
    """Of a list that is too long."""
    if items is not None and len(items) > most:
        yield at, f"Too many: {len(items)}: must have at most {most} items"


def selectors(at: str, found: Sequence[Mapping[str, Any]] | None) -> Iterator[tuple[str, str]]:
    """Of the selectors of a request or a class."""
    yield from at_most(MOST, at, found)
    for index, each in enumerate(found or ()):
        expression = (each.get("cel") or {}).get("expression") or ""
        yield from ((f"{at}[{index}].cel.expression", text) for text in _expression(expression))


def _expression(text: str) -> Iterator[str]:
    if not text:
        yield "Required value"
    elif len(text.encode()) > _LONGEST_TEXT:
        yield _TOO_LONG
    elif problem := cel_selectors.refusal(text):
        yield formats.wrong(text, problem)


def configs(at: str, found: Sequence[Mapping[str, Any]] | None) -> Iterator[tuple[str, str]]:
    """Of the configuration of a claim or a class."""
    yield from at_most(MOST, at, found)
    for index, each in enumerate(found or ()):
        opaque = each.get("opaque") or {}
        if not opaque:
            yield f"{at}[{index}].opaque", "Required value"
            continue
        yield from ((f"{at}[{index}].opaque.driver", text) for text in formats.driver(opaque.get("driver")))
        if not isinstance(opaque.get("parameters"), Mapping):
            yield f"{at}[{index}].opaque.parameters", "Invalid value: must be a valid JSON object"
        if len(json.dumps(opaque.get("parameters"), separators=(",", ":")).encode()) > _LONGEST_TEXT:
            yield f"{at}[{index}].opaque.parameters", _TOO_LONG
