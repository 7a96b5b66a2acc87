"""Renders Pods and Nodes as the tables that kubectl requests and prints."""

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any

from .kinds import ApiKind, Document, value_at

_UNITS = (("d", 86400), ("h", 3600), ("m", 60))


def form(kind: ApiKind, accept: str) -> Callable[[Document], Document]:
    """Return a function that converts a response to the form that the client accepts: unchanged, or a table."""
    columns = _COLUMNS.get(kind.kind)
    if columns is None or not _wants_table(accept):
        return lambda document: document
    heads = [{"name": name, "type": "string", "format": "", "description": name, "priority": 0} for name in columns]

    def table(document: Document) -> Document:
        items = document.get("items", [document])
        named = {"kind": kind.kind, "apiVersion": kind.api_version}
        return {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": {"resourceVersion": document["metadata"]["resourceVersion"]},
            "columnDefinitions": heads,
            "rows": [{"cells": [c(each) for c in columns.values()], "object": {**each, **named}} for each in items],
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


def _name(document: Document) -> str:
    return str(document["metadata"]["name"])


def _age(document: Document) -> str:
    return age(dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(document["metadata"]["creationTimestamp"]))


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


_COLUMNS: Mapping[str, Mapping[str, Callable[[Document], Any]]] = {
    "Pod": {"Name": _name, "Status": _pod_status, "Age": _age},
    "Node": {"Name": _name, "Status": _node_status, "Age": _age},
}
