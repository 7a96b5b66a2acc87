"""Values as JSON documents: the shapes that `--output json` and the status promise."""

from typing import Any

from .device import Slot, base_id
from .problem import Problem


def problem_document(problem: Problem) -> dict[str, str]:
    """A problem as JSON."""
    return {"severity": problem.severity, "where": problem.where, "message": problem.message, "hint": problem.hint}


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
