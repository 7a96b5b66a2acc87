"""Which fields objects of DRA have in Kubernetes 1.36, and of which type: as its protobuf messages have them."""

from collections.abc import Iterator, Mapping
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
_TYPE = ("apiVersion", "kind")  # which stand in no message
_TEXTS = [each.DESCRIPTOR for each in (pb.Quantity, pb.Time, pb.MicroTime)]  # messages that are a text in JSON
_ANYTHING = [each.DESCRIPTOR for each in (pb.RawExtension, pb.FieldsV1)]
_SCALARS: Mapping[int, tuple[type, str]] = {
    FieldDescriptor.CPPTYPE_STRING: (str, "a string"),
    FieldDescriptor.CPPTYPE_BOOL: (bool, "true or false"),
    FieldDescriptor.CPPTYPE_INT32: (int, "a whole number"),
    FieldDescriptor.CPPTYPE_INT64: (int, "a whole number"),
}


def wrong_fields(kind: str, document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What is wrong with an object of DRA: fields that there are not, and values of another type."""
    message = _MESSAGES[kind]
    return list(_wrong(message.DESCRIPTOR, {name: each for name, each in document.items() if name not in _TYPE}, ""))


def _wrong(message: Any, value: Any, at: str) -> Iterator[tuple[str, str]]:
    if message in _TEXTS or message in _ANYTHING:
        if message in _TEXTS and not isinstance(value, str | int):
            yield at, formats.wrong(value, "must be a string")
        elif message is pb.Quantity.DESCRIPTOR and exact(value) is None:
            yield at, formats.wrong(value, "must be a quantity, such as 16Gi")
        return
    if not isinstance(value, Mapping):
        yield at, formats.wrong(value, "must be an object")
        return
    known = {field.name: field for field in _known(message)}
    for name, each in value.items():
        inside = f"{at}.{name}" if at else name
        if name not in known:
            yield inside, "unknown field"
        elif each is not None:
            yield from _wrong_value(known[name], each, inside)


def _wrong_value(field: FieldDescriptor, value: Any, at: str) -> Iterator[tuple[str, str]]:
    of: Any = field.message_type
    if of is not None and of.GetOptions().map_entry:
        if not isinstance(value, Mapping):
            yield at, formats.wrong(value, "must be an object")
            return
        for key, each in value.items():
            yield from _wrong_item(of.fields_by_name["value"], each, f"{at}.{key}")
    elif isinstance(field.default_value, list):  # a repeated field
        if not isinstance(value, list):
            yield at, formats.wrong(value, "must be a list")
            return
        for index, each in enumerate(value):
            yield from _wrong_item(field, each, f"{at}[{index}]")
    else:
        yield from _wrong_item(field, value, at)


def _wrong_item(field: FieldDescriptor, value: Any, at: str) -> Iterator[tuple[str, str]]:
    if field.message_type is not None:
        yield from _wrong(field.message_type, value, at)
        return
    wanted, what = _SCALARS[field.cpp_type]
    if type(value) is not wanted:
        yield at, formats.wrong(value, f"must be {what}")


def _known(message: Any) -> Iterator[FieldDescriptor]:
    for field in message.fields:
        yield from field.message_type.fields if field.name == INLINE else [field]
