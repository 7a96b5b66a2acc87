"""The managers that own the fields of an object: server-side apply for JSON, as the API server does it.

The API server's library is structured-merge-diff 6.3.2. A path is a tuple of `f:name` (a member of a map) and `k:{…}`
(an item of a list with keys). An item of a list with keys has an owner, and so has each of its fields. A list without
keys is owned as a whole.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeAlias

from .patches import LIST_KEYS, merged_by_keys

Path: TypeAlias = tuple[str, ...]
Manager: TypeAlias = tuple[str, str, str]  # name, operation (Apply or Update) and subresource
Owners: TypeAlias = Mapping[Manager, frozenset[Path]]

_MAPS = frozenset({"labels", "annotations", "capacity", "allocatable", "limits", "requests", "nodeSelector", "data"})
"""Fields whose members are keys that a user chooses, not fields of a type."""
UNOWNED = {  # fields that the server itself writes
    ("f:metadata", f"f:{name}")
    for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")
} | {("f:apiVersion",), ("f:kind",), ("f:metadata",)}


def _keys(path: Path) -> tuple[str, ...] | None:
    return LIST_KEYS.get(tuple(part[2:] for part in path))


def _item(keys: Iterable[str], item: Mapping[str, Any]) -> str:
    return "k:" + json.dumps({key: item[key] for key in keys if key in item}, separators=(",", ":"))


def fields(value: Any, path: Path = ()) -> dict[Path, Any]:
    """The fields of a document by path, with their values; the value of a list item itself is None."""
    if isinstance(value, dict) and value:
        return {at: leaf for name, each in value.items() for at, leaf in fields(each, (*path, f"f:{name}")).items()}
    if isinstance(value, list) and (keys := _keys(path)):  # nobody owns an empty list
        found: dict[Path, Any] = {}
        for each in value:
            at = (*path, _item(keys, each))
            found[at] = None
            found |= fields(each, at)
        return found
    return {path: value} if path else {}


def owned(document: Mapping[str, Any]) -> dict[Path, Any]:
    """The fields of a document that a manager can own."""
    return {path: value for path, value in fields(document).items() if path not in UNOWNED}


def shown(path: Path) -> str:
    """A path as the API server writes it: `.status.conditions[type="Ready"].status`."""
    text = ""
    for part in path:
        if part.startswith("f:"):
            text += f".{part[2:]}"
        else:
            pairs = json.loads(part[2:])
            text += "[" + ",".join(f"{key}={json.dumps(value)}" for key, value in pairs.items()) + "]"
    return text


def without(document: Mapping[str, Any], paths: Iterable[Path]) -> dict[str, Any]:
    """A document without these fields, and without maps and lists that become empty."""
    return _without(document, frozenset(paths), ()) or {}


_GONE = object()


def _without(value: Any, paths: Collection[Path], path: Path) -> Any:
    if isinstance(value, dict) and value:
        kept: dict[str, Any] = {}
        for name, each in value.items():
            at = (*path, f"f:{name}")
            if at not in paths and (rest := _without(each, paths, at)) is not _GONE:
                kept[name] = rest
        return kept or (_GONE if path else {})
    if isinstance(value, list) and value and (keys := _keys(path)):
        places = [(each, (*path, _item(keys, each))) for each in value]
        items = [_without(each, paths, at) for each, at in places if at not in paths]
        return [each for each in items if each is not _GONE] or _GONE
    return value


def encoded(paths: Iterable[Path]) -> dict[str, Any]:
    """The paths in the form of `fieldsV1`."""
    tree: dict[str, Any] = {}
    for path in sorted(paths):
        at = tree
        for part in path:
            at = at.setdefault(part, {})
        if path[-1].startswith("k:"):
            at["."] = {}
    return tree


def updated(owners: Owners, manager: Manager, old: Mapping[str, Any], new: Mapping[str, Any]) -> Owners:
    """The owners after an update: the writer also owns the changed fields, and nobody owns a removed field."""
    changed, removed = _compared(old, new)
    return _taken(owners, manager, owners.get(manager, frozenset()) | changed, changed, removed)


def applied(
    owners: Owners, manager: Manager, live: Mapping[str, Any], document: Mapping[str, Any], *, force: bool
) -> tuple[dict[str, Any], Owners, list[tuple[Manager, Path]]]:
    """The object and its owners after an apply, and the conflicts. With conflicts, the caller must not store it."""
    wanted = frozenset(owned(document))
    before = owners.get(manager, frozenset())
    new = merged_by_keys(live, document)
    others = {path for each, paths in owners.items() if each != manager for path in paths}
    kept = _in_owned_items(wanted | others)
    # A field that this manager no longer applies is removed, unless another manager owns it or something below it.
    dropped = {path for path in before - wanted if path not in others and not _is_above(path, kept)}
    dropped |= {path for path in _parents(before) if not _is_above(path, kept)}
    new = without(new, dropped)
    changed, removed = _compared(live, new)
    clashes = [
        (other, path) for other, paths in sorted(owners.items()) if other != manager for path in sorted(paths & changed)
    ]
    return new, _taken(owners, manager, wanted, changed, removed), [] if force else clashes


def _taken(
    owners: Owners, manager: Manager, mine: frozenset[Path], changed: frozenset[Path], removed: frozenset[Path]
) -> Owners:
    """Give fields to a manager, and take changed and removed fields from all others."""
    found = {other: paths - changed - removed for other, paths in owners.items()} | {manager: mine - removed}
    return {each: paths for each, paths in found.items() if paths}


def entries(owners: Owners, version: str) -> list[dict[str, Any]]:
    """The owners in the form of `metadata.managedFields`."""
    return [
        {
            "manager": name,
            "operation": operation,
            "apiVersion": version,
            "fieldsType": "FieldsV1",
            "fieldsV1": encoded(paths),
            **({"subresource": subresource} if subresource else {}),
        }
        for (name, operation, subresource), paths in sorted(owners.items())
    ]


def _in_owned_items(paths: Collection[Path]) -> set[Path]:
    """The paths without those in list items that nobody owns: they do not keep such an item.

    A kubelet, for example, owns fields of the conditions with which it registered its Node, but not these conditions
    (source: structured-merge-diff, prune).
    """

    def is_in_owned(path: Path) -> bool:
        return all(path[: at + 1] in paths for at, part in enumerate(path) if part.startswith("k:"))

    return set(filter(is_in_owned, paths))


def _is_above(path: Path, others: Iterable[Path]) -> bool:
    """Whether one of the others is this path or below it."""
    return any(other[: len(path)] == path for other in others)


def _parents(paths: Iterable[Path]) -> set[Path]:
    """The fields that contain these paths.

    If nobody owns anything in such a field any more, all of it is removed, also what nobody ever owned, such as the
    capacity with which a Node was created (source: structured-merge-diff, prune).
    """
    above = {path[:length] for path in paths for length in range(1, len(path))}
    return {path for path in above if path[-1].startswith("f:") and not _is_user_key(path)} - UNOWNED


def _is_user_key(path: Path) -> bool:
    return len(path) > 1 and path[-2][2:] in _MAPS


def _compared(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[frozenset[Path], frozenset[Path]]:
    """The paths whose values are new or different, and the removed paths."""
    before, after = owned(old), owned(new)
    changed = frozenset(path for path, value in after.items() if path not in before or before[path] != value)
    return changed, frozenset(before.keys() - after.keys())
