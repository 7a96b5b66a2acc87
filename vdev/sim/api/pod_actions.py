"""What is done to pods by creating something else: a scheduler's Binding, and an Eviction."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from ..objects.plain_objects import copied
from .kinds import ApiKind, Document, Refused, conflict, value_at
from .store import Objects

KINDS = {"binding": ("v1", "Binding"), "eviction": ("policy/v1", "Eviction")}
_Pod: TypeAlias = tuple[ApiKind, str, str]
_DONE = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def act(objects: Objects, action: str, pod: _Pod, body: Any, *, manager: str) -> Document:
    """Do one of `KINDS` to a pod: its kind, namespace and name. Raises Refused."""
    kind, namespace, name = pod
    document = body if isinstance(body, dict) else {}
    version, wanted = KINDS[action]
    if (document.get("apiVersion") or version, document.get("kind") or wanted) != (version, wanted):
        raise Refused(400, "BadRequest", f"apiVersion and kind must be {version} and {wanted}")
    if (value_at(document, "metadata.name") or name) != name:
        raise Refused(400, "BadRequest", "name in URL does not match name in the object")
    if action == "binding":
        _bind(objects, pod, document, manager)
    else:
        options = document.get("deleteOptions") or {}
        now = options.get("gracePeriodSeconds") == 0
        objects.delete(kind, namespace, name, options.get("preconditions"), now=now)
    return _DONE


def _bind(objects: Objects, which: _Pod, binding: Mapping[str, Any], manager: str) -> None:
    kind, namespace, name = which
    target, metadata = binding.get("target") or {}, binding.get("metadata") or {}
    if target.get("kind") not in (None, "", "Node"):
        text = f'target.kind: Unsupported value: "{target["kind"]}": supported values: "Node", "<empty>"'
        raise Refused(500, "", text)
    if not (node := target.get("name")):
        raise Refused(500, "", "target.name: Required value")
    pod = copied(objects.get(kind, namespace, name))
    if (uid := metadata.get("uid")) and uid != pod["metadata"]["uid"]:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {pod['metadata']['uid']}"
        raise conflict(kind, name, why)
    if pod["metadata"].get("deletionTimestamp"):
        raise _refused(name, f"pod {name} is being deleted, cannot be assigned to a host")
    if there := pod["spec"].get("nodeName"):
        raise _refused(name, f'pod {name} is already assigned to node "{there}"')
    if pod["spec"].get("schedulingGates"):
        raise _refused(name, f"pod {name} has non-empty .spec.schedulingGates")
    pod["spec"]["nodeName"] = node
    for field in ("labels", "annotations"):
        if more := metadata.get(field):
            pod["metadata"][field] = {**(pod["metadata"].get(field) or {}), **more}
    objects.bind(kind, (namespace, name), pod, manager=manager)


def _refused(name: str, why: str) -> Refused:
    said = f'Operation cannot be fulfilled on pods/binding "{name}": {why}'
    return Refused(409, "Conflict", said, name=name, kind="pods/binding")
