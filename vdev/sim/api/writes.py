"""Requests that write objects."""

from collections.abc import Callable, Mapping
from typing import Any

from . import patches
from .http_requests import APPLY, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Request, selection, unsupported
from .kinds import POD_ACTIONS, ApiKind, Document, Refused, Stored, conflict, invalid, value_at
from .store import ObjectStore, timestamp

_PATCHES: Mapping[str, Callable[[Any, Any], Any]] = {
    MERGE_PATCH: patches.merge,
    STRATEGIC_PATCH: patches.merged,
    JSON_PATCH: patches.operations,
}
_OPAQUE = ("opaque", "data")  # fields with objects of drivers, in which null may mean something
_SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


def write(objects: ObjectStore, request: Request) -> tuple[int, Document]:
    """Do what a request asks for; returns the HTTP status and the answer. Raises Refused."""
    if "dryRun" in request.params:
        raise Refused(400, "BadRequest", "this server does not support dryRun")
    kind, namespace = request.kind, request.namespace
    match request.verb:
        case "create" if request.subresource:
            return 201, _act_on_pod(objects, request)
        case "create":
            return 201, objects.create(kind, namespace, _understood(kind, request.body), request.manager)
        case "update":
            return 200, _update(objects, request)
        case "delete":
            return 200, _delete(objects, request, *request.key, request.body)
        case "deletecollection":
            chosen = selection(kind, namespace, request.params)
            for each in [each for each in objects.all(kind, namespace) if chosen(each)]:
                _delete(objects, request, each["metadata"].get("namespace", ""), each["metadata"]["name"], request.body)
            return 200, _SUCCESS
        case _ if request.content_type == APPLY:
            return _apply(objects, request)
        case _:
            return 200, _patch(objects, request)


def _understood(kind: ApiKind, document: Any) -> Stored:
    """Return the object of a body, without fields that are null. It need not name its kind. Raises Refused."""
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


def _update(objects: ObjectStore, request: Request) -> Document:
    kind, key = request.kind, request.key
    document = _understood(kind, request.body)
    objects.get(kind, *key)
    if not value_at(document, "metadata.resourceVersion"):
        text = "Invalid value: 0: must be specified for an update"
        raise invalid(kind, request.name, [("metadata.resourceVersion", text)])
    return objects.change(kind, key, document, manager=request.manager, subresource=request.subresource)


def _delete(objects: ObjectStore, request: Request, namespace: str, name: str, options: Document | None) -> Document:
    kind, options = request.kind, options or {}
    grace = request.params.get("gracePeriodSeconds", options.get("gracePeriodSeconds"))
    found = objects.delete(kind, namespace, name, options.get("preconditions"), now=str(grace) == "0")
    if objects.has(kind, namespace, name):
        return found
    return {**_SUCCESS, "details": {"name": name, "kind": kind.plural, "uid": found["metadata"]["uid"]}}


def _patch(objects: ObjectStore, request: Request) -> Document:
    patched = _PATCHES.get(request.content_type)
    if patched is None:
        raise unsupported((*_PATCHES, APPLY))
    kind, key = request.kind, request.key
    new = _understood(kind, patched(objects.get(kind, *key), request.body))
    return objects.change(kind, key, new, manager=request.manager, subresource=request.subresource)


def _apply(objects: ObjectStore, request: Request) -> tuple[int, Document]:
    if not request.params.get("fieldManager"):
        raise Refused(422, "Invalid", "fieldManager: Required value: is required for apply patch")
    body = _understood(request.kind, request.body)
    body["metadata"] = {"name": request.name, **(body.get("metadata") or {})}
    status = 200 if objects.has(request.kind, *request.key) else 201
    done = objects.apply(
        request.kind,
        request.key,
        body,
        manager=request.manager,
        subresource=request.subresource,
        force=request.params.get("force") == "true",
    )
    return status, done


# --- pods: a scheduler's Binding, and an Eviction ---------------------------------------------------------------------


def _act_on_pod(objects: ObjectStore, request: Request) -> Document:
    """Do one of `POD_ACTIONS`. Raises Refused."""
    document = request.body if isinstance(request.body, dict) else {}
    version, kind = POD_ACTIONS[request.subresource]
    if (document.get("apiVersion") or version, document.get("kind") or kind) != (version, kind):
        raise Refused(400, "BadRequest", f"apiVersion and kind must be {version} and {kind}")
    if request.subresource == "binding":
        _bind(objects, request, document)
    else:
        _delete(objects, request, *request.key, document.get("deleteOptions"))
    return {**_SUCCESS, "code": 201}


def _bind(objects: ObjectStore, request: Request, binding: Document) -> None:
    kind, name, key = request.kind, request.name, request.key
    metadata, node = binding.get("metadata") or {}, value_at(binding, "target.name")
    pod = objects.get(kind, *key)
    if not node:
        raise Refused(422, "Invalid", "target.name: Required value")
    if metadata.get("uid") not in (None, pod["metadata"]["uid"]):
        raise conflict(kind, name, f"Precondition failed: the pod's UID is {pod['metadata']['uid']}")
    if pod["metadata"].get("deletionTimestamp"):
        raise conflict(kind, name, f"pod {name} is being deleted, cannot be assigned to a host")
    if current := pod["spec"].get("nodeName"):
        raise conflict(kind, name, f'pod {name} is already assigned to node "{current}"')
    if pod["spec"].get("schedulingGates"):
        raise conflict(kind, name, f"pod {name} has non-empty .spec.schedulingGates")
    more = {field: metadata.get(field) or {} for field in ("labels", "annotations")}
    new = patches.merged(pod, {"metadata": more, "spec": {"nodeName": node}})
    pod = objects.change(kind, key, new, manager=request.manager)
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": timestamp()}
    new = patches.merged(pod, {"status": {"conditions": [scheduled]}})
    objects.change(kind, key, new, manager=request.manager, subresource="status")
