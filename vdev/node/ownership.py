"""The fields of an object that a field manager owns, and the removal of those that vdev owns on a Node.

The next server-side apply of a manager changes or removes its fields.
Source: `metadata.managedFields`, in the format `fieldsV1` of structured-merge-diff: `f:` is a key, `k:` an item of a
list by its key fields.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..kube.api import Api
from ..kube.objects import MANAGER, NODES, metadata_of

_STATUS = "status"


def owned(document: Mapping[str, Any], *path: str, manager: str = MANAGER) -> frozenset[str]:
    """The keys below a path that the manager owns; for a list, the keys of its items."""
    entries = metadata_of(document).get("managedFields") or ()
    return frozenset(key for entry in entries if _is_of(entry, manager, path) for key, _ in _keys(entry, path))


def owned_by_others(document: Mapping[str, Any], *path: str) -> Mapping[str, str]:
    """The keys below a path that other managers than vdev own, each with its owner.

    A manager that owns only fields of a list item, as a kubelet does in its conditions, does not own the item.
    """
    entries = metadata_of(document).get("managedFields") or ()
    others = (entry for entry in entries if not _is_of(entry, MANAGER, path))
    return {key: str(entry.get("manager")) for entry in others for key, is_whole in _keys(entry, path) if is_whole}


def _is_of(entry: Mapping[str, Any], manager: str, path: tuple[str, ...]) -> bool:
    """Whether an entry has the fields that this manager wrote in the subresource of the path."""
    subresource = _STATUS if path[0] == _STATUS else ""
    return entry.get("manager") == manager and (entry.get("subresource") or "") == subresource


def _keys(entry: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, bool]]:
    """The keys below the path in an entry, and whether the entry owns each one as a whole."""
    fields = entry.get("fieldsV1") or {}
    for step in path:
        fields = fields.get(f"f:{step}") or {}
    for field, below in fields.items():
        kind, _, key = field.partition(":")
        if kind == "f":
            yield key, True
        elif kind == "k":
            for value in json.loads(key).values():
                yield str(value), "." in below


# --- the fields of a Node ---------------------------------------------------------------------------------------------

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
    """Remove the fields by applying documents without them. Raises ApiServerError."""
    if fields.labels:
        await api.apply(NODES, fields.node, {})
    if fields.resources or fields.conditions:
        await cleared(api, await api.get(NODES, fields.node), {})
        await api.apply(NODES, fields.node, {}, force=True, subresource=_STATUS)


async def cleared(api: Api, document: Mapping[str, Any], wanted: Mapping[str, Any]) -> Mapping[str, Any]:
    """Remove fields that only vdev owns, from each part of the status that `wanted` lacks; returns the Node.

    An apply would remove such a part as a whole if no other manager owns an item of it. That would remove the capacity
    and conditions with which a kubelet registered the Node, such as Ready: no manager owns these, because the kubelet
    later owns only fields of its conditions. Raises ApiServerError.
    """
    metadata = document["metadata"]
    removed: dict[str, Any] = {}
    for part in ("capacity", "allocatable", _CONDITIONS):
        if wanted.get(part):
            continue
        names = sorted(owned(document, _STATUS, part) - owned_by_others(document, _STATUS, part).keys())
        if names:
            is_list = part == _CONDITIONS
            removed[part] = [{"type": each, "$patch": "delete"} for each in names] if is_list else dict.fromkeys(names)
    if not removed:
        return document
    change = {"metadata": {"uid": metadata["uid"]} if metadata.get("uid") else {}, _STATUS: removed}
    return await api.patch(NODES, metadata["name"], change, subresource=_STATUS)


def _owned_fields(document: Mapping[str, Any]) -> OwnedFields:
    return OwnedFields(
        str(metadata_of(document).get("name")),
        tuple(sorted(owned(document, "metadata", "labels"))),
        tuple(sorted(owned(document, _STATUS, "capacity") | owned(document, _STATUS, "allocatable"))),
        tuple(sorted(owned(document, _STATUS, _CONDITIONS))),
    )
