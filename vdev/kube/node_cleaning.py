"""Taking away everything that vdev's server-side applies left on a Node, and nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .api import Api
from .kinds import NODES
from .ownership import owned

_STATUS = "status"


@dataclass(frozen=True, slots=True)
class Ours:
    """What of a Node belongs to vdev: labels, extended resources, types of conditions."""

    node: str
    labels: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.labels or self.resources or self.conditions)


async def nodes_with_ours(api: Api) -> tuple[Ours, ...]:
    """All Nodes that have anything of ours. Raises ApiServerError."""
    found = await api.list(NODES)
    return tuple(ours for ours in map(_ours, found.objects) if ours)


async def ours_of(api: Api, node: str) -> Ours:
    """What this Node has of ours. Raises ApiServerError."""
    return _ours(await api.get(NODES, node))


async def clean(api: Api, ours: Ours) -> None:
    """Take it away: by applies that want nothing any more. Raises ApiServerError."""
    if ours.labels:
        await api.apply(NODES, ours.node, {})
    if ours.resources or ours.conditions:
        await api.apply(NODES, ours.node, {}, force=True, subresource=_STATUS)


def _ours(document: Mapping[str, Any]) -> Ours:
    capacity, allocatable, conditions = (
        owned(document, _STATUS, part, subresource=_STATUS) for part in ("capacity", "allocatable", "conditions")
    )
    return Ours(
        str((document.get("metadata") or {}).get("name")),
        tuple(sorted(owned(document, "metadata", "labels"))),
        tuple(sorted(capacity | allocatable)),
        tuple(sorted(conditions)),
    )
