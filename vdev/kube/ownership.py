"""Which fields of an object a field manager owns, so that its next server-side apply changes or removes them.

Sources: the API's `metadata.managedFields`, and its `fieldsV1` form (structured-merge-diff: `f:` a key, `k:` an item of
a list by its key fields).
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from .api import MANAGER

_APPLY = "Apply"


def owned(document: Mapping[str, Any], *path: str, manager: str = MANAGER, subresource: str = "") -> frozenset[str]:
    """The keys below a path that the manager's applies own; for a list, the keys of its items."""
    fields = _fields(document, manager, subresource, only=_APPLY)
    return frozenset(key for each in fields for key in _keys(each, path))


def written(document: Mapping[str, Any], *path: str, manager: str, subresource: str = "") -> frozenset[str]:
    """The keys below a path that the manager owns, by an apply or by another write."""
    return frozenset(key for each in _fields(document, manager, subresource) for key in _keys(each, path))


def owned_by_others(
    document: Mapping[str, Any], *path: str, manager: str = MANAGER, subresource: str = ""
) -> Mapping[str, str]:
    """The keys below a path that others own, or the manager by another write than an apply; and who owns each.

    A manager that owns only fields of an item in a list, as a kubelet does in its conditions, does not own the item.
    """
    mine = manager, _APPLY, subresource
    return {
        key: str(each.get("manager"))
        for each in (document.get("metadata") or {}).get("managedFields") or ()
        if (each.get("manager"), each.get("operation"), each.get("subresource", "")) != mine
        for key in _keys(each.get("fieldsV1") or {}, path, whole=True)
    }


def _fields(
    document: Mapping[str, Any], manager: str, subresource: str, *, only: str = ""
) -> Iterator[Mapping[str, Any]]:
    for entry in (document.get("metadata") or {}).get("managedFields") or ():
        mine = entry.get("manager") == manager and only in ("", entry.get("operation"))
        if mine and entry.get("subresource", "") == subresource:
            yield entry.get("fieldsV1") or {}


def _keys(fields: Mapping[str, Any], path: tuple[str, ...], *, whole: bool = False) -> Iterator[str]:
    """The keys below a path; with `whole`, without items of lists of which only fields are owned."""
    for step in path:
        found = fields.get(f"f:{step}")
        fields = found if isinstance(found, Mapping) else {}
    for field, below in fields.items():
        kind, _, key = field.partition(":")
        if kind == "f":
            yield key
        elif kind == "k" and (not whole or (isinstance(below, Mapping) and "." in below)):
            yield from _key_values(key)


def _key_values(key: str) -> Iterator[str]:
    try:
        found = json.loads(key)
    except ValueError:
        return
    if isinstance(found, dict):
        yield from map(str, found.values())
