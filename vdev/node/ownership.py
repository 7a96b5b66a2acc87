"""The fields of an object that a field manager owns: its next server-side apply changes or removes them.

Source: `metadata.managedFields`, in the format `fieldsV1` of structured-merge-diff: `f:` is a key, `k:` an item of a
list by its key fields.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ..kube.objects import MANAGER, metadata_of


def owned(
    document: Mapping[str, Any], *path: str, manager: str = MANAGER, subresource: str = "", by_apply: bool = True
) -> frozenset[str]:
    """The keys below a path that the manager owns; for a list, the keys of its items.

    With `by_apply` False, this includes keys that it owns by writes other than an apply.
    """
    mine = (each for each in _fields(document, path) if each.is_of(manager, subresource, by_apply=by_apply))
    return frozenset(each.key for each in mine)


def owned_by_others(
    document: Mapping[str, Any], *path: str, manager: str = MANAGER, subresource: str = ""
) -> Mapping[str, str]:
    """The keys below a path that other managers own, or this one by writes other than an apply; each with its owner.

    A manager that owns only fields of a list item, as a kubelet does in its conditions, does not own the item.
    """
    others = (each for each in _fields(document, path) if not each.is_of(manager, subresource, by_apply=True))
    return {each.key: str(each.entry.get("manager")) for each in others if each.is_whole}


class _Field(NamedTuple):
    key: str
    is_whole: bool
    entry: Mapping[str, Any]  # of managedFields

    def is_of(self, manager: str, subresource: str, *, by_apply: bool) -> bool:
        entry = self.entry
        is_its = entry.get("manager") == manager and (entry.get("subresource") or "") == subresource
        return is_its and (not by_apply or entry.get("operation") == "Apply")


def _fields(document: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[_Field]:
    for entry in metadata_of(document).get("managedFields") or ():
        fields = entry.get("fieldsV1") or {}
        for step in path:
            fields = fields.get(f"f:{step}") or {}
        for field, below in fields.items():
            kind, _, key = field.partition(":")
            if kind == "f":
                yield _Field(key, True, entry)
            elif kind == "k":
                for value in json.loads(key).values():
                    yield _Field(str(value), "." in below, entry)
