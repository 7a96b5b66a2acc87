"""What the API server refuses of claims and classes, and of what drivers write into the status of claims. Pure.

Each problem is a field and a message. Of what users write, only mistakes that the scheduler cannot work with are
refused; a cluster's API server checks more. The store has checked the names and types of all fields before.
"""

import ipaddress
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from ..objects import formats

_Problems: TypeAlias = Iterator[tuple[str, str]]
_MOST_CONDITIONS = 8  # of a device
_MODES = ("All", "ExactCount")
_STATUSES = ("False", "True", "Unknown")


def check_claim(at: str, spec: Any) -> _Problems:
    """Check the requests and constraints of a claim's spec at the path `at`."""
    if not isinstance(spec, Mapping):
        yield at, "Required value"
        return
    devices = spec.get("devices") or {}
    requests = devices.get("requests") or ()
    for index, each in enumerate(requests):
        yield from _request(f"{at}.devices.requests[{index}]", each)
    known = set(_names(requests))
    for index, each in enumerate(devices.get("constraints") or ()):
        where = f"{at}.devices.constraints[{index}]"
        yield from _references(f"{where}.requests", each.get("requests"), known)
        attributes = {form: each[form] for form in ("matchAttribute", "distinctAttribute") if each.get(form)}
        if len(attributes) != 1:
            yield where, "Required value: exactly one of `matchAttribute` or `distinctAttribute` is required"
        for form, name in attributes.items():
            if "/" not in name:
                yield f"{where}.{form}", formats.wrong(name, "must include the domain: domain/name")
    for index, each in enumerate(devices.get("config") or ()):
        yield from _references(f"{at}.devices.config[{index}].requests", each.get("requests"), known)


def _names(requests: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The names by which a claim refers to its requests and their alternatives."""
    for each in requests:
        yield str(each.get("name"))
        yield from (f"{each.get('name')}/{sub.get('name')}" for sub in each.get("firstAvailable") or ())


def _references(at: str, names: Sequence[Any] | None, known: Collection[str]) -> _Problems:
    for index, each in enumerate(names or ()):
        if each not in known:
            yield f"{at}[{index}]", formats.wrong(each, "must be the name of a request in the claim")


def _request(at: str, request: Mapping[str, Any]) -> _Problems:
    yield from ((f"{at}.name", text) for text in formats.dns_label(request.get("name", "")))
    forms = [name for name in ("exactly", "firstAvailable") if request.get(name) not in (None, [])]
    if len(forms) != 1:
        yield at, "Required value: exactly one of `exactly` or `firstAvailable` is required"
    elif forms == ["exactly"]:
        yield from _devices(f"{at}.exactly", request["exactly"])
    else:
        for index, each in enumerate(request["firstAvailable"]):
            where = f"{at}.firstAvailable[{index}]"
            yield from ((f"{where}.name", text) for text in formats.dns_label(each.get("name", "")))
            yield from _devices(where, each)


def _devices(at: str, asked: Mapping[str, Any]) -> _Problems:
    """Check which devices, and how many, a request asks for."""
    if not asked.get("deviceClassName"):
        yield f"{at}.deviceClassName", "Required value"
    yield from check_selectors(f"{at}.selectors", asked.get("selectors"))
    mode, count = asked.get("allocationMode") or "ExactCount", asked.get("count") or 0
    yield from formats.one_of(_MODES, f"{at}.allocationMode", mode)
    if mode == "All" and count:
        yield f"{at}.count", formats.wrong(count, "must not be specified when allocationMode is 'All'")
    elif count < 0:
        yield f"{at}.count", formats.wrong(count, "must be greater than zero")


def check_selectors(at: str, selectors: Sequence[Mapping[str, Any]] | None) -> _Problems:
    """Check that the selectors of a request or a class have expressions. The scheduler compiles them."""
    for index, each in enumerate(selectors or ()):
        if not (each.get("cel") or {}).get("expression"):
            yield f"{at}[{index}].cel.expression", "Required value"


# --- the status of devices, which drivers write -----------------------------------------------------------------------


def check_status(status: Mapping[str, Any]) -> _Problems:
    """Check the devices in the status of a claim."""
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    names = ("driver", "pool", "device", "shareID")
    allocated = [tuple(each.get(name) for name in names) for each in results]
    seen: set[tuple[Any, ...]] = set()
    for index, each in enumerate(status.get("devices") or ()):
        at, key = f"status.devices[{index}]", tuple(each.get(name) for name in names)
        device = "/".join(map(str, key[:3]))
        if key not in allocated:
            yield at, formats.wrong(device, "must be an allocated device in the claim")
        if key in seen:
            yield at, f"Duplicate value: {json.dumps(device)}"
        seen.add(key)
        if not isinstance(each.get("data", {}), Mapping):
            yield f"{at}.data", 'Invalid value: "<value omitted>": must be a valid JSON object'
        for number, address in enumerate((each.get("networkData") or {}).get("ips") or ()):
            if not _is_cidr(address):
                why = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
                yield f"{at}.networkData.ips[{number}]", formats.wrong(address, why)
        yield from _conditions(f"{at}.conditions", each.get("conditions") or ())


def _is_cidr(address: str) -> bool:
    try:
        ipaddress.ip_interface(address)
    except ValueError:
        return False
    return "/" in address


def _conditions(at: str, conditions: Sequence[Mapping[str, Any]]) -> _Problems:
    if len(conditions) > _MOST_CONDITIONS:
        yield at, f"Too many: must have at most {_MOST_CONDITIONS} items"
    types: set[str] = set()
    for number, each in enumerate(conditions):
        for name in ("type", "status", "reason", "lastTransitionTime"):
            if not each.get(name):
                yield f"{at}[{number}].{name}", "Required value"
        if type_ := each.get("type"):
            yield from ((f"{at}[{number}].type", text) for text in formats.qualified_name(type_))
        if type_ in types:
            yield f"{at}[{number}].type", f"Duplicate value: {json.dumps(type_)}"
        types.add(str(type_))
        yield from formats.one_of(_STATUSES, f"{at}[{number}].status", each.get("status"))
