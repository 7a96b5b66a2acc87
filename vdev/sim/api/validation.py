"""Validation of API objects.

It validates the metadata of all kinds, and all fields of DRA objects with the types of Kubernetes 1.36. The names and
types of fields, and which of them are required, come from the protobuf messages; readers of the store rely on them. A
real API server drops unknown fields with a warning; this one refuses them, so that a typo is noticed. It checks the
limits that drivers exceed in practice and those that the scheduler depends on.
"""

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from google.protobuf.descriptor import FieldDescriptor

from ...model import names
from ...model.quantity import amount_of
from ...pb import api_objects_pb2 as pb
from ..lint import twice
from .kinds import wrong
from .protobuf_bodies import INLINE

_Problems: TypeAlias = Iterator[tuple[str, str]]  # path and message
_Value: TypeAlias = Mapping[str, Any]
_TYPES: Mapping[Any, tuple[Callable[[Any], bool], str]] = {  # of fields whose JSON value is not an object
    FieldDescriptor.CPPTYPE_STRING: (lambda value: isinstance(value, str), "a string"),
    FieldDescriptor.CPPTYPE_BOOL: (lambda value: isinstance(value, bool), "true or false"),
    FieldDescriptor.CPPTYPE_INT32: (lambda value: type(value) is int, "a whole number"),
    FieldDescriptor.CPPTYPE_INT64: (lambda value: type(value) is int, "a whole number"),
    pb.Time.DESCRIPTOR: (lambda value: isinstance(value, str), "a string"),
    pb.MicroTime.DESCRIPTOR: (lambda value: isinstance(value, str), "a string"),
    pb.Quantity.DESCRIPTOR: (
        lambda value: isinstance(value, str | int | float) and amount_of(value) is not None,
        "a quantity, such as 16Gi",
    ),
    pb.RawExtension.DESCRIPTOR: (lambda _: True, "anything"),
    pb.FieldsV1.DESCRIPTOR: (lambda _: True, "anything"),
}


# --- fields of DRA objects --------------------------------------------------------------------------------------------


def wrong_fields(kind: str, document: _Value) -> list[tuple[str, str]]:
    """Validate the fields of an object. Returns path and message of each problem."""
    content = {name: each for name, each in document.items() if name not in ("apiVersion", "kind")}
    return list(_problems(getattr(pb, kind).DESCRIPTOR, content, ""))


# --- metadata ---------------------------------------------------------------------------------------------------------

_NO_SUBDOMAIN = "must be a lowercase RFC 1123 subdomain: lower-case letters, digits, '-' and '.'"
_LONGEST_NAME = 253


def wrong_metadata(metadata: _Value) -> _Problems:
    """Validate name, labels, annotations and owner references of an object of any kind."""
    name = metadata.get("name", "")
    if not names.DNS_NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        yield "metadata.name", wrong(name, _NO_SUBDOMAIN)
    for field, key_problem in (("labels", names.qualified_name_problem), ("annotations", names.annotation_key_problem)):
        for key, value in (metadata.get(field) or {}).items():
            if not isinstance(value, str):
                yield f"metadata.{field}", wrong(value, "must be a string")
            elif problem := key_problem(key) or (names.value_problem(value) if field == "labels" else ""):
                yield f"metadata.{field}", wrong(key, problem)
    for each in metadata.get("ownerReferences") or ():
        for field in ("apiVersion", "kind", "name", "uid"):
            if not each.get(field):
                yield f"metadata.ownerReferences.{field}", wrong(each.get(field, ""), "must not be empty")


# --- limits (source: Kubernetes 1.36, staging/src/k8s.io/api/resource/v1/types.go) ------------------------------------

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_MOST_DEVICES, _MOST_SPECIAL_DEVICES, _MOST_ENTRIES = 128, 64, 32
_REQUIRED: Any = pb.required  # the option of a field
_EXACTLY_ONE: Mapping[str, Sequence[str]] = {
    "ResourceSliceSpec": ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"),
    "DeviceAttribute": ("bool", "int", "string", "version"),
    "DeviceRequest": ("exactly", "firstAvailable"),
    "DeviceConstraint": ("matchAttribute", "distinctAttribute"),
}


def _one_of(*allowed: str) -> Callable[[str], str]:
    return lambda value: "" if value in allowed else wrong(value, f"must be one of {json.dumps(allowed)}")


def _label(text: str) -> str:
    return "" if _DNS_LABEL.fullmatch(text) else wrong(text, "not a DNS label: a-z, 0-9 and '-', at most 63 characters")


def _attribute_names(value: _Value) -> str:
    return next(filter(None, map(names.attribute_problem, value)), "")


def _not_negative(value: int) -> str:
    return "" if value >= 0 else wrong(value, "must be at least 0")


