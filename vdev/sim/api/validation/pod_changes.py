"""What Kubernetes writes into new pods, and what may be changed of a pod that is there."""

from collections.abc import Iterator, Mapping
from typing import Any

from ...objects.amounts import exact
from ...objects.plain_objects import copied

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
_ALLOWED = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_FREE = ("activeDeadlineSeconds", "tolerations", "schedulingGates")


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
    """The status of a new pod."""
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


def causes(old: Document, new: Document) -> Iterator[tuple[str, str]]:
    """What is wrong with a change: field and message each."""
    before, after = old.get("spec") or {}, new.get("spec") or {}
    there = [each.get("name") for each in before.get("schedulingGates") or ()]
    more = [each.get("name") for each in after.get("schedulingGates") or () if each.get("name") not in there]
    for index, name in enumerate(more):
        why = f"only deletion is allowed, but found new scheduling gate '{name}'"
        yield f"spec.schedulingGates[{index}].name", f"Forbidden: {why}"
    kept = [{**each, "tolerationSeconds": None} for each in after.get("tolerations") or ()]
    if any({**each, "tolerationSeconds": None} not in kept for each in before.get("tolerations") or ()):
        yield "spec.tolerations", "Forbidden: existing toleration can not be modified except its tolerationSeconds"
    if _fixed(before, after, gated=bool(there)) != _fixed(after, after, gated=bool(there)):
        yield "spec", f"Forbidden: {_ALLOWED}"


def _fixed(spec: Document, after: Document, *, gated: bool) -> dict[str, Any]:
    """A spec without what may change; a pod behind a gate may still be given to fewer nodes."""
    found = {name: value for name, value in spec.items() if name not in _FREE}
    for field in ("containers", "initContainers"):
        if field in found:
            found[field] = [{**each, "image": ""} for each in found[field]]
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0 and after.get("terminationGracePeriodSeconds") == 1:
        found["terminationGracePeriodSeconds"] = 1
    if gated:
        wider = (spec.get("nodeSelector") or {}).items() <= (after.get("nodeSelector") or {}).items()
        found["nodeSelector"] = after.get("nodeSelector") or {} if wider else spec.get("nodeSelector")
        found["affinity"] = after.get("affinity") if not spec.get("affinity") else spec["affinity"]
    return found
