"""Requests for objects: their bodies, and the label and field selectors of lists and watches."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from ..objects import yaml_text
from . import protobuf_bodies
from .kinds import ApiKind, Document, Refused, value_at

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
    """Decode a body; None if it is empty. Raises Refused."""
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


# --- selectors --------------------------------------------------------------------------------------------------------

_KEY = r"[-A-Za-z0-9_./]+"
_VALUE = r"[-A-Za-z0-9_.]*"
_REQUIREMENT = re.compile(
    rf"\s*(?:!\s*(?P<absent>{_KEY})"
    rf"|(?P<name>{_KEY})\s*(?:\s(?P<set>in|notin)\s*\((?P<values>[^()]*)\)"
    rf"|(?P<operator>==|=|!=)\s*(?P<value>{_VALUE}))?)\s*"
)
_COMMA = re.compile(r",(?![^(]*\))")  # not between parentheses


def selection(kind: ApiKind, namespace: str, params: Mapping[str, str]) -> Callable[[Document], bool]:
    """Return a function that says whether a request selects an object. Raises Refused."""
    fields = list(_fields(kind, params.get("fieldSelector", "")))
    text = params.get("labelSelector", "")
    requirements = [_requirement(each) for each in _COMMA.split(text)] if text else []

    def chosen(document: Document) -> bool:
        metadata = document["metadata"]
        labels = metadata.get("labels") or {}
        return (
            (not namespace or metadata.get("namespace") == namespace)
            and all((_text(document, path) == value) is wanted for path, value, wanted in fields)
            and all(
                ((key in labels) if values is None else (labels.get(key) in values)) is wanted
                for key, values, wanted in requirements
            )
        )

    return chosen


def _fields(kind: ApiKind, text: str) -> Iterator[tuple[str, str, bool]]:
    """Return path, value, and whether the field must have that value. Raises Refused."""
    for each in filter(None, text.split(",")):
        name, equals, value = each.partition("=")
        wanted = not name.endswith("!")
        name = name.removesuffix("!")
        if not equals or name not in ("metadata.name", "metadata.namespace", *kind.selectable):
            raise Refused(400, "BadRequest", f"field label not supported: {name}")
        yield name, value.removeprefix("="), wanted


def _requirement(text: str) -> tuple[str, set[str] | None, bool]:
    """Parse a requirement of a label selector: a=b, a!=b, a, !a, a in (b,c), a notin (b,c). Raises Refused.

    Returns the key, the values (None for any), and whether the label must have one of them.
    """
    match = _REQUIREMENT.fullmatch(text)
    if match is None:
        raise Refused(400, "BadRequest", f"unable to parse requirement: {text!r}")
    if match["absent"]:
        return match["absent"], None, False
    if match["set"]:
        return match["name"], {each.strip() for each in match["values"].split(",")}, match["set"] == "in"
    return match["name"], {match["value"]} if match["operator"] else None, match["operator"] != "!="


def _text(document: Document, path: str) -> str:
    found = value_at(document, path)
    if path == "spec.unschedulable":
        return "true" if found else "false"
    return "" if found is None else str(found)
