"""Decodes request bodies in Kubernetes' protobuf encoding into the equivalent JSON objects."""

import base64
import json
from collections.abc import Mapping, MutableMapping, MutableSequence
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.message import DecodeError, Message

from ...pb import api_objects_pb2 as pb
from .kinds import KINDS, Refused

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\0"  # before the message
_KINDS: Mapping[tuple[str, str], type[Message]] = {
    (each.api_version, each.kind): getattr(pb, each.kind) for each in KINDS if each.kind not in ("Node", "Pod")
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INLINE = "deviceConfiguration"  # inline in JSON: its fields belong to the parent object


def document(body: bytes) -> dict[str, Any]:
    """Return the object in a body, without fields that Kubernetes 1.36 does not have.

    Raises Refused for a kind that only JSON supports, and ValueError for a malformed body.
    """
    if not body.startswith(_MAGIC):
        raise ValueError(f"a body of {MEDIA_TYPE} begins with {_MAGIC!r}")
    try:
        unknown = pb.Unknown.FromString(body.removeprefix(_MAGIC))
        api_version, kind = unknown.typeMeta.apiVersion, unknown.typeMeta.kind
        message = _message(api_version, kind).FromString(unknown.raw)
        return {"apiVersion": api_version, "kind": kind, **_fields(message)}
    except (DecodeError, OverflowError) as error:
        raise ValueError(str(error)) from None


def _message(api_version: str, kind: str) -> type[Message]:
    if kind == "DeleteOptions":  # the same type in each group
        return pb.DeleteOptions
    if (found := _KINDS.get((api_version, kind))) is not None:
        return found
    raise Refused(415, "UnsupportedMediaType", f"{kind} of {api_version}: the body must be application/json")


def _fields(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        found |= _fields(value) if field.name == INLINE else {field.name: _value(value)}
    return found


def _value(value: Any) -> Any:
    match value:
        case pb.Quantity():
            return value.string
        case pb.Time():
            return _time(value, "seconds")
        case pb.MicroTime():
            return _time(value, "microseconds")
        case pb.RawExtension() | pb.FieldsV1():
            return json.loads(value.raw or b"null")
        case Message():
            return _fields(value)
        case bytes():
            return base64.b64encode(value).decode()
        case MutableMapping():
            return {key: _value(value[key]) for key in value}
        case MutableSequence():
            return [_value(each) for each in value]
        case _:
            return value


def _time(message: pb.Time | pb.MicroTime, precision: str) -> str | None:
    if not message.HasField("seconds"):
        return None
    moment = _EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")