_MODES = _one_of("All", "ExactCount", "")
_VALUES: Mapping[str, Callable[[Any], str]] = {  # each returns a problem, or an empty text
    "ResourceSliceSpec.driver": names.driver_problem,
    "ResourceSliceSpec.nodeName": names.node_name_problem,
    "CounterSet.name": _label,
    "Device.name": _label,
    "Device.attributes": _attribute_names,
    "Device.capacity": _attribute_names,
    "DeviceAttribute.string": names.string_problem,
    "DeviceAttribute.version": names.version_problem,
    "DeviceTaint.key": names.qualified_name_problem,
    "DeviceTaint.value": names.value_problem,
    "DeviceTaint.effect": _one_of("None", "NoSchedule", "NoExecute"),
    "DeviceConstraint.matchAttribute": names.attribute_problem,
    "DeviceConstraint.distinctAttribute": names.attribute_problem,
    "ExactDeviceRequest.allocationMode": _MODES,
    "DeviceSubRequest.allocationMode": _MODES,
    "ExactDeviceRequest.count": _not_negative,
    "DeviceSubRequest.count": _not_negative,
}


def _slice(spec: _Value) -> _Problems:
    devices: Sequence[_Value] = spec.get("devices") or ()
    counter_sets: Sequence[_Value] = spec.get("sharedCounters") or ()
    special = any(device.get("taints") or device.get("consumesCounters") for device in devices)
    if len(devices) > (most := _MOST_SPECIAL_DEVICES if special else _MOST_DEVICES):
        why = " of which some have taints or consume counters" if special else ""
        yield "devices", f"{len(devices)} devices{why}; at most {most} are allowed"
    if devices and counter_sets:
        yield "sharedCounters", "devices and sharedCounters exclude each other since 1.35; they need two slices"
    for field, entries in (("devices", devices), ("sharedCounters", counter_sets)):
        for name in twice(each["name"] for each in entries):
            yield field, f"{name} is there more than once"


def _device(device: _Value) -> _Problems:
    if (number := len(device.get("attributes") or {}) + len(device.get("capacity") or {})) > _MOST_ENTRIES:
        yield "", f"{number} attributes and capacities; at most {_MOST_ENTRIES} are allowed"


def _references(devices: _Value) -> _Problems:
    """Check that constraints and configuration refer to existing requests of the claim."""
    requests = devices.get("requests") or ()
    known = {each["name"] for each in requests}
    known |= {f"{each['name']}/{sub['name']}" for each in requests for sub in each.get("firstAvailable") or ()}
    for field in ("constraints", "config"):
        for index, each in enumerate(devices.get(field) or ()):
            for number, name in enumerate(each.get("requests") or ()):
                if name not in known:
                    why = wrong(name, "must be the name of a request in the claim")
                    yield f"{field}[{index}].requests[{number}]", why


_WHOLE: Mapping[str, Callable[[_Value], _Problems]] = {
    "ResourceSliceSpec": _slice,
    "Device": _device,
    "DeviceClaim": _references,
}


# --- names and types --------------------------------------------------------------------------------------------------


def _problems(message: Any, value: _Value, prefix: str) -> _Problems:
    """Validate a message. Its limits are checked only if its fields have the right types."""
    fields = _fields(message)
    found: list[tuple[str, str]] = []
    for name, each in value.items():
        if name not in fields:
            found.append((f"{prefix}{name}", "unknown field"))
        elif each is not None:
            found += _check_field(fields[name], each, f"{prefix}{name}")
    for name, field in fields.items():
        if value.get(name) in (None, "") and field.GetOptions().Extensions[_REQUIRED]:
            found.append((f"{prefix}{name}", "Required value"))
    forms = _EXACTLY_ONE.get(message.name, ())
    if forms and len([name for name in forms if value.get(name) not in (None, [])]) != 1:
        found.append((prefix[:-1], f"Required value: exactly one of `{'` or `'.join(forms)}` is required"))
    yield from found
    if found:
        return
    for name, each in value.items():
        check = _VALUES.get(f"{message.name}.{name}")
        if check is not None and each is not None and (problem := check(each)):
            yield f"{prefix}{name}", problem
    if message.name in _WHOLE:
        yield from ((f"{prefix}{path}".rstrip("."), text) for path, text in _WHOLE[message.name](value))


@functools.cache
def _fields(message: Any) -> dict[str, FieldDescriptor]:
    found: dict[str, FieldDescriptor] = {}
    for field in message.fields:
        found |= _fields(field.message_type) if field.name == INLINE else {field.name: field}
    return found


def _check_field(field: FieldDescriptor, value: Any, at: str) -> _Problems:
    entry: Any = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        if not isinstance(value, Mapping):
            yield at, wrong(value, "must be an object")
            return
        for key, each in value.items():
            yield from _check_value(entry.fields_by_name["value"], each, f"{at}.{key}")
    elif isinstance(field.default_value, list):  # a repeated field
        if not isinstance(value, list):
            yield at, wrong(value, "must be a list")
            return
        for index, each in enumerate(value):
            yield from _check_value(field, each, f"{at}[{index}]")
    else:
        yield from _check_value(field, value, at)


def _check_value(field: FieldDescriptor, value: Any, at: str) -> _Problems:
    message: Any = field.message_type
    is_right, expected = _TYPES.get(message or field.cpp_type, (lambda each: isinstance(each, Mapping), "an object"))
    if not is_right(value):
        yield at, wrong(value, f"must be {expected}")
    elif message is not None and message not in _TYPES:
        yield from _problems(message, value, f"{at}.")
