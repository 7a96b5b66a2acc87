"""Renders Pods and Nodes as the tables that kubectl requests and prints."""

import datetime as dt
from collections.abc import Callable, Mapping

from .kinds import ApiKind, Document, value_at

_UNITS = (("d", 86400), ("h", 3600), ("m", 60))
_COLUMNS = [{"name": name, "type": "string"} for name in ("Name", "Status", "Age")]


def form(kind: ApiKind, accept: str) -> Callable[[Document], Document]:
    """Return a function that converts a response to the form that the client prefers: unchanged, or a table."""
    status = _STATUS.get(kind.kind)
    if status is None or "as=Table" not in accept.partition(",")[0]:
        return lambda document: document

    def row(document: Document) -> Document:
        metadata = document["metadata"]
        lifetime = dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(metadata["creationTimestamp"])
        return {
            "cells": [metadata["name"], status(document), age(lifetime)],
            "object": {**document, "kind": kind.kind, "apiVersion": kind.api_version},
        }

    def table(document: Document) -> Document:
        return {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": {"resourceVersion": document["metadata"]["resourceVersion"]},
            "columnDefinitions": _COLUMNS,
            "rows": [row(each) for each in document.get("items", [document])],
        }

    return table


def age(since: dt.timedelta) -> str:
    """Format a duration in the largest unit that gives at least 2: 90 minutes are `90m`, not `1h`."""
    seconds = max(0, int(since.total_seconds()))
    unit, length = next((row for row in _UNITS if seconds >= 2 * row[1]), ("s", 1))
    return f"{seconds // length}{unit}"


def _pod_status(pod: Document) -> str:
    """Return the reason why a pod or one of its containers does not run, else its phase."""
    status = pod["status"]
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for each in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        state = each.get("state") or {}
        reason = (state.get("terminated") or state.get("waiting") or {}).get("reason", "Completed")
        if reason != "Completed":
            return str(reason)
    if pod["spec"].get("schedulingGates"):
        return "SchedulingGated"
    return str(status.get("reason") or status.get("phase", "Pending"))


def _node_status(node: Document) -> str:
    conditions = value_at(node, "status.conditions") or ()
    ready = next((each["status"] for each in conditions if each["type"] == "Ready"), None)
    shown = "Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"
    return f"{shown},SchedulingDisabled" if value_at(node, "spec.unschedulable") else shown


_STATUS: Mapping[str, Callable[[Document], str]] = {"Pod": _pod_status, "Node": _node_status}
