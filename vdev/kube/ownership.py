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
    mine = manager, _APPLY, subresource
    return frozenset(key for who, key, _ in _owners(document, path) if who == mine)


def written(document: Mapping[str, Any], *path: str, manager: str, subresource: str = "") -> frozenset[str]:
    """The keys below a path that the manager owns, by an apply or by another write."""
    return frozenset(key for who, key, _ in _owners(document, path) if (who[0], who[2]) == (manager, subresource))


def owned_by_others(
    document: Mapping[str, Any], *path: str, manager: str = MANAGER, subresource: str = ""
) -> Mapping[str, str]:
    """The keys below a path that others own, or the manager by another write than an apply; and who owns each.

    A manager that owns only fields of an item in a list, as a kubelet does in its conditions, does not own the item.
    """
    mine = manager, _APPLY, subresource
    return {key: who[0] for who, key, is_whole in _owners(document, path) if is_whole and who != mine}


def _owners(document: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, str, str], str, bool]]:
    """Each owner of something below the path: manager, operation and subresource; the key; whether all of it."""
    for entry in (document.get("metadata") or {}).get("managedFields") or ():
        who = str(entry.get("manager")), str(entry.get("operation")), str(entry.get("subresource") or "")
        fields = entry.get("fieldsV1") or {}
        for step in path:
            found = fields.get(f"f:{step}")
            fields = found if isinstance(found, Mapping) else {}
        for field, below in fields.items():
            kind, _, key = field.partition(":")
            if kind == "f":
                yield who, key, True
            elif kind == "k":
                for value in _key_values(key):
                    yield who, value, isinstance(below, Mapping) and "." in below


def _key_values(key: str) -> list[str]:
    """The values of the key fields of an item."""
    try:
        return [str(value) for value in json.loads(key).values()]
    except (ValueError, AttributeError):
        return []
