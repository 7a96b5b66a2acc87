"""Pods and Nodes as tables, which kubectl asks for and prints."""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .kinds import ApiKind, Document, value_at

_GROUP_VERSION = "meta.k8s.io/v1"
_NONE = "<none>"
_WIDE = 1  # the priority of columns that only `kubectl get --output wide` shows
_UNITS = (("d", 86400), ("h", 3600), ("m", 60))
_Column = tuple[str, int, Callable[[Document], Any]]  # name, priority, and the cell of an object


def form(kind: ApiKind, accept: str, include: str) -> Callable[[Document], Document]:
    """The form in which a client gets objects and lists: unchanged, or as tables with an object in each row."""
    columns = _COLUMNS.get(kind.kind)
    if columns is None or not _wants_table(accept):
        return lambda document: document
    heads = [
        {"name": name, "type": "string", "format": "", "description": name, "priority": priority}
        for name, priority, _ in columns
    ]

    def shown(document: Document) -> Document | None:
        if include == "None":
            return None
        if include == "Object":
            return {**document, "kind": kind.kind, "apiVersion": kind.api_version}
        return {"kind": "PartialObjectMetadata", "apiVersion": _GROUP_VERSION, "metadata": document["metadata"]}

    def table(document: Document) -> Document:
        items = document.get("items", [document])
        rows = [{"cells": [cell(each) for _, _, cell in columns], "object": shown(each)} for each in items]
        about = {"resourceVersion": document["metadata"]["resourceVersion"]}
        return {
            "kind": "Table",
            "apiVersion": _GROUP_VERSION,
            "metadata": about,
            "columnDefinitions": heads,
            "rows": rows,
        }

    return table


def _wants_table(accept: str) -> bool:
    """Whether the client prefers a table, as kubectl does."""
    media_type, *options = accept.partition(",")[0].replace(" ", "").split(";")
    return media_type == "application/json" and {"as=Table", "v=v1", "g=meta.k8s.io"} == set(options)


def age(since: dt.timedelta) -> str:
    """A time in the largest unit of which it has at least two: 90 minutes are `90m`, not `1h`."""
    seconds = max(0, int(since.total_seconds()))
    unit, length = next((row for row in _UNITS if seconds >= 2 * row[1]), ("s", 1))
    return f"{seconds // length}{unit}"


def _age(document: Document) -> str:
    return age(dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(document["metadata"]["creationTimestamp"]))


# --- Pods -------------------------------------------------------------------------------------------------------------


def _statuses(document: Document, *fields: str) -> list[Document]:
    status = document.get("status", {})
    return [each for field in fields for each in status.get(field) or ()]


def _condition(document: Document, name: str) -> Document:
    return next((each for each in _statuses(document, "conditions") if each.get("type") == name), {})


def _ready(pod: Document) -> str:
    sidecars = (each for each in pod["spec"].get("initContainers") or () if each.get("restartPolicy") == "Always")
    names = {each.get("name") for each in (*pod["spec"]["containers"], *sidecars)}
    rows = _statuses(pod, "initContainerStatuses", "containerStatuses")
    return f"{sum(bool(each.get('ready')) for each in rows if each['name'] in names)}/{len(names)}"


def _restarts(pod: Document) -> str:
    rows = _statuses(pod, "initContainerStatuses", "containerStatuses")
    return str(sum(each.get("restartCount", 0) for each in rows))


def _pod_status(pod: Document) -> str:
    """The STATUS of a pod: why it, or its first container that does not run, does not run; else its phase."""
    status = pod.get("status", {})
    phase = str(status.get("phase", "Pending"))
    if pod["metadata"].get("deletionTimestamp") and phase not in ("Succeeded", "Failed"):
        return "Terminating"
    if _condition(pod, "PodScheduled").get("reason") == "SchedulingGated":
        return "SchedulingGated"
    for prefix, field in (("Init:", "initContainerStatuses"), ("", "containerStatuses")):
        for each in _statuses(pod, field):
            state = each.get("state") or {}
            reason = (state.get("terminated") or state.get("waiting") or {}).get("reason", "Completed")
            if reason != "Completed":
                return f"{prefix}{reason}"
    return "Completed" if phase == "Succeeded" else str(status.get("reason") or phase)


# --- Nodes ------------------------------------------------------------------------------------------------------------


def _node_status(node: Document) -> str:
    status = _condition(node, "Ready").get("status")
    shown = "Unknown" if status is None else "Ready" if status == "True" else "NotReady"
    return f"{shown},SchedulingDisabled" if node.get("spec", {}).get("unschedulable") else shown


def _roles(node: Document) -> str:
    labels = node["metadata"].get("labels") or {}
    prefix = "node-role.kubernetes.io/"
    roles = {name.removeprefix(prefix) for name in labels if name.startswith(prefix)}
    return ",".join(sorted(filter(None, roles | {labels.get("kubernetes.io/role", "")}))) or _NONE


_NAME: _Column = ("Name", 0, lambda each: each["metadata"]["name"])
_AGE: _Column = ("Age", 0, _age)
_COLUMNS: Mapping[str, Sequence[_Column]] = {
    "Pod": (
        _NAME,
        ("Ready", 0, _ready),
        ("Status", 0, _pod_status),
        ("Restarts", 0, _restarts),
        _AGE,
        ("IP", _WIDE, lambda pod: value_at(pod, "status.podIP") or _NONE),
        ("Node", _WIDE, lambda pod: value_at(pod, "spec.nodeName") or _NONE),
    ),
    "Node": (
        _NAME,
        ("Status", 0, _node_status),
        ("Roles", 0, _roles),
        _AGE,
        ("Version", 0, lambda node: value_at(node, "status.nodeInfo.kubeletVersion") or ""),
    ),
}
