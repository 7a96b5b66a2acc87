"""What the API server refuses of claims and classes, and of what drivers write into claims. Pure.

Each is a field and a message. Of what users write only that is checked with which nothing could be allocated; the API
server of a cluster checks more.
"""

import ipaddress
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ..objects import formats
from . import cel_selectors

_MOST_CONDITIONS = 8  # of a device
_MODES = ("All", "ExactCount")
_STATUSES = ("False", "True", "Unknown")


# --- what is asked for ------------------------------------------------------------------------------------------------


def requests(at: str, spec: Any) -> Iterator[tuple[str, str]]:
    """Of a claim's requests, and of what refers to them."""
    if not isinstance(spec, Mapping):
        yield at, "Required value"
        return
    devices = spec.get("devices") or {}
    written = devices.get("requests") or ()
    for index, each in enumerate(written):
        yield from _request(f"{at}.devices.requests[{index}]", each)
    known = set(_names(written))
    for index, each in enumerate(devices.get("constraints") or ()):
        where = f"{at}.devices.constraints[{index}]"
        yield from _known(f"{where}.requests", each.get("requests"), known)
        attributes = {form: each[form] for form in ("matchAttribute", "distinctAttribute") if each.get(form)}
        if len(attributes) != 1:
            yield where, "Required value: exactly one of `matchAttribute` or `distinctAttribute` is required"
        for form, name in attributes.items():
            if "/" not in name:
                yield f"{where}.{form}", formats.wrong(name, "must include the domain: domain/name")
    yield from configs(f"{at}.devices.config", devices.get("config"))
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
            yield f"{at}[{index}]", formats.wrong(each, "must be the name of a request in the claim")


def _request(at: str, request: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from ((f"{at}.name", text) for text in formats.dns_label(request.get("name", "")))
    forms = [name for name in ("exactly", "firstAvailable") if request.get(name) not in (None, [])]
    if len(forms) != 1:
        yield at, "Required value: exactly one of `exactly` or `firstAvailable` is required"
    elif forms == ["exactly"]:
        yield from _asked(f"{at}.exactly", request["exactly"])
    else:
        for index, each in enumerate(request["firstAvailable"]):
            yield from (
                (f"{at}.firstAvailable[{index}].name", text) for text in formats.dns_label(each.get("name", ""))
            )
            yield from _asked(f"{at}.firstAvailable[{index}]", each)


def _asked(at: str, asked: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if not asked.get("deviceClassName"):
        yield f"{at}.deviceClassName", "Required value"
    yield from selectors(f"{at}.selectors", asked.get("selectors"))
    mode, count = asked.get("allocationMode") or "ExactCount", asked.get("count") or 0
    yield from formats.one_of(_MODES, f"{at}.allocationMode", mode)
    if mode == "All" and count:
        yield f"{at}.count", formats.wrong(count, "must not be specified when allocationMode is 'All'")
    elif type(count) is not int or count < 0:
        yield f"{at}.count", formats.wrong(count, "must be greater than zero")


def selectors(at: str, found: Sequence[Mapping[str, Any]] | None) -> Iterator[tuple[str, str]]:
    """Of the selectors of a request or a class."""
    for index, each in enumerate(found or ()):
        where, expression = f"{at}[{index}].cel.expression", (each.get("cel") or {}).get("expression") or ""
        if not expression:
            yield where, "Required value"
        elif problem := cel_selectors.refusal(expression):
            yield where, formats.wrong(expression, problem)


def configs(at: str, found: Sequence[Mapping[str, Any]] | None) -> Iterator[tuple[str, str]]:
    """Of the configuration of a claim or a class, which is for a driver."""
    for index, each in enumerate(found or ()):
        opaque = each.get("opaque") or {}
        if not opaque:
            yield f"{at}[{index}].opaque", "Required value"
            continue
        yield from ((f"{at}[{index}].opaque.driver", text) for text in formats.driver(opaque.get("driver")))
        if not isinstance(opaque.get("parameters"), Mapping):
            yield f"{at}[{index}].opaque.parameters", "Invalid value: must be a valid JSON object"


# --- what drivers tell of devices -------------------------------------------------------------------------------------


def status(written: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Of the devices in the status of a claim."""
    results = ((written.get("allocation") or {}).get("devices") or {}).get("results") or ()
    names = ("driver", "pool", "device", "shareID")
    allocated = [tuple(each.get(name) for name in names) for each in results]
    seen: set[tuple[Any, ...]] = set()
    for index, each in enumerate(written.get("devices") or ()):
        at, key = f"status.devices[{index}]", tuple(each.get(name) for name in names)
        device = "/".join(map(str, key[:3]))
        if key not in allocated:
            yield at, formats.wrong(device, "must be an allocated device in the claim")
        if key in seen:
            yield at, f"Duplicate value: {json.dumps(device)}"
        seen.add(key)
        yield from _data(at, each)
        yield from _conditions(f"{at}.conditions", each.get("conditions") or ())


def _data(at: str, device: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if not isinstance(device.get("data", {}), Mapping):
        yield f"{at}.data", 'Invalid value: "<value omitted>": must be a valid JSON object'
    for index, each in enumerate((device.get("networkData") or {}).get("ips") or ()):
        try:
            ipaddress.ip_interface(each)
        except ValueError:
            wrong = True
        else:
            wrong = "/" not in each
        if wrong:
            why = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
            yield f"{at}.networkData.ips[{index}]", formats.wrong(each, why)


def _conditions(at: str, conditions: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    if len(conditions) > _MOST_CONDITIONS:
        yield at, f"Too many: must have at most {_MOST_CONDITIONS} items"
    types: set[str] = set()
    for number, each in enumerate(conditions):
        for name in ("type", "status", "reason", "lastTransitionTime"):
            if not each.get(name):
                yield f"{at}[{number}].{name}", "Required value"
        if type_ := each.get("type"):
            yield from ((f"{at}[{number}].type", text) for text in formats.qualified_name(str(type_)))
        if type_ in types:
            yield f"{at}[{number}].type", f"Duplicate value: {json.dumps(type_)}"
        types.add(str(type_))
        yield from formats.one_of(_STATUSES, f"{at}[{number}].status", each.get("status"))
