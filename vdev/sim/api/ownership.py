"""Server-side apply for JSON: the field managers that own the fields of an object.

It follows the API server's library, structured-merge-diff 6.3.2. A path is a tuple of `f:name` (a member of a map) and
`k:{…}` (an item of a list with keys). Such an item has owners, and so has each of its fields. A list without keys is
owned as a whole.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeAlias

from .kinds import Refused
from .patches import LIST_KEYS, ONE_VALUE, merged

Path: TypeAlias = tuple[str, ...]
Manager: TypeAlias = tuple[str, str, str]  # name, operation (Apply or Update) and subresource
Owners: TypeAlias = Mapping[Manager, frozenset[Path]]

SERVER_FIELDS = {  # of the metadata, which only the server writes
    *("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "selfLink", "managedFields"),
    *("deletionTimestamp", "deletionGracePeriodSeconds"),
}
_UNOWNED = {(), ("f:apiVersion",), ("f:kind",), ("f:metadata",)}
_UNOWNED |= {("f:metadata", f"f:{name}") for name in SERVER_FIELDS}
_GONE = object()


def _members(value: Any, path: Path) -> list[tuple[Path, Any]] | None:
    """Return path and value of each member of a map or list; None for a single value."""
    place = tuple("*" if part.startswith("k:") else part[2:] for part in path)
    if isinstance(value, dict) and place != ONE_VALUE:
        return [((*path, f"f:{name}"), each) for name, each in value.items()]
    if isinstance(value, list) and (keys := LIST_KEYS.get(place)):
        return [((*path, _item(keys, each)), each) for each in value]
    return None


def _item(keys: Iterable[str], item: Mapping[str, Any]) -> str:
    return "k:" + json.dumps({key: item[key] for key in keys if key in item}, separators=(",", ":"))


def _fields(value: Any, path: Path = ()) -> dict[Path, Any]:
    members = _members(value, path)
    if members is None or value == {}:
        return {path: value}
    found: dict[Path, Any] = {}  # an empty list has no owner
    for at, each in members:
        if at[-1].startswith("k:"):
            found[at] = None
        found |= _fields(each, at)
    return found


def owned(document: Mapping[str, Any]) -> dict[Path, Any]:
    """Return the fields of a document that a manager can own, by path. The value of a list item itself is None."""
    return {path: value for path, value in _fields(document).items() if path not in _UNOWNED}


def _shown(path: Path) -> str:
    """Format a path like the API server: `.status.conditions[type="Ready"].status`."""
    text = ""
    for part in path:
        if part.startswith("f:"):
            text += f".{part[2:]}"
        else:
            pairs = json.loads(part[2:])
            text += "[" + ",".join(f"{key}={json.dumps(value)}" for key, value in pairs.items()) + "]"
    return text


def _without(value: Any, dropped: Collection[Path], path: Path = ()) -> Any:
    """Return a value without dropped fields and the containers that become empty; `_GONE` if nothing is left."""
    members = _members(value, path)
    if not members:
        return value
    kept = {}
    for at, each in members:
        if at not in dropped and (rest := _without(each, dropped, at)) is not _GONE:
            kept[at[-1]] = rest
    if path and not kept:
        return _GONE
    return {part[2:]: each for part, each in kept.items()} if isinstance(value, dict) else [*kept.values()]


def encoded(paths: Iterable[Path]) -> dict[str, Any]:
    """Encode paths as `fieldsV1`."""
    tree: dict[str, Any] = {}
    for path in sorted(paths):
        at = tree
        for part in path:
            at = at.setdefault(part, {})
        if path[-1].startswith("k:"):
            at["."] = {}
    return tree


def updated(owners: Owners, manager: Manager, old: Mapping[str, Any], new: Mapping[str, Any]) -> Owners:
    """Return the owners after an update. The writer also owns the changed fields; removed fields have no owner."""
    changed, removed = _compared(old, new)
    return _taken(owners, manager, owners.get(manager, frozenset()) | changed, changed, removed)


def applied(
    owners: Owners, manager: Manager, live: Mapping[str, Any], document: Mapping[str, Any], *, force: bool
) -> tuple[dict[str, Any], Owners]:
    """Return the object and its owners after an apply. Raises Refused if a field that changes has another owner."""
    wanted = frozenset(owned(document))
    before = owners.get(manager, frozenset())
    claimed = wanted.union(*(paths for each, paths in owners.items() if each != manager))
    # A field that this manager no longer applies is removed, unless another manager owns it or a field in it. If no
    # field in it has an owner, all of it is removed, including fields that never had an owner, such as the capacity
    # that a Node had at creation (source: structured-merge-diff, prune).
    kept = set().union(*(_with_parents(path) for path in claimed if _is_in_owned_items(path, claimed)))
    mine = set().union(*map(_with_parents, before))
    dropped = {path for path in mine - kept - _UNOWNED if path in before or path[-1].startswith("f:")}
    new = _without(merged(live, document), dropped)
    changed, removed = _compared(live, new)
    clashes = [
        (other, path) for other, paths in sorted(owners.items()) if other != manager for path in sorted(paths & changed)
    ]
    if clashes and not force:
        raise _conflict(clashes, live["apiVersion"])
    return new, _taken(owners, manager, wanted, changed, removed)


def _conflict(clashes: list[tuple[Manager, Path]], version: str) -> Refused:
    causes = []
    for (name, operation, subresource), path in clashes:
        text = f'conflict with "{name}"' + (f' with subresource "{subresource}"' if subresource else "")
        text += f" using {version}" if operation != "Apply" else ""
        causes.append({"reason": "FieldManagerConflict", "message": text, "field": _shown(path)})
    lines = "\n".join(f"- {each['message']}: {each['field']}" for each in causes)
    text = f"Apply failed with {len(clashes)} conflict{'s' * (len(clashes) != 1)}:\n{lines}"
    return Refused(409, "Conflict", text, causes=causes)


def _taken(
    owners: Owners, manager: Manager, mine: frozenset[Path], changed: frozenset[Path], removed: frozenset[Path]
) -> Owners:
    """Assign fields to a manager, and remove changed and removed fields from all other managers."""
    found = {other: paths - changed - removed for other, paths in owners.items()} | {manager: mine - removed}
    return {each: paths for each, paths in found.items() if paths}


def entries(owners: Owners, version: str) -> list[dict[str, Any]]:
    """Encode the owners as `metadata.managedFields`."""
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


def _with_parents(path: Path) -> set[Path]:
    """Return the paths of a field and of all fields that contain it."""
    return {path[:length] for length in range(1, len(path) + 1)}


def _is_in_owned_items(path: Path, paths: Collection[Path]) -> bool:
    """Whether all list items that contain a field have owners. If not, the field does not keep these items.

    For example, a kubelet owns fields of the conditions with which it registered its Node, but not the list items
    (source: structured-merge-diff, prune).
    """
    return all(path[: at + 1] in paths for at, part in enumerate(path) if part.startswith("k:"))


def _compared(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[frozenset[Path], frozenset[Path]]:
    """Return the added or changed paths, and the removed paths."""
    before, after = owned(old), owned(new)
    changed = frozenset(path for path, value in after.items() if path not in before or before[path] != value)
    return changed, frozenset(before.keys() - after.keys())
