"""How the API server merges patches: JSON merge patch, strategic merge patch, JSON patch."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..objects.plain_objects import copied
from .ownership import LIST_KEYS


class PatchRefused(Exception):
    """A patch that cannot be done; `status` is that of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def merge(document: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copied(patch)
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
    return copied(patch)


def operations(document: Any, patch: Any) -> Any:
    """RFC 6902."""
    if not isinstance(patch, list):
        raise PatchRefused(400, "json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    found = copied(document)
    for each in patch:
        _operate(found, each if isinstance(each, dict) else {})
    return found


def _operate(document: Any, operation: Mapping[str, Any]) -> None:
    match operation.get("op"):
        case "copy" | "move" as how:
            *above, last = _parts(operation, "from")
            at, last = _place(document, above, last, operation)
            _there(at, last, operation)
            value = copied(at[last])
            if how == "move":
                del at[last]
            _write(document, {**operation, "op": "add", "value": value})
        case _:
            _write(document, operation)


def _write(document: Any, operation: Mapping[str, Any]) -> None:
    *above, last = _parts(operation, "path")
    at, last = _place(document, above, last, operation)
    value = operation.get("value")
    match operation.get("op"):
        case "test":
            if _there(at, last, operation, must=value is not None) and at[last] != value:
                raise PatchRefused(422, f"testing path {operation['path']} value failed")
        case "add" if isinstance(at, list) and last <= len(at):
            at.insert(last, value)
        case "add" if isinstance(at, dict):
            at[last] = value
        case "replace" if _there(at, last, operation):
            at[last] = value
        case "remove" if _there(at, last, operation):
            del at[last]
        case _:
            raise _no(operation)


def _parts(operation: Mapping[str, Any], field: str) -> list[str]:
    """The steps of a path, of which there is one at least."""
    path = operation.get(field)
    if not isinstance(path, str) or "/" not in path:
        raise _no(operation)
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _place(document: Any, above: Sequence[str], last: str, operation: Mapping[str, Any]) -> tuple[Any, Any]:
    """Where an operation is, and at which index or key."""
    at = document
    for part in above:
        try:
            at = at[int(part)] if isinstance(at, list) else at[part]
        except (LookupError, ValueError, TypeError):
            raise _no(operation) from None
    if not isinstance(at, list):
        return at, last
    if last == "-":
        return at, len(at)
    if not last.isdecimal():
        raise _no(operation)
    return at, int(last)


def _there(at: Any, last: Any, operation: Mapping[str, Any], *, must: bool = True) -> bool:
    there = last < len(at) if isinstance(at, list) else isinstance(at, dict) and last in at
    if must and not there:
        raise _no(operation)
    return there


def _no(operation: Mapping[str, Any]) -> PatchRefused:
    path = operation.get("path", "")
    return PatchRefused(422, f"the server rejected our request due to an error in our request: {path}")
