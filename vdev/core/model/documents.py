"""Values as JSON documents: the shapes that `--output json` and the status promise."""

from typing import Any

from .device import Slot, base_id
from .place import show
from .problem import Problem


def problem_document(problem: Problem) -> dict[str, str | int | None]:
    """A problem as JSON; `file`, `line`, `column` and `path` are null for one without a place in a file."""
    place = problem.place
    return {
        "severity": problem.severity.value,
        "where": problem.where,
        "file": place.file if place else None,
        "line": (place.line or None) if place else None,
        "column": (place.column or None) if place else None,
        "path": show(problem.path) if place else None,
        "message": problem.message,
        "hint": problem.hint,
    }


def device_document(slot: Slot) -> dict[str, Any]:
    """A slot as JSON; `replicaOf` and `profile` are null where they do not apply."""
    device = slot.device
    return {
        "id": slot.id,
        "health": "Healthy" if slot.health.healthy else "Unhealthy",
        "index": device.ordinal,
        "numa": list(device.raw.topology),
        "paths": list(device.raw.paths),
        "replicaOf": None if slot.replica is None else base_id(slot.id),
        "profile": device.profile or None,
    }
