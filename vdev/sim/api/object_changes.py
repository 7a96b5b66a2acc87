"""What a request may make of an object that is there: what its door lets through, what stays, and what is refused."""

import json
from collections.abc import Iterator
from typing import Any

from ..objects import formats
from .kinds import ApiKind, Document, Refused, Stored, conflict, invalid, value_at
from .ownership import Manager, shown

_IMMUTABLE = ("uid", "deletionTimestamp", "deletionGracePeriodSeconds")
_SERVERS = ("name", "namespace", "creationTimestamp", "generation", *_IMMUTABLE)  # what nobody else writes


def let_through(kind: ApiKind, old: Stored, new: Document, subresource: str) -> Document:
    """A changed object with only those changes that go through this door."""
    keep_identity(kind, old, new)
    if subresource:
        return {**old, "status": new["status"]} if "status" in new else without_status(old)
    if not kind.status:
        return new
    return {**without_status(new), **({"status": old["status"]} if "status" in old else {})}


def applied(kind: ApiKind, document: Document, subresource: str) -> Stored:
    """What counts of an applied document at this door."""
    if subresource:
        return {"status": document["status"]} if "status" in document else {}
    kept = {name: value for name, value in document.items() if name != "status" or not kind.status}
    return kept if kept.get("metadata") else {name: value for name, value in kept.items() if name != "metadata"}


def keep_identity(kind: ApiKind, old: Stored, new: Document) -> None:
    """What a change must leave as it is. Raises Refused."""
    was, now = old["metadata"], new.get("metadata") or {}
    name = was["name"]
    if now.get("resourceVersion") not in (None, was["resourceVersion"]):
        why = "the object has been modified; please apply your changes to the latest version and try again"
        raise conflict(kind, name, why)
    for field, what in (("name", "URL"), ("namespace", "request")):
        if (given := now.get(field)) and given != was.get(field):
            raise elsewhere(what, given, was.get(field, ""))
    kept = [(f"metadata.{field}", now.get(field) or was.get(field), was.get(field)) for field in _IMMUTABLE]
    kept += [(path, value_at(new, path), value_at(old, path)) for path in kind.immutable]
    wrong = [(path, formats.wrong(is_so, "field is immutable")) for path, is_so, so in kept if is_so != so]
    if was.get("deletionTimestamp") and (more := set(now.get("finalizers") or ()) - set(was.get("finalizers") or ())):
        why = "no new finalizers can be added if the object is being deleted, found new finalizers"
        found = ", ".join(json.dumps(each) for each in sorted(more))
        wrong.append(("metadata.finalizers", f"Forbidden: {why} []string{{{found}}}"))
    if wrong:
        raise invalid(kind, name, wrong)


def elsewhere(what: str, given: str, name: str) -> Refused:
    """The object is not the one that the path names."""
    if what == "URL":
        text = f"the name of the object ({given}) does not match the name on the URL ({name})"
    else:
        text = "the namespace of the provided object does not match the namespace sent on the request"
    return Refused(400, "BadRequest", text)


def identified(old: Stored, new: Document) -> Stored:
    """A changed object with what the server keeps of its metadata, unless it says something else."""
    was, now = old["metadata"], new.get("metadata") or {}
    kept = {field: was[field] for field in _SERVERS if field in was and not now.get(field)}
    return {**new, "metadata": {**now, **kept, "creationTimestamp": was["creationTimestamp"]}}


def without_deallocated(old: Stored, new: Document) -> Document:
    """A claim without the status of devices that it was allocated before and is not now: that goes by itself."""
    was, now = _allocated(old), _allocated(new)
    status = new.get("status") or {}
    kept = [each for each in status.get("devices") or () if _device(each) in now or _device(each) not in was]
    if kept == (status.get("devices") or []):
        return new
    return {**new, "status": {**status, "devices": kept}}


def _allocated(claim: Document) -> set[tuple[Any, ...]]:
    return {_device(each) for each in value_at(claim, "status.allocation.devices.results") or ()}


def _device(each: Document) -> tuple[Any, ...]:
    return tuple(each.get(name) for name in ("driver", "pool", "device", "shareID"))


def without_status(document: Document) -> Stored:
    return {name: value for name, value in document.items() if name != "status"}


def clash(clashes: list[tuple[Manager, tuple[str, ...]]], version: str) -> Refused:
    """The refusal of an apply that would take fields from others."""
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {_named(each, version)}", "field": shown(path)}
        for each, path in clashes
    ]
    if len(clashes) == 1:
        said = f"1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        said = f"{len(clashes)} conflicts: " + "\n".join(_lines(clashes, version))
    return Refused(409, "Conflict", f"Apply failed with {said}", causes=causes)


def _lines(clashes: list[tuple[Manager, tuple[str, ...]]], version: str) -> Iterator[str]:
    for each in dict.fromkeys(manager for manager, _ in clashes):
        yield f"conflicts with {_named(each, version)}:"
        yield from (f"- {shown(path)}" for manager, path in clashes if manager == each)


def _named(manager: Manager, version: str) -> str:
    name, operation, subresource = manager
    text = f'"{name}"' + (f' with subresource "{subresource}"' if subresource else "")
    return text if operation == "Apply" else f"{text} using {version}"
