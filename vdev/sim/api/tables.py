"""Renders Pods and Nodes as the tables that kubectl requests and prints."""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .kinds import ApiKind, Document, value_at

_WIDE = 1  # the priority of columns that only `kubectl get --output wide` shows
_UNITS = (("d", 86400), ("h", 3600), ("m", 60))
_Column = tuple[str, int, Callable[[Document], Any]]  # name, priority, and the cell of an object


def form(kind: ApiKind, accept: str) -> Callable[[Document], Document]:
    """Return a function that converts a response to the form that the client accepts: unchanged, or a table."""
    columns = _COLUMNS.get(kind.kind)
    if columns is None or not _wants_table(accept):
        return lambda document: document
    heads = [
        {"name": name, "type": "string", "format": "", "description": name, "priority": priority}
        for name, priority, _ in columns
    ]

    def table(document: Document) -> Document:
        items = document.get("items", [document])
        named = {"kind": kind.kind, "apiVersion": kind.api_version}
        rows = [{"cells": [cell(each) for _, _, cell in columns], "object": {**each, **named}} for each in items]
        about = {"resourceVersion": document["metadata"]["resourceVersion"]}
        return {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": about,
            "columnDefinitions": heads,
            "rows": rows,
        }

    return table


def _wants_table(accept: str) -> bool:
    """Whether the client prefers a table, like kubectl."""
    media_type, *options = accept.partition(",")[0].replace(" ", "").split(";")
    return media_type == "application/json" and {"as=Table", "v=v1", "g=meta.k8s.io"} == set(options)


def age(since: dt.timedelta) -> str:
    """Format a duration in the largest unit that gives at least 2: 90 minutes are `90m`, not `1h`."""
    seconds = max(0, int(since.total_seconds()))
    unit, length = next((row for row in _UNITS if seconds >= 2 * row[1]), ("s", 1))
    return f"{seconds // length}{unit}"


def _age(document: Document) -> str:
    return age(dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(document["metadata"]["creationTimestamp"]))


# --- Pods -------------------------------------------------------------------------------------------------------------


def _statuses(document: Document, *fields: str) -> list[Document]:
    status = document.get("status", {})
    return [each for field in fields for each in status.get(field) or ()]


def _ready(pod: Document) -> str:
    sidecars = (each for each in pod["spec"].get("initContainers") or () if each.get("restartPolicy") == "Always")
    names = {each.get("name") for each in (*pod["spec"]["containers"], *sidecars)}
    rows = _statuses(pod, "initContainerStatuses", "containerStatuses")
    return f"{sum(bool(each.get('ready')) for each in rows if each['name'] in names)}/{len(names)}"


def _restarts(pod: Document) -> str:
    rows = _statuses(pod, "initContainerStatuses", "containerStatuses")
    return str(sum(each.get("restartCount", 0) for each in rows))


def _pod_status(pod: Document) -> str:
    """Return the STATUS column of a pod: the reason why it or one of its containers does not run, else its phase."""
    status = pod.get("status", {})
    phase = str(status.get("phase", "Pending"))
    if pod["metadata"].get("deletionTimestamp") and phase not in ("Succeeded", "Failed"):
        return "Terminating"
    for prefix, field in (("Init:", "initContainerStatuses"), ("", "containerStatuses")):
        for each in _statuses(pod, field):
            state = each.get("state") or {}
            reason = (state.get("terminated") or state.get("waiting") or {}).get("reason", "Completed")
            if reason != "Completed":
                return f"{prefix}{reason}"
    if pod["spec"].get("schedulingGates"):
        return "SchedulingGated"
    return "Completed" if phase == "Succeeded" else str(status.get("reason") or phase)


# --- Nodes ------------------------------------------------------------------------------------------------------------


def _node_status(node: Document) -> str:
    statuses = [each["status"] for each in _statuses(node, "conditions") if each["type"] == "Ready"]
    shown = "Unknown" if not statuses else "Ready" if statuses == ["True"] else "NotReady"
    return f"{shown},SchedulingDisabled" if node.get("spec", {}).get("unschedulable") else shown


_NAME: _Column = ("Name", 0, lambda each: each["metadata"]["name"])
_AGE: _Column = ("Age", 0, _age)
_COLUMNS: Mapping[str, Sequence[_Column]] = {
    "Pod": (
        _NAME,
        ("Ready", 0, _ready),
        ("Status", 0, _pod_status),
        ("Restarts", 0, _restarts),
        _AGE,
        ("Node", _WIDE, lambda pod: value_at(pod, "spec.nodeName") or "<none>"),
    ),
    "Node": (
        _NAME,
        ("Status", 0, _node_status),
        _AGE,
        ("Version", 0, lambda node: value_at(node, "status.nodeInfo.kubeletVersion") or ""),
    ),
}
