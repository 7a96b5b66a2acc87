"""Who owns which field of an object: server-side apply as the API server does it (structured-merge-diff), for JSON.

A set of fields holds paths: tuples of `f:name` (a member of a map) and `k:{…}` (the item of a list that has keys). Of a
list without keys only the whole is owned. An item of a list with keys is owned itself as well, which is its path.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from copy import deepcopy
from typing import Any, TypeAlias

Path: TypeAlias = tuple[str, ...]
Manager: TypeAlias = tuple[str, str, str]  # name, operation (Apply or Update) and subresource
Owners: TypeAlias = Mapping[Manager, frozenset[Path]]

# The keys of lists whose items are merged; every other list is one value.
LIST_KEYS: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("metadata", "ownerReferences"): ("uid",),
    ("status", "conditions"): ("type",),
    ("status", "addresses"): ("type",),
    ("status", "devices"): ("driver", "device", "pool", "shareID"),  # of a ResourceClaim
    ("status", "reservedFor"): ("uid",),
    ("spec", "containers"): ("name",),
}
_MAPS = frozenset({"labels", "annotations", "capacity", "allocatable", "limits", "requests", "nodeSelector", "data"})
"""Fields whose members are keys that anybody may choose, and no fields of a type."""
UNOWNED = {  # of metadata, what the server itself keeps
    ("f:metadata", f"f:{name}")
    for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")
} | {("f:apiVersion",), ("f:kind",), ("f:metadata",)}


def _keys(path: Path) -> tuple[str, ...] | None:
    return LIST_KEYS.get(tuple(part[2:] for part in path))


def _item(keys: Iterable[str], item: Mapping[str, Any]) -> str:
    return "k:" + json.dumps({key: item[key] for key in keys if key in item}, separators=(",", ":"))


def fields(value: Any, path: Path = ()) -> dict[Path, Any]:
    """The fields of a document, by path; each with its value, or for an item of a list None."""
    if isinstance(value, dict) and value:
        return {at: leaf for name, each in value.items() for at, leaf in fields(each, (*path, f"f:{name}")).items()}
    if isinstance(value, list) and (keys := _keys(path)):  # an empty one has nothing that anybody could own
        found: dict[Path, Any] = {}
        for each in value:
            at = (*path, _item(keys, each))
            found[at] = None
            found |= fields(each, at)
        return found
    return {path: value} if path else {}


def owned(document: Mapping[str, Any]) -> dict[Path, Any]:
    """The fields of a document that somebody can own."""
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


def merged(live: Any, applied: Any, path: Path = ()) -> Any:
    """A document with another one merged into it as an apply does it."""
    if isinstance(live, dict) and isinstance(applied, dict):
        found = dict(live)
        for name, value in applied.items():
            found[name] = merged(live[name], value, (*path, f"f:{name}")) if name in live else deepcopy(value)
        return found
    keys = _keys(path)
    if isinstance(live, list) and isinstance(applied, list) and keys:
        found = {_item(keys, each): each for each in live}
        for each in applied:
            name = _item(keys, each)
            found[name] = merged(found[name], each, (*path, name)) if name in found else deepcopy(each)
        return list(found.values())
    return deepcopy(applied)


def without(document: Mapping[str, Any], paths: Iterable[Path]) -> dict[str, Any]:
    """A document without those fields; a map or list that becomes empty goes with them."""
    return _without(document, frozenset(paths), ()) or {}


_GONE = object()


def _without(value: Any, paths: Collection[Path], path: Path) -> Any:
    if isinstance(value, dict) and value:
        kept: dict[str, Any] = {}
        for name, each in value.items():
            at = (*path, f"f:{name}")
            found = None if each is None and at not in paths else _GONE if at in paths else _without(each, paths, at)
            if found is not _GONE:
                kept[name] = found
        return kept or (_GONE if path else {})
    if isinstance(value, list) and value and (keys := _keys(path)):
        places = [(each, (*path, _item(keys, each))) for each in value]
        items = [_without(each, paths, at) for each, at in places if at not in paths]
        return [each for each in items if each is not _GONE] or _GONE
    return value


def encoded(paths: Iterable[Path]) -> dict[str, Any]:
    """As `fieldsV1` has them."""
    tree: dict[str, Any] = {}
    for path in sorted(paths):
        at = tree
        for part in path:
            at = at.setdefault(part, {})
        if path[-1].startswith("k:"):
            at["."] = {}
    return tree


def updated(owners: Owners, manager: Manager, old: Mapping[str, Any], new: Mapping[str, Any]) -> Owners:
    """The owners after an update: the writer owns what changed as well, and nobody owns what is gone."""
    changed, removed = _compared(old, new)
    return _taken(owners, manager, owners.get(manager, frozenset()) | changed, changed, removed)


def applied(
    owners: Owners, manager: Manager, live: Mapping[str, Any], document: Mapping[str, Any], *, force: bool
) -> tuple[dict[str, Any], Owners, list[tuple[Manager, Path]]]:
    """The object and its owners after an apply, and the conflicts: (manager, path). With conflicts nothing is to be
    stored.
    """
    wanted = frozenset(owned(document))
    before = owners.get(manager, frozenset())
    new = merged(live, document)
    others = {path for each, paths in owners.items() if each != manager for path in paths}
    kept = _in_owned_items(wanted | others)
    dropped = {path for path in before - wanted if path not in others and not _above(path, kept)}
    dropped |= {path for path in _fields_of(before) if not _above(path, kept)}
    new = without(new, dropped)
    changed, removed = _compared(live, new)
    clashes = [
        (other, path) for other, paths in sorted(owners.items()) if other != manager for path in sorted(paths & changed)
    ]
    return new, _taken(owners, manager, wanted, changed, removed), [] if force else clashes


def _taken(
    owners: Owners, manager: Manager, mine: frozenset[Path], changed: frozenset[Path], removed: frozenset[Path]
) -> Owners:
    """Give fields to a manager, and those that changed or are gone to no other one."""
    found = {other: paths - changed - removed for other, paths in owners.items()} | {manager: mine - removed}
    return {each: paths for each, paths in found.items() if paths}


def entries(owners: Owners, version: str) -> list[dict[str, Any]]:
    """As `metadata.managedFields` has them."""
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
    """The paths without those in an item of a list that nobody owns itself, which keep it from nothing: a kubelet
    owns fields of the conditions that it registered its Node with (source: structured-merge-diff 6.3.2, prune).
    """

    def is_in_owned(path: Path) -> bool:
        return all(path[: at + 1] in paths for at, part in enumerate(path) if part.startswith("k:"))

    return set(filter(is_in_owned, paths))


def _above(path: Path, others: Iterable[Path]) -> bool:
    """Whether something that is owned is below an item of a list, or below what was an empty map; then it stays."""
    return any(other[: len(path)] == path for other in others)


def _fields_of(paths: Iterable[Path]) -> set[Path]:
    """The fields of a type in which these are: one in which nobody owns anything any more goes whole, with what nobody
    ever owned, such as the capacity of a Node that was made with it (source: structured-merge-diff, prune).
    """
    above = {path[:length] for path in paths for length in range(1, len(path))}
    return {path for path in above if path[-1].startswith("f:") and not _is_key(path)} - UNOWNED


def _is_key(path: Path) -> bool:
    return len(path) > 1 and path[-2][2:] in _MAPS


def _compared(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[frozenset[Path], frozenset[Path]]:
    """The paths whose values are new or others, and those that are gone."""
    before, after = owned(old), owned(new)
    changed = frozenset(path for path, value in after.items() if path not in before or before[path] != value)
    return changed, frozenset(before.keys() - after.keys())
