"""Requests for objects, read from path, method, headers and body."""

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


def read(
    kinds: Mapping[tuple[str, str, str], ApiKind],
    method: str,
    path: str,
    params: Mapping[str, str],
    headers: Mapping[str, str],
    body: bytes,
) -> Request:
    """Read a request. Raises Refused."""
    kind, namespace, name, subresource = _place(kinds, path)
    verb = _verb(method, name, params, is_action=subresource in kind.actions)
    if verb == "create" and kind.namespaced and not namespace:
        raise _not_allowed()
    return Request(verb, kind, namespace, name, subresource, params, headers, _decoded(headers, body))


def _decoded(headers: Mapping[str, str], body: bytes) -> Any:
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


def _place(kinds: Mapping[tuple[str, str, str], ApiKind], path: str) -> tuple[ApiKind, str, str, str]:
    """Kind, namespace, name and subresource of a path.

    The path is `/apis/GROUP/VERSION/namespaces/NAMESPACE/PLURAL/NAME/SUBRESOURCE`, or begins with `/api/VERSION`.
    """
    root, *parts = path.strip("/").split("/")
    group = parts.pop(0) if root == "apis" and parts else ""
    version = parts.pop(0) if parts else ""
    namespace = ""
    if parts[:1] == ["namespaces"] and len(parts) > 2 and parts[2] != "status":  # a resource follows
        namespace, parts = parts[1], parts[2:]
    plural, name, subresource, *more = (*parts, "", "", "")
    kind = kinds.get((group, version, plural))
    if (
        kind is None
        or any(more)
        or (namespace and not kind.namespaced)
        or (kind.namespaced and name and not namespace)
        or subresource not in ("", *("status",) * kind.status, *kind.actions)
    ):
        raise Refused(404, "NotFound", "the server could not find the requested resource")
    return kind, namespace, name, subresource


def _verb(method: str, name: str, params: Mapping[str, str], *, is_action: bool) -> str:
    match method, bool(name):
        case "POST", True if is_action:
            return "create"
        case _ if is_action:
            raise _not_allowed()
        case "GET", True:
            return "get"
        case "GET", False:
            return "watch" if params.get("watch") in ("true", "1") else "list"
        case "POST", False:
            return "create"
        case "PUT", True:
            return "update"
        case "PATCH", True:
            return "patch"
        case "DELETE", True:
            return "delete"
        case "DELETE", False:
            return "deletecollection"
    raise _not_allowed()


def _not_allowed() -> Refused:
    return Refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def unsupported(known: tuple[str, ...]) -> Refused:
    text = f"the body of the request was in an unknown format - accepted media types include: {[*known]}"
    return Refused(415, "UnsupportedMediaType", text)
