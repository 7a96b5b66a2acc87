"""Removes the fields of a Node that vdev owns by server-side apply, and no others."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..kube.api import Api
from ..kube.objects import MANAGER, NODES
from .ownership import owned, owned_by_others

_STATUS = "status"
_CONDITIONS = "conditions"


@dataclass(frozen=True, slots=True)
class OwnedFields:
    """The labels, extended resources and conditions of a Node that belong to vdev."""

    node: str
    labels: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.labels or self.resources or self.conditions)


async def owned_fields(api: Api, node: str = "") -> tuple[OwnedFields, ...]:
    """The fields of this Node, or of each Node on which vdev owns any. Raises ApiServerError."""
    if node:
        return (_owned_fields(await api.get(NODES, node)),)
    found, _ = await api.list(NODES, keep=_owned_fields)
    return tuple(each for each in found if each)


async def clean(api: Api, fields: OwnedFields) -> None:
    """Remove the fields, by applies without any. Raises ApiServerError."""
    if fields.labels:
        await api.apply(NODES, fields.node, {})
    if fields.resources or fields.conditions:
        await cleared(api, await api.get(NODES, fields.node), {})
        await api.apply(NODES, fields.node, {}, force=True, subresource=_STATUS)


async def cleared(
    api: Api, document: Mapping[str, Any], wanted: Mapping[str, Any], manager: str = MANAGER
) -> Mapping[str, Any]:
    """Remove fields that only the manager owns, in the parts of the status of which it wants nothing; returns the Node.

    An apply would remove such a part as a whole if no other manager owns an item of it. That would remove the capacity
    and conditions with which a kubelet registered the Node, such as Ready: no manager owns these, because the kubelet
    later owns only fields of its conditions. Raises ApiServerError.
    """
    metadata = document["metadata"]
    removed: dict[str, Any] = {}
    for part in ("capacity", "allocatable", _CONDITIONS):
        if wanted.get(part):
            continue
        mine = owned(document, _STATUS, part, manager=manager, subresource=_STATUS)
        others = owned_by_others(document, _STATUS, part, manager=manager, subresource=_STATUS)
        names = sorted(mine - others.keys())
        if names:
            is_list = part == _CONDITIONS
            removed[part] = [{"type": each, "$patch": "delete"} for each in names] if is_list else dict.fromkeys(names)
    if not removed:
        return document
    change = {"metadata": {"uid": metadata["uid"]} if metadata.get("uid") else {}, _STATUS: removed}
    return await api.patch(NODES, metadata["name"], change, subresource=_STATUS, strategic=True)


def _owned_fields(document: Mapping[str, Any]) -> OwnedFields:
    capacity, allocatable, conditions = (
        owned(document, _STATUS, part, subresource=_STATUS) for part in ("capacity", "allocatable", _CONDITIONS)
    )
    return OwnedFields(
        str((document.get("metadata") or {}).get("name")),
        tuple(sorted(owned(document, "metadata", "labels"))),
        tuple(sorted(capacity | allocatable)),
        tuple(sorted(conditions)),
    )
