"""What requests that write do to objects."""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from . import patches
from .http_requests import APPLY, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Request, unsupported
from .kinds import POD_ACTIONS, Document, Refused, Stored, conflict, value_at
from .selectors import selection
from .store import Check, Objects, anything

_PATCHES = {
    MERGE_PATCH: patches.merge,
    STRATEGIC_PATCH: patches.strategic,
    JSON_PATCH: patches.operations,
}
_OF_DRIVERS = ("opaque", "data")


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request that writes: the status of HTTP, and the object."""

    status: int
    document: Document


def write(objects: Objects, request: Request, *, check: Check = anything) -> Answer:
    """Do what a request wants. Raises Refused."""
    if "dryRun" in request.params:
        raise Refused(400, "BadRequest", "this server does everything that it is asked to: dryRun is not known to it")
    kind, namespace, name = request.kind, request.namespace, request.name
    match request.verb:
        case "create" if request.subresource:
            return Answer(201, _act(objects, request))
        case "create":
            document = _understood(request, request.body)
            return Answer(201, objects.create(kind, namespace, document, request.manager))
        case "update":
            document = _understood(request, request.body)
            subresource = request.subresource
            done = objects.replace(
                kind, request.key, document, manager=request.manager, subresource=subresource, check=check
            )
            return Answer(200, done)
        case "delete":
            return Answer(200, _delete(objects, request, namespace, name))
        case "deletecollection":
            chosen = selection(kind, namespace, request.params)
            for each in [each for each in objects.all(kind, namespace) if chosen(each)]:
                _delete(objects, request, each["metadata"].get("namespace", ""), each["metadata"]["name"])
            return Answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})
        case _:
            return _patch(objects, request, check)


def _understood(request: Request, document: Any) -> Stored:
    """The object that was sent, without fields that are null; it need not say of which kind it is. Raises Refused."""
    kind = request.kind
    of = kind.api_version, kind.kind
    if not isinstance(document, dict) or of != (document.get("apiVersion") or of[0], document.get("kind") or of[1]):
        raise Refused(400, "BadRequest", f"apiVersion and kind must be {kind.api_version} and {kind.kind}")
    found: Stored = _without_null({**document, "apiVersion": kind.api_version, "kind": kind.kind})
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


def _delete(objects: Objects, request: Request, namespace: str, name: str) -> Document:
    kind, options = request.kind, request.body or {}
    grace = request.params.get("gracePeriodSeconds", options.get("gracePeriodSeconds"))
    now = grace is not None and str(grace) == "0"
    gone = objects.delete(kind, namespace, name, options.get("preconditions"), now=now)
    if objects.has(kind, namespace, name):
        return gone
    details = {"name": name, "kind": kind.plural, "uid": gone["metadata"]["uid"]}
    return {"kind": "Status", "apiVersion": "v1", "status": "Success", "details": details}


def _patch(objects: Objects, request: Request, check: Check) -> Answer:
    if request.content_type == APPLY:
        return _apply(objects, request, check)
    patched = _PATCHES.get(request.content_type)
    if patched is None:
        raise unsupported((*_PATCHES, APPLY))
    new = _understood(request, patched(objects.get(request.kind, *request.key), request.body))
    subresource = request.subresource
    done = objects.change(request.kind, request.key, new, manager=request.manager, subresource=subresource, check=check)
    return Answer(200, done)


def _apply(objects: Objects, request: Request, check: Check) -> Answer:
    if not request.params.get("fieldManager"):
        raise Refused(422, "Invalid", "fieldManager: Required value: is required for apply patch")
    body = _understood(request, request.body)
    body["metadata"] = {"name": request.name, **(body.get("metadata") or {})}
    status = 200 if objects.has(request.kind, *request.key) else 201
    done = objects.apply(
        request.kind,
        request.key,
        body,
        manager=request.manager,
        subresource=request.subresource,
        force=request.params.get("force") == "true",
        check=check,
    )
    return Answer(status, done)


# --- what is done to pods by creating something else: a scheduler's Binding, and an Eviction ------------------------


def _act(objects: Objects, request: Request) -> Document:
    """Do one of `POD_ACTIONS` to the pod of a request. Raises Refused."""
    document = request.body if isinstance(request.body, dict) else {}
    version, wanted = POD_ACTIONS[request.subresource]
    if (document.get("apiVersion") or version, document.get("kind") or wanted) != (version, wanted):
        raise Refused(400, "BadRequest", f"apiVersion and kind must be {version} and {wanted}")
    if request.subresource == "binding":
        _bind(objects, request, document)
    else:
        options = document.get("deleteOptions") or {}
        now = options.get("gracePeriodSeconds") == 0
        objects.delete(request.kind, *request.key, options.get("preconditions"), now=now)
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _bind(objects: Objects, request: Request, binding: Document) -> None:
    kind, name = request.kind, request.name
    metadata = binding.get("metadata") or {}
    pod = deepcopy(objects.get(kind, *request.key))
    if not (node := value_at(binding, "target.name")):
        raise Refused(422, "Invalid", "target.name: Required value")
    if metadata.get("uid") not in (None, pod["metadata"]["uid"]):
        raise conflict(kind, name, f"Precondition failed: the pod's UID is {pod['metadata']['uid']}")
    if pod["metadata"].get("deletionTimestamp"):
        raise conflict(kind, name, f"pod {name} is being deleted, cannot be assigned to a host")
    if there := pod["spec"].get("nodeName"):
        raise conflict(kind, name, f'pod {name} is already assigned to node "{there}"')
    if pod["spec"].get("schedulingGates"):
        raise conflict(kind, name, f"pod {name} has non-empty .spec.schedulingGates")
    pod["spec"]["nodeName"] = node
    for field in ("labels", "annotations"):
        if more := metadata.get(field):
            pod["metadata"][field] = {**(pod["metadata"].get(field) or {}), **more}
    objects.bind(kind, request.key, pod, manager=request.manager)
