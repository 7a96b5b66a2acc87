"""The names and types of the fields of DRA's objects in Kubernetes 1.36, as its protobuf messages define them.

Everything behind the store may rely on them. A real API server drops unknown fields with a warning; here they are
refused, so that a typo is not overlooked.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from ...pb import api_objects_pb2 as pb
from ..objects import formats
from ..objects.amounts import exact
from .protobuf_bodies import INLINE

_MESSAGES: Mapping[str, type[Message]] = {
    "DeviceClass": pb.DeviceClass,
    "ResourceClaim": pb.ResourceClaim,
    "ResourceClaimTemplate": pb.ResourceClaimTemplate,
    "ResourceSlice": pb.ResourceSlice,
}
_TIMES = [each.DESCRIPTOR for each in (pb.Time, pb.MicroTime)]
_ANY_JSON = [each.DESCRIPTOR for each in (pb.RawExtension, pb.FieldsV1)]
_REQUIRED: Mapping[Any, Sequence[str]] = {
    pb.ResourceSlice.DESCRIPTOR: ("spec",),
    pb.ResourceSliceSpec.DESCRIPTOR: ("pool",),
    pb.Device.DESCRIPTOR: ("name",),
    pb.DeviceTaint.DESCRIPTOR: ("key", "effect"),
    pb.DeviceCapacity.DESCRIPTOR: ("value",),
    pb.CounterSet.DESCRIPTOR: ("name",),
    pb.DeviceCounterConsumption.DESCRIPTOR: ("counterSet",),
    pb.Counter.DESCRIPTOR: ("value",),
    pb.NodeSelectorRequirement.DESCRIPTOR: ("key", "operator"),
    pb.AllocationResult.DESCRIPTOR: ("devices",),
    pb.DeviceRequestAllocationResult.DESCRIPTOR: ("request", "driver", "pool", "device"),
    pb.ResourceClaimConsumerReference.DESCRIPTOR: ("uid",),
}
_SCALARS: Mapping[int, tuple[type, str]] = {
    FieldDescriptor.CPPTYPE_STRING: (str, "a string"),
    FieldDescriptor.CPPTYPE_BOOL: (bool, "true or false"),
    FieldDescriptor.CPPTYPE_INT32: (int, "a whole number"),
    FieldDescriptor.CPPTYPE_INT64: (int, "a whole number"),
}


def wrong_fields(kind: str, document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Unknown and missing fields, and values of another type: path and message of each."""
    content = {name: each for name, each in document.items() if name not in ("apiVersion", "kind")}
    return list(_check_message(_MESSAGES[kind].DESCRIPTOR, content, ""))


def _check_message(message: Any, value: Any, at: str) -> Iterator[tuple[str, str]]:
    if message in _ANY_JSON:
        return
    if message in _TIMES:
        if not isinstance(value, str):
            yield at, formats.wrong(value, "must be a string")
    elif message is pb.Quantity.DESCRIPTOR:
        if exact(value) is None:
            yield at, formats.wrong(value, "must be a quantity, such as 16Gi")
    elif not isinstance(value, Mapping):
        yield at, formats.wrong(value, "must be an object")
    else:
        fields = {field.name: field for field in _fields(message)}
        prefix = f"{at}." if at else ""
        for name, each in value.items():
            if name not in fields:
                yield f"{prefix}{name}", "unknown field"
            elif each is not None:
                yield from _check_field(fields[name], each, f"{prefix}{name}")
        for name in _REQUIRED.get(message, ()):
            if value.get(name) is None:
                yield f"{prefix}{name}", "Required value"


def _check_field(field: FieldDescriptor, value: Any, at: str) -> Iterator[tuple[str, str]]:
    message: Any = field.message_type
    if message is not None and message.GetOptions().map_entry:
        if not isinstance(value, Mapping):
            yield at, formats.wrong(value, "must be an object")
            return
        for key, each in value.items():
            yield from _check_item(message.fields_by_name["value"], each, f"{at}.{key}")
    elif isinstance(field.default_value, list):  # a repeated field
        if not isinstance(value, list):
            yield at, formats.wrong(value, "must be a list")
            return
        for index, each in enumerate(value):
            yield from _check_item(field, each, f"{at}[{index}]")
    else:
        yield from _check_item(field, value, at)


def _check_item(field: FieldDescriptor, value: Any, at: str) -> Iterator[tuple[str, str]]:
    if field.message_type is not None:
        yield from _check_message(field.message_type, value, at)
        return
    type_, expected = _SCALARS[field.cpp_type]
    if type(value) is not type_:
        yield at, formats.wrong(value, f"must be {expected}")


def _fields(message: Any) -> Iterator[FieldDescriptor]:
    for field in message.fields:
        yield from field.message_type.fields if field.name == INLINE else [field]
