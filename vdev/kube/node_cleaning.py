"""Taking away everything that vdev's server-side applies left on a Node, and nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .api import MANAGER, Api
from .kinds import NODES
from .ownership import owned, owned_by_others

_STATUS = "status"
_CONDITIONS = "conditions"


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
    found = await api.list(NODES, keep=_ours)
    return tuple(ours for ours in found.objects if ours)


async def ours_of(api: Api, node: str) -> Ours:
    """What this Node has of ours. Raises ApiServerError."""
    return _ours(await api.get(NODES, node))


async def clean(api: Api, ours: Ours) -> None:
    """Take it away: by applies that want nothing any more. Raises ApiServerError."""
    if ours.labels:
        await api.apply(NODES, ours.node, {})
    if ours.resources or ours.conditions:
        left = _ours(await cleared(api, await api.get(NODES, ours.node), {}))
        if left.resources or left.conditions:
            await api.apply(NODES, ours.node, {}, force=True, subresource=_STATUS)


async def cleared(
    api: Api, document: Mapping[str, Any], wanted: Mapping[str, Any], manager: str = MANAGER
) -> Mapping[str, Any]:
    """The Node, without what only the manager owns in parts of the status of which it wants nothing any more.

    An apply would take away such a part whole if nobody owns an item of it. That would take the capacity and the
    conditions with which a kubelet registers a Node, Ready among them: nobody owns these, and the kubelet later owns
    no more than fields of its conditions. Raises ApiServerError.
    """
    metadata = document["metadata"]
    gone: dict[str, Any] = {}
    for part in ("capacity", "allocatable", _CONDITIONS):
        if wanted.get(part):
            continue
        mine = owned(document, _STATUS, part, manager=manager, subresource=_STATUS)
        others = owned_by_others(document, _STATUS, part, manager=manager, subresource=_STATUS)
        names = sorted(mine - others.keys())
        if names:
            is_list = part == _CONDITIONS
            gone[part] = [{"type": each, "$patch": "delete"} for each in names] if is_list else dict.fromkeys(names)
    if not gone:
        return document
    change = {"metadata": {"uid": metadata["uid"]} if metadata.get("uid") else {}, _STATUS: gone}
    return await api.patch(NODES, metadata["name"], change, subresource=_STATUS, strategic=True)


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
