"""The defaults that the API server fills in, and the objects that it refuses.

It checks names, labels and owners of all objects. Of the rest it checks only DRA's objects: what drivers write, and
what the scheduler cannot work with.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...model.names import DNS_NAME, annotation_key_problem, qualified_name_problem, value_problem
from .kinds import DRA, ApiKind, Document, invalid, value_at, wrong
from .validation import wrong_fields


class Rules:
    """The rules of one release of Kubernetes."""

    version = (1, 36)

    def complete(self, kind: ApiKind, new: dict[str, Any], *, now: str) -> None:
        """Fill in defaults and times, and drop a slice's empty lists.

        Raises Refused for an object of DRA with fields that it cannot have.
        """
        if problems := self.wrong_fields(kind, new):
            raise invalid(kind, (new.get("metadata") or {}).get("name", ""), problems)
        match kind.kind:
            case "Namespace":
                new.setdefault("status", {"phase": "Active"})
            case "Pod":
                spec = new.setdefault("spec", {})
                _complete_pod(spec)
                new.setdefault("status", _first_status(spec, now))
            case "ResourceClaim":
                _complete_claim(new.get("spec") or {})
            case "ResourceClaimTemplate":
                _complete_claim((new.get("spec") or {}).get("spec") or {})
            case "ResourceSlice":
                _complete_slice(new["spec"], now)

    def problems(self, kind: ApiKind, old: Document, new: Document) -> Iterator[tuple[str, str]]:
        """Why an object that was `old` before (empty: did not exist) cannot be `new`: field and message each."""
        yield from _metadata(new.get("metadata") or {})
        if kind.kind == "ResourceClaim":
            before, after = (value_at(each, "status.allocation") for each in (old, new))
            if before and after and before != after:
                yield "status.allocation", "Invalid value: field is immutable"

    def wrong_fields(self, kind: ApiKind, new: Document) -> list[tuple[str, str]]:
        """Why an object of DRA cannot have its fields: field and message each. Other kinds are not checked."""
        return wrong_fields(kind.kind, new) if kind.group == DRA else []


# --- defaults ---------------------------------------------------------------------------------------------------------


def _complete_pod(spec: dict[str, Any]) -> None:
    spec.setdefault("containers", [])
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    for container in (*(spec["containers"] or ()), *(spec.get("initContainers") or ())):
        resources = container.setdefault("resources", {})
        if limits := resources.get("limits"):
            resources["requests"] = {**limits, **(resources.get("requests") or {})}


def _first_status(spec: Document, now: str) -> dict[str, Any]:
    if not spec.get("schedulingGates"):
        return {"phase": "Pending"}
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "lastTransitionTime": now}
    return {"phase": "Pending", "conditions": [gated]}


def _complete_claim(spec: Document) -> None:
    for request in (spec.get("devices") or {}).get("requests") or ():
        for asked in filter(None, (request.get("exactly"), *(request.get("firstAvailable") or ()))):
            asked["allocationMode"] = asked.get("allocationMode") or "ExactCount"
            if not asked.get("count"):
                asked.pop("count", None)
                if asked["allocationMode"] == "ExactCount":
                    asked["count"] = 1
            for toleration in asked.get("tolerations") or ():
                toleration["operator"] = toleration.get("operator") or "Equal"


def _complete_slice(spec: dict[str, Any], now: str) -> None:
    _drop_empty(spec, ("devices", "sharedCounters"))
    for device in spec.get("devices") or ():
        _drop_empty(device, ("attributes", "capacity", "taints", "consumesCounters"))
        for taint in device.get("taints") or ():
            taint.setdefault("timeAdded", now)


def _drop_empty(document: dict[str, Any], names: Iterable[str]) -> None:
    for name in names:
        if name in document and not document[name]:
            del document[name]


# --- limits -----------------------------------------------------------------------------------------------------------

_NO_SUBDOMAIN = "must be a lowercase RFC 1123 subdomain: lower-case letters, digits, '-' and '.'"
_LONGEST_NAME = 253


def _metadata(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    name = metadata.get("name", "")
    if not DNS_NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        yield "metadata.name", wrong(name, _NO_SUBDOMAIN)
    for field, key_problem in (("labels", qualified_name_problem), ("annotations", annotation_key_problem)):
        for key, value in (metadata.get(field) or {}).items():
            if not isinstance(value, str):
                yield f"metadata.{field}", wrong(value, "must be a string")
            elif problem := key_problem(key) or (value_problem(value) if field == "labels" else ""):
                yield f"metadata.{field}", wrong(key, problem)
    for each in metadata.get("ownerReferences") or ():
        for field in ("apiVersion", "kind", "name", "uid"):
            if not each.get(field):
                yield f"metadata.ownerReferences.{field}", wrong(each.get(field, ""), "must not be empty")
