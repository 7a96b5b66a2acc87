"""Handles requests for objects: decodes bodies, parses selectors, lists, watches and writes."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import yaml

from ..objects import yaml_text
from . import patches, protobuf_bodies
from .kinds import POD_ACTIONS, ApiKind, Document, Refused, Stored, conflict, value_at
from .store import Change, ObjectStore, at_version, status_of, timestamp, without_status

JSON, YAML, APPLY = "application/json", "application/yaml", "application/apply-patch+yaml"
MERGE_PATCH, STRATEGIC_PATCH = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
_PATCHES: Mapping[str, Callable[[Any, Any], Any]] = {
    MERGE_PATCH: patches.merge,
    STRATEGIC_PATCH: patches.merged,
    JSON_PATCH: patches.operations,
}
_LONGEST_WATCH = 1800.0  # seconds
_OPAQUE = ("opaque", "data")  # fields with data of drivers, which may contain a meaningful null
_PRECONDITIONS = ("name", "namespace", "uid", "resourceVersion")  # metadata that must match the stored object
_SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


@dataclass(frozen=True, slots=True)
class Request:
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
        """The field manager; by default the name of the client program in `User-Agent`."""
        agent = self.headers.get("user-agent", "").partition("/")[0] or "unknown"
        return self.params.get("fieldManager") or agent


def decoded(headers: Mapping[str, str], body: bytes) -> Any:
    """Decode a body; None if it is empty. Raises Refused."""
    if not body:
        return None
    content_type = _media_type(headers)
    try:
        if content_type == protobuf_bodies.MEDIA_TYPE:
            return protobuf_bodies.document(body)
        if content_type in (YAML, APPLY) and body[:1] != b"{":
            return yaml_text.document(body)
        if content_type in ("", JSON, YAML, APPLY, *_PATCHES):
            return json.loads(body)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise Refused(400, "BadRequest", f"error decoding the body: {error}") from None
    raise unsupported((JSON, YAML, protobuf_bodies.MEDIA_TYPE, *_PATCHES, APPLY))


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
# A label or field, its values (None for any), and whether it must have one of them.
_Requirement: TypeAlias = tuple[str, set[str] | None, bool]


def selection(kind: ApiKind, namespace: str, params: Mapping[str, str]) -> Callable[[Document], bool]:
    """Return a predicate for the objects that a request selects. Raises Refused."""
    on_labels = _requirements(params.get("labelSelector", ""))
    on_fields = _requirements(params.get("fieldSelector", ""))
    for path, values, _ in on_fields:
        if values is None or path not in ("metadata.name", "metadata.namespace", *kind.selectable):
            raise Refused(400, "BadRequest", f"field label not supported: {path}")

    def chosen(document: Document) -> bool:
        metadata = document["metadata"]
        fields = {path: _text(document, path) for path, *_ in on_fields}
        return (
            (not namespace or metadata.get("namespace") == namespace)
            and _fulfills(fields, on_fields)
            and _fulfills(metadata.get("labels") or {}, on_labels)
        )

    return chosen


def _fulfills(held: Mapping[str, str], requirements: list[_Requirement]) -> bool:
    return all(
        (key in held if values is None else held.get(key) in values) is wanted for key, values, wanted in requirements
    )


def _requirements(selector: str) -> list[_Requirement]:
    return [_requirement(each) for each in _COMMA.split(selector)] if selector else []


def _requirement(text: str) -> _Requirement:
    """Parse a requirement of a selector: a=b, a!=b, a, !a, a in (b,c), a notin (b,c). Raises Refused."""
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


# --- lists and watches ------------------------------------------------------------------------------------------------


def listed(objects: ObjectStore, request: Request) -> Document:
    """Return all objects that a request selects. `limit` is ignored, as the API allows (ListOptions)."""
    _requested_version(objects, request)
    chosen = selection(request.kind, request.namespace, request.params)
    return {
        "kind": f"{request.kind.kind}List",
        "apiVersion": request.kind.api_version,
        "metadata": {"resourceVersion": str(objects.version)},
        "items": [_without_kind(each) for each in objects.all(request.kind, request.namespace) if chosen(each)],
    }


def watch(
    objects: ObjectStore, request: Request, *, form: Callable[[Document], Document], bookmarks: float
) -> AsyncIterator[bytes]:
    """Yield the events of a watch until it times out or the next change is no longer stored. Raises Refused.

    Without a version, a watch begins with the existing objects. With `sendInitialEvents`, a bookmark follows the last
    of them. The first item contains the existing objects, and is empty if the watch does not send them. `bookmarks` is
    the number of seconds between two bookmarks.
    """
    kind, params = request.kind, request.params
    chosen = selection(kind, request.namespace, params)
    version = _requested_version(objects, request)  # the client has the changes up to this version
    wants_bookmarks = params.get("allowWatchBookmarks") == "true"
    sends_existing = params.get("sendInitialEvents", "false" if version else "true") == "true"
    seconds = float(params.get("timeoutSeconds", "0")) or _LONGEST_WATCH

    def bookmark(**more: Any) -> bytes:
        metadata = {"resourceVersion": str(objects.version), "creationTimestamp": None, **more}
        return _line("BOOKMARK", {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata})

    def event(change: Change) -> bytes:
        """Encode the event of a change; empty if the watch does not select the object."""
        old, new = (each if each is not None and chosen(each) else None for each in (change.old, change.new))
        if new is not None:
            return _line("ADDED" if old is None else "MODIFIED", form(new))
        return b"" if old is None else _line("DELETED", form(at_version(change.new or old, change.version)))

    async def events() -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        end, next_bookmark, sent = loop.time() + seconds, 0.0, version or objects.version
        text = b""
        if sends_existing:
            sent = objects.version
            text = b"".join(_line("ADDED", form(each)) for each in objects.all(kind) if chosen(each))
            if "sendInitialEvents" in params and wants_bookmarks:
                text += bookmark(annotations={"k8s.io/initial-events-end": "true"})
        while True:
            try:
                text += b"".join(map(event, objects.since(kind, sent)))
            except Refused as refused:
                yield _line("ERROR", refused.document)
                return
            if wants_bookmarks and objects.version > sent and loop.time() >= next_bookmark:
                next_bookmark = loop.time() + bookmarks
                text += bookmark()
            sent = objects.version
            yield text
            text = b""
            try:
                async with asyncio.timeout_at(end):
                    await objects.newer(sent)
            except TimeoutError:
                return

    return events()


def _line(kind: str, document: Document) -> bytes:
    return json.dumps({"type": kind, "object": document}, ensure_ascii=False).encode() + b"\n"


def _requested_version(objects: ObjectStore, request: Request) -> int:
    """Return the version from which a list or watch starts; 0 means any. Raises Refused."""
    given = request.params.get("resourceVersion", "")
    if given and not given.isdecimal():
        raise Refused(400, "BadRequest", f'resourceVersion: Invalid value: "{given}"')
    if given and int(given) > objects.version:
        text = f"Too large resource version: {given}, current: {objects.version}"
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        raise Refused(504, "Timeout", text, causes=[cause])
    return int(given or 0)


def _without_kind(document: Stored) -> Stored:
    return {name: value for name, value in document.items() if name not in ("apiVersion", "kind")}


# --- writes -----------------------------------------------------------------------------------------------------------


def write(objects: ObjectStore, request: Request) -> tuple[int, Document]:
    """Execute a request that writes. Returns the HTTP status and the response body. Raises Refused."""
    if "dryRun" in request.params:
        raise Refused(400, "BadRequest", "this server does not support dryRun")
    kind, namespace, key = request.kind, request.namespace, request.key
    match request.verb:
        case "create" if request.subresource:
            return 201, _act_on_pod(objects, request)
        case "create":
            return 201, objects.create(kind, namespace, _written(request, {}, request.body), request.manager)
        case "delete":
            return 200, _delete(objects, request, request.name, request.body)
        case "deletecollection":
            chosen = selection(kind, namespace, request.params)
            for each in [each for each in objects.all(kind, namespace) if chosen(each)]:
                _delete(objects, request, each["metadata"]["name"], request.body)
            return 200, _SUCCESS
        case "patch" if request.content_type == APPLY:
            return _apply(objects, request)
    old = objects.get(kind, *key)
    if request.verb == "update":
        sent = request.body
    elif patched := _PATCHES.get(request.content_type):
        sent = patched(old, request.body)
    else:
        raise unsupported((*_PATCHES, APPLY))
    new = _written(request, old, sent)
    return 200, objects.change(kind, key, new, manager=request.manager, subresource=request.subresource)


def _written(request: Request, old: Document, sent: Any) -> Stored:
    """Return an object with the part that the request writes: the status, or everything else. Raises Refused."""
    kind, new = request.kind, _understood(request.kind, sent)
    if not kind.status or (kind.kind == "Node" and not old):  # a kubelet creates its Node with the first status
        return new
    if not request.subresource:
        return without_status(new) | status_of(old)
    expected = {field: each for field, each in (new.get("metadata") or {}).items() if field in _PRECONDITIONS}
    return {**without_status(old), **status_of(new), "metadata": {**old["metadata"], **expected}}


def _understood(kind: ApiKind, document: Any) -> Stored:
    """Return the object in a body without null fields. `apiVersion` and `kind` are optional. Raises Refused."""
    expected = kind.api_version, kind.kind
    if not isinstance(document, dict) or expected != (
        document.get("apiVersion") or expected[0],
        document.get("kind") or expected[1],
    ):
        raise Refused(400, "BadRequest", f"apiVersion and kind must be {kind.api_version} and {kind.kind}")
    found: Stored = _without_null({**document, "apiVersion": kind.api_version, "kind": kind.kind})
    return found


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: each if name in _OPAQUE else _without_null(each) for name, each in value.items() if each is not None
        }
    return [_without_null(each) for each in value] if isinstance(value, list) else value


def _delete(objects: ObjectStore, request: Request, name: str, options: Document | None) -> Document:
    kind, namespace, options = request.kind, request.namespace, options or {}
    grace = request.params.get("gracePeriodSeconds", options.get("gracePeriodSeconds"))
    found = objects.delete(kind, namespace, name, options.get("preconditions"), now=str(grace) == "0")
    return found if objects.has(kind, namespace, name) else _SUCCESS


def _apply(objects: ObjectStore, request: Request) -> tuple[int, Document]:
    if not request.params.get("fieldManager"):
        raise Refused(422, "Invalid", "fieldManager: Required value: is required for apply patch")
    kind, key = request.kind, request.key
    body = _understood(kind, request.body)
    metadata = body.get("metadata") or {}
    if metadata.get("managedFields"):
        raise Refused(400, "BadRequest", "metadata.managedFields must be nil")
    status = 200 if objects.has(kind, *key) else 201
    if request.subresource:
        objects.get(kind, *key)
        body = status_of(body)
    elif status == 201 and (uid := metadata.get("uid")):
        raise conflict(kind, key[1], f"Precondition failed: UID in precondition: {uid}, UID in object meta: ")
    elif kind.status:
        body = without_status(body)
    force = request.params.get("force") == "true"
    new = objects.apply(kind, key, body, manager=request.manager, subresource=request.subresource, force=force)
    return status, new


# --- pods: a scheduler's Binding, and an Eviction ---------------------------------------------------------------------


def _act_on_pod(objects: ObjectStore, request: Request) -> Document:
    """Bind or evict a pod (see `POD_ACTIONS`). Raises Refused."""
    document = request.body if isinstance(request.body, dict) else {}
    version, kind = POD_ACTIONS[request.subresource]
    if (document.get("apiVersion") or version, document.get("kind") or kind) != (version, kind):
        raise Refused(400, "BadRequest", f"apiVersion and kind must be {version} and {kind}")
    if request.subresource == "binding":
        _bind(objects, request, document)
    else:
        _delete(objects, request, request.name, document.get("deleteOptions"))
    return {**_SUCCESS, "code": 201}


def _bind(objects: ObjectStore, request: Request, binding: Document) -> None:
    kind, name, key = request.kind, request.name, request.key
    metadata, node = binding.get("metadata") or {}, value_at(binding, "target.name")
    pod = objects.get(kind, *key)
    if not node:
        raise Refused(422, "Invalid", "target.name: Required value")
    if metadata.get("uid") not in (None, pod["metadata"]["uid"]):
        raise conflict(kind, name, f"Precondition failed: the pod's UID is {pod['metadata']['uid']}")
    if pod["metadata"].get("deletionTimestamp") or pod["spec"].get("schedulingGates"):
        raise conflict(kind, name, f"pod {name} is being deleted, or has scheduling gates")
    if current := pod["spec"].get("nodeName"):
        raise conflict(kind, name, f'pod {name} is already assigned to node "{current}"')
    more = {field: metadata.get(field) or {} for field in ("labels", "annotations")}
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": timestamp()}
    change = {"metadata": more, "spec": {"nodeName": node}, "status": {"conditions": [scheduled]}}
    objects.change(kind, key, patches.merged(pod, change), manager=request.manager)
