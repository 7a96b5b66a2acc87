"""Patches of the API server: JSON merge patch, JSON patch, and strategic merge patch."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, TypeAlias

from .kinds import Refused

Place: TypeAlias = tuple[str, ...]  # names of fields, and `*` for the items of a list

# The keys of the lists whose items are merged; every other list is one value.
LIST_KEYS: Mapping[Place, tuple[str, ...]] = {
    ("metadata", "ownerReferences"): ("uid",),
    ("status", "conditions"): ("type",),
    ("status", "addresses"): ("type",),
    ("status", "devices"): ("driver", "device", "pool", "shareID"),  # of a ResourceClaim
    ("status", "reservedFor"): ("uid",),
    ("spec", "containers"): ("name",),
}
ONE_VALUE = ("status", "devices", "*", "data")  # arbitrary data of a driver about an allocated device


def merged(document: Any, patch: Any, place: Place = (), *, lists: Mapping[Place, tuple[str, ...]] = LIST_KEYS) -> Any:
    """Merge a strategic merge patch or a server-side apply into a document. Lists with keys are merged by item.

    A null in a patch removes the field. The only supported directive is `$patch: delete` in a list item. With empty
    `lists`, this is a JSON merge patch (RFC 7386).
    """
    if isinstance(patch, dict) and place != ONE_VALUE:
        if lists and (unknown := [name for name in patch if name.startswith("$")]):
            raise Refused(400, "BadRequest", f"this server does not support the directives {unknown}")
        found = dict(document) if isinstance(document, dict) else {}
        for name, value in patch.items():
            if value is None:
                found.pop(name, None)
            else:
                found[name] = merged(found.get(name), value, (*place, name), lists=lists)
        return found
    keys = lists.get(place)
    if isinstance(patch, list) and keys:
        items = {tuple(each.get(key) for key in keys): each for each in document or ()}
        for each in patch:
            name = tuple(each.get(key) for key in keys)
            if name[0] is None:
                raise Refused(400, "BadRequest", f"map: {each} does not contain declared merge key: {keys[0]}")
            if each.get("$patch") == "delete":
                items.pop(name, None)
            else:
                items[name] = merged(items.get(name), each, (*place, "*"))
        return list(items.values())
    return deepcopy(patch)


def merge(document: Any, patch: Any) -> Any:
    return merged(document, patch, lists={})


def operations(document: Any, patch: Any) -> Any:
    """Apply a JSON patch (RFC 6902) without `move` and `copy` to a document."""
    if not isinstance(patch, list):
        raise Refused(400, "BadRequest", "a JSON patch is a list of operations")
    found = deepcopy(document)
    for each in patch:
        try:
            _operate(found, each)
        except (LookupError, TypeError, ValueError, AttributeError):
            raise Refused(422, "Invalid", f"the operation is not possible: {each}") from None
    return found


def _operate(document: Any, operation: Mapping[str, Any]) -> None:
    """Apply one operation. Raises LookupError, TypeError, ValueError or AttributeError if it is not possible."""
    _, *above, last = (part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/"))
    at = document
    for part in above:
        at = at[int(part)] if isinstance(at, list) else at[part]
    place: Any = last
    if isinstance(at, list):
        place = len(at) if last == "-" else int(last)
        if not 0 <= place <= len(at):
            raise IndexError(place)
    match operation["op"]:
        case "test":
            if (at[place] if isinstance(at, list) else at.get(place)) != operation["value"]:
                raise ValueError("another value")
        case "remove":
            del at[place]
        case "replace":
            at[place]  # raises LookupError if it does not exist
            at[place] = operation["value"]
        case "add" if isinstance(at, list):
            at.insert(place, operation["value"])
        case "add":
            at[place] = operation["value"]
        case unknown:
            raise ValueError(unknown)
