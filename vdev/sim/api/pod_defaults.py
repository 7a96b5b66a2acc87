"""What Kubernetes writes into new pods."""

from collections.abc import Mapping
from typing import Any

from ..objects.amounts import exact
from ..objects.plain_objects import copied

Document = Mapping[str, Any]
_SPEC = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "priority": 0,
    "preemptionPolicy": "PreemptLowerPriority",
    "enableServiceLinks": True,
}
_CONTAINER = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "resources": {}}


def complete(spec: dict[str, Any]) -> None:
    """Fill in what is the default; limits are requests where none are given."""
    for name, value in _SPEC.items():
        if spec.get(name) is None:
            spec[name] = copied(value)
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        for name, value in _CONTAINER.items():
            if container.get(name) is None:
                container[name] = copied(value)
        if not container.get("imagePullPolicy"):
            image, _, tag = (container.get("image") or "").rpartition("/")[2].partition(":")
            is_latest = image and tag in ("", "latest") and "@" not in image
            container["imagePullPolicy"] = "Always" if is_latest else "IfNotPresent"
        if limits := container["resources"].get("limits"):
            container["resources"]["requests"] = {**limits, **(container["resources"].get("requests") or {})}


def first_status(spec: Document, now: str) -> dict[str, Any]:
    status: dict[str, Any] = {"phase": "Pending", "qosClass": _quality(spec)}
    if spec.get("schedulingGates"):
        message = "Scheduling is blocked due to non-empty scheduling gates"
        gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": message}
        status["conditions"] = [{**gated, "lastTransitionTime": now}]
    return status


def _quality(spec: Document) -> str:
    """By processors and memory alone: what is limited, and asked for in full, is guaranteed."""
    every = [
        {field: _counted((each.get("resources") or {}).get(field) or {}) for field in ("limits", "requests")}
        for each in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    ]
    if not any(each["limits"] or each["requests"] for each in every):
        return "BestEffort"
    both = {"cpu", "memory"}
    full = all(each["limits"].keys() == both and each["limits"] == each["requests"] for each in every)
    return "Guaranteed" if full else "Burstable"


def _counted(amounts: Document) -> dict[str, Any]:
    found = {name: exact(amounts[name]) for name in ("cpu", "memory") if name in amounts}
    return {name: amount for name, amount in found.items() if amount}
