"""What the API server refuses of a claim's status, as field and message each. Pure."""

import ipaddress
import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ...objects import formats, node_selectors
from . import claim_limits

_MOST_CONDITIONS = 8  # of a device
_MOST_RESERVED = 256  # who may use a claim
_STATUSES = ("False", "True", "Unknown")
_SOURCES = ("FromClaim", "FromClass")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")


def status(written: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is wrong with the status of a claim."""
    results = ((written.get("allocation") or {}).get("devices") or {}).get("results") or ()
    yield from _allocation(written.get("allocation") or {}, spec)
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
        yield from _data(at, each)
        types = [condition.get("type") for condition in each.get("conditions") or ()]
        for number, condition in enumerate(each.get("conditions") or ()):
            yield from _condition(f"{at}.conditions[{number}]", condition, types[:number])
            for name in ("type", "status", "reason", "lastTransitionTime"):
                if not condition.get(name):
                    yield f"{at}.conditions[{number}].{name}", "Required value"
            yield from formats.one_of(_STATUSES, f"{at}.conditions[{number}].status", condition.get("status"))


def _allocation(allocation: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    results = (allocation.get("devices") or {}).get("results") or ()
    at = "status.allocation"
    yield from claim_limits.at_most(claim_limits.MOST, f"{at}.devices.results", results)
    requests = {*claim_limits.names((spec.get("devices") or {}).get("requests") or ())}
    for index, each in enumerate(results):
        yield from _result(f"{at}.devices.results[{index}]", each, requests)
    for index, each in enumerate((allocation.get("devices") or {}).get("config") or ()):
        if not (source := each.get("source")):
            yield f"{at}.devices.config[{index}].source", "Required value"
        else:
            yield from formats.one_of(_SOURCES, f"{at}.devices.config[{index}].source", source)
    if (selector := allocation.get("nodeSelector")) is not None:
        yield from node_selectors.causes(f"{at}.nodeSelector", selector)


def _result(at: str, result: Mapping[str, Any], requests: Collection[str]) -> Iterator[tuple[str, str]]:
    """What is wrong with a device that is given to a request."""
    if (request := result.get("request", "")) not in requests:
        why = "must be the name of a request in the claim or the name of a request and a subrequest separated"
        yield f"{at}.request", formats.wrong(request, f"{why} by '/'")
    yield from ((f"{at}.driver", text) for text in formats.driver(result.get("driver")))
    if not (pool := str(result.get("pool") or "")):
        yield f"{at}.pool", "Required value"
    else:
        yield from ((f"{at}.pool", text) for part in pool.split("/") for text in formats.subdomain(part))
    yield from ((f"{at}.device", text) for text in formats.dns_label(result.get("device", "")))
    if (share := result.get("shareID")) is not None and not _UUID.fullmatch(str(share)):
        yield f"{at}.shareID", formats.wrong(share, "error validating uid: invalid UUID")
    wanted, failing = (result.get(name) or [] for name in ("bindingConditions", "bindingFailureConditions"))
    if wanted and not failing:
        why = "bindingFailureConditions are required to use bindingConditions"
        yield f"{at}.bindingFailureConditions", formats.wrong(None, why)


def _data(at: str, device: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Of what a driver tells of a device."""
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


def _condition(at: str, condition: Mapping[str, Any], before: Collection[Any]) -> Iterator[tuple[str, str]]:
    """Of the names that a condition has."""
    if type_ := condition.get("type"):
        yield from ((f"{at}.type", text) for text in formats.qualified_name(str(type_)))
        if type_ in before:
            yield f"{at}.type", f"Duplicate value: {json.dumps(type_)}"
    if (reason := condition.get("reason")) and not _REASON.fullmatch(str(reason)):
        why = "a condition reason must start with alphabetic character, and consist of alphanumeric characters or '_,:'"
        yield f"{at}.reason", formats.wrong(reason, why)


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
