"""The fields of DRA's objects in Kubernetes 1.36: names and types, as its protobuf messages define them, and limits.

Everything behind the store may rely on the names and types. A real API server drops unknown fields with a warning; here
they are refused, so that a typo is not overlooked. Of what users write, only mistakes that the scheduler cannot work
with are refused; a cluster's API server checks more. The limits of slices are in `slice_lint`.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from ...pb import api_objects_pb2 as pb
from ..objects.amounts import exact
from .kinds import wrong
from .protobuf_bodies import INLINE

_Problems: TypeAlias = Iterator[tuple[str, str]]  # path and message
_MESSAGES: Mapping[str, type[Message]] = {
    "DeviceClass": pb.DeviceClass,
    "ResourceClaim": pb.ResourceClaim,
    "ResourceClaimTemplate": pb.ResourceClaimTemplate,
    "ResourceSlice": pb.ResourceSlice,
}
_TIMES = [each.DESCRIPTOR for each in (pb.Time, pb.MicroTime)]
_ANY_JSON = [each.DESCRIPTOR for each in (pb.RawExtension, pb.FieldsV1)]
_SCALARS: Mapping[int, tuple[type, str]] = {
    FieldDescriptor.CPPTYPE_STRING: (str, "a string"),
    FieldDescriptor.CPPTYPE_BOOL: (bool, "true or false"),
    FieldDescriptor.CPPTYPE_INT32: (int, "a whole number"),
    FieldDescriptor.CPPTYPE_INT64: (int, "a whole number"),
}


def wrong_fields(kind: str, document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Everything that is wrong with an object: path and message of each problem."""
    content = {name: each for name, each in document.items() if name not in ("apiVersion", "kind")}
    return list(_check_message(_MESSAGES[kind].DESCRIPTOR, content, ""))


# --- limits -----------------------------------------------------------------------------------------------------------


def _references(devices: Mapping[str, Any]) -> _Problems:
    """Constraints and configuration name requests of the claim."""
    requests = devices.get("requests") or ()
    known = {each["name"] for each in requests}
    known |= {f"{each['name']}/{sub['name']}" for each in requests for sub in each.get("firstAvailable") or ()}
    for field in ("constraints", "config"):
        for index, each in enumerate(devices.get(field) or ()):
            for number, name in enumerate(each.get("requests") or ()):
                if name not in known:
                    why = wrong(name, "must be the name of a request in the claim")
                    yield f"{field}[{index}].requests[{number}]", why


def _count(request: Mapping[str, Any]) -> _Problems:
    count, mode = request.get("count") or 0, request.get("allocationMode") or "ExactCount"
    if mode not in ("All", "ExactCount"):
        yield "allocationMode", wrong(mode, "must be All or ExactCount")
    elif mode == "All" and count:
        yield "count", wrong(count, "must not be specified when allocationMode is 'All'")
    elif count < 0:
        yield "count", wrong(count, "must be greater than zero")


def _device_statuses(status: Mapping[str, Any]) -> _Problems:
    """Drivers report only on allocated devices, and once on each."""
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    names = ("driver", "pool", "device", "shareID")
    allocated = [tuple(each.get(name) for name in names) for each in results]
    keys = [tuple(each.get(name) for name in names) for each in status.get("devices") or ()]
    for index, key in enumerate(keys):
        device = "/".join(map(str, key[:3]))
        if key not in allocated:
            yield f"devices[{index}]", wrong(device, "must be an allocated device in the claim")
        if key in keys[:index]:
            yield f"devices[{index}]", f"Duplicate value: {json.dumps(device)}"


