"""The rules of a release of Kubernetes: the defaults that its API server fills in, and the objects that it refuses."""

from collections.abc import Iterable, Iterator
from typing import Any

from .kinds import DRA, ApiKind, Document, value_at
from .validation import wrong_fields, wrong_metadata


class Rules:
    """The rules of one release of Kubernetes."""

    version = (1, 36)

    def complete(self, kind: ApiKind, new: dict[str, Any], *, now: str) -> None:
        """Fill in defaults and times of an object without problems, and drop a slice's empty lists."""
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
        """Why an object that was `old` before (empty: did not exist) cannot be `new`: field and message each.

        Of most kinds, only the metadata is checked.
        """
        if kind.group == DRA and (wrong := wrong_fields(kind.kind, new)):
            yield from wrong
            return
        yield from wrong_metadata(new["metadata"])
        if kind.kind == "ResourceClaim":
            before, after = (value_at(each, "status.allocation") for each in (old, new))
            if before and after and before != after:
                yield "status.allocation", "Invalid value: field is immutable"


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
