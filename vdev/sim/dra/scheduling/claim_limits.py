"""What the API server refuses of claims and classes, as field and message each. Pure."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_REQUEST = {"name", "exactly", "firstAvailable"}
_ASKED = {"deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity", "name"}
_MOST, _MOST_SUBREQUESTS, _MOST_TOLERATIONS = 32, 8, 16
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
    mode = asked.get("allocationMode", "ExactCount")
    if mode not in ("ExactCount", "All"):
        yield f"{at}.allocationMode", f'Unsupported value: "{mode}": supported values: "All", "ExactCount"'
    count = asked.get("count", 1)
    if type(count) is not int or count < 1 or (mode == "All" and "count" in asked):
        yield f"{at}.count", f"Invalid value: {json.dumps(count)}: must be greater than zero, and only for ExactCount"


def _at_most(most: int, at: str, items: Sequence[Any] | None) -> Iterator[tuple[str, str]]:
    if items is not None and len(items) > most:
        yield at, f"Too many: {len(items)}: must have at most {most} items"


def selectors(at: str, found: Sequence[Mapping[str, Any]] | None) -> Iterator[tuple[str, str]]:
    """Of the selectors of a request or a class."""
    yield from _at_most(_MOST, at, found)
    for index, each in enumerate(found or ()):
        yield from _short(f"{at}[{index}].cel.expression", (each.get("cel") or {}).get("expression") or "")


def configs(at: str, found: Sequence[Mapping[str, Any]] | None) -> Iterator[tuple[str, str]]:
    """Of the configuration of a claim or a class."""
    yield from _at_most(_MOST, at, found)
    for index, each in enumerate(found or ()):
        parameters = json.dumps((each.get("opaque") or {}).get("parameters"), separators=(",", ":"))
        yield from _short(f"{at}[{index}].opaque.parameters", parameters)


def _short(at: str, text: str) -> Iterator[tuple[str, str]]:
    if len(text.encode()) > _LONGEST_TEXT:
        yield at, f"Too long: may not be more than {_LONGEST_TEXT} bytes"


def _dns_label(at: str, name: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(name, str) or not _DNS_LABEL.fullmatch(name):
        yield at, f"Invalid value: {json.dumps(name)}: a lowercase RFC 1123 label must consist of …"