_REQUIRED: Mapping[str, Sequence[str]] = {  # by the name of a message
    "ResourceSlice": ("spec",),
    "ResourceSliceSpec": ("pool",),
    "Device": ("name",),
    "DeviceTaint": ("key", "effect"),
    "DeviceCapacity": ("value",),
    "CounterSet": ("name",),
    "DeviceCounterConsumption": ("counterSet",),
    "Counter": ("value",),
    "NodeSelectorRequirement": ("key", "operator"),
    "DeviceSelector": ("cel",),
    "CELDeviceSelector": ("expression",),
    "ResourceClaim": ("spec",),
    "ResourceClaimTemplate": ("spec",),
    "ResourceClaimTemplateSpec": ("spec",),
    "DeviceRequest": ("name",),
    "ExactDeviceRequest": ("deviceClassName",),
    "DeviceSubRequest": ("name", "deviceClassName"),
    "AllocationResult": ("devices",),
    "DeviceRequestAllocationResult": ("request", "driver", "pool", "device"),
    "ResourceClaimConsumerReference": ("uid",),
    "Condition": ("type", "status", "reason", "lastTransitionTime"),
}
_EXACTLY_ONE: Mapping[str, Sequence[str]] = {
    "DeviceRequest": ("exactly", "firstAvailable"),
    "DeviceConstraint": ("matchAttribute", "distinctAttribute"),
}
_WHOLE: Mapping[str, Callable[[Mapping[str, Any]], _Problems]] = {  # of messages whose fields are sound
    "DeviceClaim": _references,
    "ExactDeviceRequest": _count,
    "DeviceSubRequest": _count,
    "ResourceClaimStatus": _device_statuses,
}


# --- the fields of an object ------------------------------------------------------------------------------------------


def _check_message(message: Any, value: Any, at: str) -> _Problems:
    if message in _ANY_JSON:
        return
    if message in _TIMES:
        if not isinstance(value, str):
            yield at, wrong(value, "must be a string")
    elif message is pb.Quantity.DESCRIPTOR:
        if exact(value) is None:
            yield at, wrong(value, "must be a quantity, such as 16Gi")
    elif not isinstance(value, Mapping):
        yield at, wrong(value, "must be an object")
    else:
        prefix = f"{at}." if at else ""
        found = list(_check_fields(message, value, prefix))
        if not found and message.name in _WHOLE:
            found = [(f"{prefix}{path}", text) for path, text in _WHOLE[message.name](value)]
        yield from found


def _check_fields(message: Any, value: Mapping[str, Any], prefix: str) -> _Problems:
    fields = {field.name: field for field in _fields(message)}
    for name, each in value.items():
        if name not in fields:
            yield f"{prefix}{name}", "unknown field"
        elif each is not None:
            yield from _check_field(fields[name], each, f"{prefix}{name}")
    for name in _REQUIRED.get(message.name, ()):
        if value.get(name) in (None, ""):
            yield f"{prefix}{name}", "Required value"
    forms = _EXACTLY_ONE.get(message.name, ())
    if forms and len([name for name in forms if value.get(name) not in (None, "", [])]) != 1:
        yield prefix[:-1], f"Required value: exactly one of `{'` or `'.join(forms)}` is required"


def _check_field(field: FieldDescriptor, value: Any, at: str) -> _Problems:
    message: Any = field.message_type
    if message is not None and message.GetOptions().map_entry:
        if not isinstance(value, Mapping):
            yield at, wrong(value, "must be an object")
            return
        for key, each in value.items():
            yield from _check_item(message.fields_by_name["value"], each, f"{at}.{key}")
    elif isinstance(field.default_value, list):  # a repeated field
        if not isinstance(value, list):
            yield at, wrong(value, "must be a list")
            return
        for index, each in enumerate(value):
            yield from _check_item(field, each, f"{at}[{index}]")
    else:
        yield from _check_item(field, value, at)


def _check_item(field: FieldDescriptor, value: Any, at: str) -> _Problems:
    if field.message_type is not None:
        yield from _check_message(field.message_type, value, at)
    else:
        type_, expected = _SCALARS[field.cpp_type]
        if type(value) is not type_:
            yield at, wrong(value, f"must be {expected}")


def _fields(message: Any) -> Iterator[FieldDescriptor]:
    for field in message.fields:
        yield from field.message_type.fields if field.name == INLINE else [field]
