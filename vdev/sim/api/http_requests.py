"""What a request is about, by its path and method, and what it does to objects."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import yaml

from ..objects import formats, yaml_text
from . import dra_fields, patches, pod_actions, protobuf_bodies
from .kinds import DRA, ApiKind, Document, Refused, Stored, invalid, invalid_options
from .selectors import selection
from .store import Check, Key, Objects, anything

_PATCHES = {
    "application/merge-patch+json": patches.merge,
    "application/strategic-merge-patch+json": patches.strategic,
    "application/json-patch+json": patches.operations,
}
_APPLY = "application/apply-patch+yaml"
_LONGEST_MANAGER = 128
_OPTIONS = {"update": "Update", "patch": "Patch"}
_OF_DRIVERS = ("opaque", "data")
_BODIES = ("", "application/json", "application/yaml", protobuf_bodies.MEDIA_TYPE, *_PATCHES, _APPLY)


@dataclass(frozen=True, slots=True)
class Request:
    """A request for objects. `verb` is RBAC's, `resource` has the subresource: nodes/status."""

    verb: str
    kind: ApiKind
    namespace: str
    name: str
    subresource: str
    params: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any

    @property
    def resource(self) -> str:
        return f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural

    @property
    def key(self) -> Key:
        return self.namespace, self.name

    @property
    def door(self) -> Mapping[str, str]:
        """Who writes, and which part of the object."""
        return {"manager": self.manager, "subresource": self.subresource}

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip()

    @property
    def manager(self) -> str:
        """Who writes, for the fields' ownership."""
        agent = self.headers.get("user-agent", "").partition("/")[0] or "unknown"
        return self.params.get("fieldManager") or agent


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request that writes: the status of HTTP, and the object."""

    status: int
    document: Document


def read(
    kinds: Mapping[tuple[str, str, str], ApiKind], method: str, target: str, headers: Mapping[str, str], body: bytes
) -> Request:
    url = urlsplit(target)
    params = dict(parse_qsl(url.query, keep_blank_values=True))
    kind, namespace, name, subresource = _place(kinds, url.path)
    verb = _verb(
        method, name, params, acts=subresource in kind.actions, needs_namespace=kind.namespaced and not namespace
    )
    return Request(verb, kind, namespace, name, subresource, params, headers, _body(headers, body))


def _body(headers: Mapping[str, str], body: bytes) -> Any:
    if not body:
        return None
    content_type = headers.get("content-type", "").partition(";")[0].strip()
    if content_type not in _BODIES:
        text = f"the body of the request was in an unknown format - accepted media types include: {list(_BODIES[1:])}"
        raise Refused(415, "UnsupportedMediaType", text)
    try:
        if content_type == protobuf_bodies.MEDIA_TYPE:
            return protobuf_bodies.document(body)
        return yaml_text.document(body) if content_type.endswith("yaml") and body[:1] != b"{" else json.loads(body)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise Refused(400, "BadRequest", f"error decoding the body: {error}") from None


def _place(kinds: Mapping[tuple[str, str, str], ApiKind], path: str) -> tuple[ApiKind, str, str, str]:
    parts = [unquote(part) for part in path.split("/")[1:]]
    group, parts = ("", parts[1:]) if parts[0] == "api" else (parts[1] if parts[1:] else "", parts[2:])
    version, *parts = parts or [""]
    namespace = ""
    if parts[:1] == ["namespaces"] and len(parts) > 2 and parts[2] != "status":  # a resource follows
        namespace, parts = parts[1], parts[2:]
    kind = kinds.get((group, version, parts[0] if parts else ""))
    name = parts[1] if len(parts) > 1 else ""
    subresource = parts[2] if len(parts) > 2 else ""  # resource, name, subresource
    if (
        kind is None
        or len(parts) > 3  # resource, name, subresource
        or (namespace and not kind.namespaced)
        or (subresource and subresource not in (("status",) * kind.status + kind.actions))
        or (kind.namespaced and name and not namespace)
    ):
        raise Refused(404, "NotFound", "the server could not find the requested resource")
    return kind, namespace, name, subresource


def _verb(method: str, name: str, params: Mapping[str, str], *, acts: bool, needs_namespace: bool) -> str:
    if acts and method == "POST":
        return "create"
    if method == "GET" and not acts:
        return "get" if name else "watch" if params.get("watch") in ("true", "1") else "list"
    found = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}.get(method, "")
    if found == "delete" and not name:
        return "deletecollection"
    if not found or acts or bool(name) != (found != "create") or (found == "create" and needs_namespace):
        raise Refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    return found


def write(objects: Objects, request: Request, *, check: Check = anything) -> Answer:
    """Do what a request wants. Raises Refused, PatchRefused."""
    if "dryRun" in request.params:
        raise Refused(400, "BadRequest", "this server does everything that it is asked to: dryRun is not known to it")
    _checked(request)
    kind, namespace, name = request.kind, request.namespace, request.name
    match request.verb:
        case "create" if request.subresource:
            pod = kind, namespace, name
            done = pod_actions.act(objects, request.subresource, pod, request.body, manager=request.manager)
            return Answer(201, done)
        case "create":
            document = _understood(request, _body_of(kind, request.body))
            return Answer(201, objects.create(kind, namespace, document, request.manager))
        case "update":
            document = _understood(request, _body_of(kind, request.body))
            return Answer(200, objects.replace(kind, request.key, document, check=check, **request.door))
        case "delete":
            return Answer(200, _delete(objects, kind, namespace, name, request))
        case "deletecollection":
            chosen = selection(kind, namespace, request.params)
            for each in [each for each in objects.all(kind, namespace) if chosen(each)]:
                _delete(objects, kind, each["metadata"].get("namespace", ""), each["metadata"]["name"], request)
            return Answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})
        case _:
            return _patch(objects, request, check)


def _checked(request: Request) -> None:
    """What a request that writes says beside its object. Raises Refused."""
    manager = request.params.get("fieldManager", "")
    if len(manager) > _LONGEST_MANAGER:
        raise _invalid_option(request, "fieldManager", f"Too long: may not be more than {_LONGEST_MANAGER} bytes")
    if not manager.isprintable():
        raise _invalid_option(request, "fieldManager", formats.wrong(manager, "invalid character"))


def _body_of(kind: ApiKind, body: Any) -> Any:
    """What was sent, which need not say of which kind it is."""
    if not isinstance(body, dict):
        return body
    return {**body, "apiVersion": body.get("apiVersion") or kind.api_version, "kind": body.get("kind") or kind.kind}


def _understood(request: Request, document: Any) -> Stored:
    """The object without fields that are null. Raises Refused."""
    kind = request.kind
    named = (document.get("apiVersion"), document.get("kind")) if isinstance(document, dict) else (None, None)
    if named != (kind.api_version, kind.kind):
        raise Refused(400, "BadRequest", f"apiVersion and kind must be {kind.api_version} and {kind.kind}")
    if kind.group == DRA and (wrong := dra_fields.wrong_fields(document)):
        raise invalid(kind, (document.get("metadata") or {}).get("name", ""), wrong)
    found: Stored = _without_null(document)
    return found


def _without_null(value: Any) -> Any:
    """As Kubernetes understands what was sent; what drivers have in an object of their own stays as it is."""
    if isinstance(value, dict):
        return {
            name: each if name in _OF_DRIVERS else _without_null(each)
            for name, each in value.items()
            if each is not None
        }
    return [_without_null(each) for each in value] if isinstance(value, list) else value


def _delete(objects: Objects, kind: ApiKind, namespace: str, name: str, request: Request) -> Document:
    options = request.body or {}
    grace = request.params.get("gracePeriodSeconds", options.get("gracePeriodSeconds"))
    now = grace is not None and str(grace) == "0"
    gone = objects.delete(kind, namespace, name, options.get("preconditions"), now=now)
    if objects.has(kind, namespace, name):
        return gone
    details = {"name": name, "kind": kind.plural, "uid": gone["metadata"]["uid"]}
    return {"kind": "Status", "apiVersion": "v1", "status": "Success", "details": details}


def _patch(objects: Objects, request: Request, check: Check) -> Answer:
    if request.content_type == _APPLY:
        return _apply(objects, request, check)
    patched = _PATCHES.get(request.content_type)
    if patched is None:
        text = f"the body of the request was in an unknown format - accepted media types include: {[*_PATCHES, _APPLY]}"
        raise Refused(415, "UnsupportedMediaType", text)
    if "force" in request.params:
        raise _invalid_option(request, "force", "Forbidden: may not be specified for non-apply patch")
    new = patched(objects.get(request.kind, *request.key), request.body)
    if not isinstance(new, dict):
        raise Refused(400, "BadRequest", "the patch makes something of the object that is none")
    new = _understood(request, new)
    return Answer(200, objects.change(request.kind, request.key, new, check=check, **request.door))


def _apply(objects: Objects, request: Request, check: Check) -> Answer:
    kind, name = request.kind, request.name
    if not request.params.get("fieldManager"):
        raise _invalid_option(request, "fieldManager", "Required value: is required for apply patch")
    body = _understood(request, request.body)
    metadata = body.get("metadata") or {}
    if metadata.get("name", name) != name:
        raise Refused(400, "BadRequest", "the name of the object does not match the name on the URL")
    there = objects.has(kind, *request.key)
    body = body if metadata.get("name") else {**body, "metadata": {**metadata, "name": name}}
    force = request.params.get("force") == "true"
    done = objects.apply(kind, request.key, body, force=force, check=check, **request.door)
    return Answer(200 if there else 201, done)


def _invalid_option(request: Request, option: str, text: str) -> Refused:
    return invalid_options(f"{_OPTIONS.get(request.verb, 'Create')}Options", [(option, text)])
