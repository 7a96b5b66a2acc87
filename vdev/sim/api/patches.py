"""How the API server merges patches: JSON merge patch, strategic merge patch, JSON patch."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from .ownership import LIST_KEYS


class PatchRefused(Exception):
    """A patch that cannot be done; `status` is that of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def merge(document: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    found = dict(document) if isinstance(document, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merge(found.get(name), value)
    return found


def strategic(document: Any, patch: Any, path: tuple[str, ...] = ()) -> Any:
    """Lists with keys are merged by them; of the directives there is `$patch: delete` alone."""
    if isinstance(patch, dict):
        unknown = [name for name in patch if name.startswith("$")]
        if unknown:
            raise PatchRefused(400, f"directives {unknown} are not known to this server")
        found = dict(document) if isinstance(document, dict) else {}
        for name, value in patch.items():
            if value is None:
                found.pop(name, None)
            else:
                found[name] = strategic(found.get(name), value, (*path, name))
        return found
    keys = LIST_KEYS.get(path)
    if isinstance(patch, list) and keys:
        items = {tuple(each[key] for key in keys): each for each in document or ()}
        for each in patch:
            if missing := [key for key in keys if key not in each]:
                raise PatchRefused(400, f"map: {each} does not contain declared merge key: {missing[0]}")
            name = tuple(each[key] for key in keys)
            if each.get("$patch") == "delete":
                items.pop(name, None)
            else:
                items[name] = strategic(items.get(name), each, (*path, "*"))
        return list(items.values())
    return copy.deepcopy(patch)


def operations(document: Any, patch: Any) -> Any:
    """RFC 6902."""
    if not isinstance(patch, list):
        raise PatchRefused(400, "json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    found = copy.deepcopy(document)
    for each in patch:
        _operate(found, each)
    return found


def _operate(document: Any, operation: Mapping[str, Any]) -> None:
    *above, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
    at = _found(document, above, operation)
    if isinstance(at, list):
        last = len(at) if last == "-" else int(last)
    there = last < len(at) if isinstance(at, list) else last in at
    match operation["op"]:
        case "test":
            if not there or at[last] != operation["value"]:
                raise PatchRefused(422, f"testing path {operation['path']} value failed")
        case "add" if isinstance(at, list) and last > len(at):
            raise _no(operation)
        case "add" if isinstance(at, list):
            at.insert(last, operation["value"])
        case "add":
            at[last] = operation["value"]
        case "replace" | "remove" if not there:
            raise _no(operation)
        case "replace":
            at[last] = operation["value"]
        case "remove":
            del at[last]
        case unknown:
            raise PatchRefused(400, f"Unexpected kind: {unknown}")


def _found(at: Any, path: Sequence[str], operation: Mapping[str, Any]) -> Any:
    for part in path:
        try:
            at = at[int(part)] if isinstance(at, list) else at[part]
        except (LookupError, ValueError, TypeError):
            raise _no(operation) from None
    return at


def _no(operation: Mapping[str, Any]) -> PatchRefused:
    return PatchRefused(422, "the server rejected our request due to an error in our request: " + operation["path"])
