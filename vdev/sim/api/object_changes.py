"""What a request may make of an object that is there: which part of it counts, what stays, and what is refused."""

from typing import Any

from ..objects import formats
from .kinds import ApiKind, Document, Refused, Stored, conflict, invalid, value_at
from .ownership import Manager, shown

_IMMUTABLE = ("uid", "deletionTimestamp")
_SERVERS = ("name", "namespace", "creationTimestamp", "generation", *_IMMUTABLE)  # what nobody else writes


def let_through(kind: ApiKind, old: Stored, new: Document, subresource: str) -> Document:
    """A changed object with only those changes for which the subresource is, or without one for the rest."""
    keep_identity(kind, old, new)
    if subresource:
        return {**old, "status": new["status"]} if "status" in new else without_status(old)
    if not kind.status:
        return new
    return {**without_status(new), **({"status": old["status"]} if "status" in old else {})}


def applied(kind: ApiKind, document: Document, subresource: str) -> Stored:
    """What counts of an applied document."""
    if subresource:
        return {"status": document["status"]} if "status" in document else {}
    return without_status(document) if kind.status else dict(document)


def keep_identity(kind: ApiKind, old: Stored, new: Document) -> None:
    """See that a change leaves what it must leave as it is. Raises Refused."""
    was, now = old["metadata"], new.get("metadata") or {}
    name = was["name"]
    if now.get("resourceVersion") not in (None, was["resourceVersion"]):
        why = "the object has been modified; please apply your changes to the latest version and try again"
        raise conflict(kind, name, why)
    if any((now.get(field) or was.get(field)) != was.get(field) for field in ("name", "namespace")):
        raise misplaced()
    kept = [(f"metadata.{field}", now.get(field) or was.get(field), was.get(field)) for field in _IMMUTABLE]
    kept += [(path, value_at(new, path), value_at(old, path)) for path in kind.immutable]
    if wrong := [(path, formats.wrong(is_so, "field is immutable")) for path, is_so, so in kept if is_so != so]:
        raise invalid(kind, name, wrong)


def misplaced() -> Refused:
    """The object is not the one that the path names."""
    return Refused(400, "BadRequest", "the name or the namespace of the object does not match the URL")


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
    return {**new, "status": {**status, "devices": kept}} if status.get("devices") else new


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
    said = "\n".join(f"- {each['message']}: {each['field']}" for each in causes)
    text = f"Apply failed with {len(clashes)} conflict{'s' * (len(clashes) != 1)}:\n{said}"
    return Refused(409, "Conflict", text, causes=causes)


def _named(manager: Manager, version: str) -> str:
    name, operation, subresource = manager
    text = f'"{name}"' + (f' with subresource "{subresource}"' if subresource else "")
    return text if operation == "Apply" else f"{text} using {version}"
