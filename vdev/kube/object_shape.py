"""The shape that an object of the API server must have wherever vdev looks into it. The rest may be anything."""

from collections.abc import Mapping
from typing import Any

import msgspec

Labels = dict[str, str]


class _Managed(msgspec.Struct):
    manager: str | None = None
    operation: str | None = None
    subresource: str | None = None
    fieldsV1: dict[str, Any] | None = None  # noqa: N815 - as the API has it


class _Metadata(msgspec.Struct):
    name: str
    namespace: str | None = None
    uid: str | None = None
    resourceVersion: str | None = None  # noqa: N815
    labels: Labels | None = None
    annotations: Labels | None = None
    managedFields: list[_Managed] | None = None  # noqa: N815


class _Condition(msgspec.Struct):
    type: str | None = None
    status: str | None = None
    lastTransitionTime: str | None = None  # noqa: N815


class _Device(msgspec.Struct):  # of a ResourceClaim
    driver: str | None = None
    conditions: list[_Condition] | None = None


class _Status(msgspec.Struct):
    capacity: Labels | None = None
    allocatable: Labels | None = None
    conditions: list[_Condition] | None = None
    devices: list[_Device] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata
    spec: dict[str, Any] | None = None
    status: _Status | None = None


def why_no_object(document: Mapping[str, Any]) -> str:
    """What is wrong with a document that should be an object; empty where it is one."""
    try:
        msgspec.convert(document, _Object)
    except msgspec.ValidationError as wrong:
        return str(wrong)
    return ""
