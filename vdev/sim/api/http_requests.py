"""Requests for objects."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from ..objects import yaml_text
from . import protobuf_bodies
from .kinds import ApiKind, Refused

JSON, YAML, APPLY = "application/json", "application/yaml", "application/apply-patch+yaml"
MERGE_PATCH, STRATEGIC_PATCH = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
_BODIES = ("", JSON, YAML, protobuf_bodies.MEDIA_TYPE, MERGE_PATCH, STRATEGIC_PATCH, JSON_PATCH, APPLY)


@dataclass(frozen=True, slots=True)
class Request:
    """A request for objects."""

    verb: str  # as in RBAC
    kind: ApiKind
    namespace: str
    name: str
    subresource: str
    params: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any

    @property
    def resource(self) -> str:
        """The plural with the subresource, such as `nodes/status`."""
        return f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def content_type(self) -> str:
        return _media_type(self.headers)

    @property
    def manager(self) -> str:
        """The field manager."""
        agent = self.headers.get("user-agent", "").partition("/")[0] or "unknown"
        return self.params.get("fieldManager") or agent


def decoded(headers: Mapping[str, str], body: bytes) -> Any:
    """The document in a body, None if the body is empty. Raises Refused."""
    if not body:
        return None
    content_type = _media_type(headers)
    if content_type not in _BODIES:
        raise unsupported(_BODIES[1:])
    try:
        if content_type == protobuf_bodies.MEDIA_TYPE:
            return protobuf_bodies.document(body)
        return yaml_text.document(body) if content_type.endswith("yaml") and body[:1] != b"{" else json.loads(body)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise Refused(400, "BadRequest", f"error decoding the body: {error}") from None


def _media_type(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip()


def unsupported(known: tuple[str, ...]) -> Refused:
    text = f"the body of the request was in an unknown format - accepted media types include: {[*known]}"
    return Refused(415, "UnsupportedMediaType", text)
