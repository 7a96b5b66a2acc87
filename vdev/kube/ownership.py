"""Finds the fields of an object that a field manager owns: its next server-side apply changes or removes them.

Source: `metadata.managedFields`, in the format `fieldsV1` of structured-merge-diff: `f:` is a key, `k:` an item of a
list by its key fields.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from .api import MANAGER
from .objects import metadata_of


def owned(
    document: Mapping[str, Any], *path: str, manager: str = MANAGER, subresource: str = "", by_apply: bool = True
) -> frozenset[str]:
    """The keys below a path that the manager owns; for a list, the keys of its items.

    With `by_apply` False, this includes keys that it owns by writes other than an apply.
    """
    mine = (entry for entry in _entries(document) if _is_of(entry, manager, subresource, by_apply=by_apply))
    return frozenset(key for entry in mine for key, _ in _keys(entry, path))


def owned_by_others(
    document: Mapping[str, Any], *path: str, manager: str = MANAGER, subresource: str = ""
) -> Mapping[str, str]:
    """The keys below a path that other managers own, or this one by writes other than an apply; each with its owner.

    A manager that owns only fields of a list item, as a kubelet does in its conditions, does not own the item.
    """
    others = (entry for entry in _entries(document) if not _is_of(entry, manager, subresource, by_apply=True))
    return {key: str(entry.get("manager")) for entry in others for key, is_whole in _keys(entry, path) if is_whole}


def _entries(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return metadata_of(document).get("managedFields") or []


def _is_of(entry: Mapping[str, Any], manager: str, subresource: str, *, by_apply: bool) -> bool:
    """Whether an entry lists fields that this manager wrote; with `by_apply`, only those of an apply."""
    is_its = entry.get("manager") == manager and (entry.get("subresource") or "") == subresource
    return is_its and (not by_apply or entry.get("operation") == "Apply")


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
