"""The objects of the API server, with their versions, the owners of their fields, and their recent changes.

Stored objects are never changed, only replaced, so callers may keep them.
"""

import asyncio
import bisect
import datetime as dt
import secrets
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..objects.amounts import as_given_back
from . import ownership
from .kinds import BY_NAME, ApiKind, Document, Refused, Stored, conflict, exists, invalid, not_found, value_at, wrong
from .ownership import Manager, Owners
from .rules import Rules

Key: TypeAlias = tuple[str, str]  # namespace and name
NAMESPACES = ("default", "kube-system")
_KEPT = 20_000  # changes of a kind that a watch can still ask for
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"  # the characters behind generated names, as in Kubernetes
_LONGEST_PREFIX = 58  # of a generated name, so that it fits a label
_NAMESPACE = BY_NAME["Namespace"]
_SERVER_FIELDS = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "generation")


@dataclass(frozen=True, slots=True)
class Change:
    """One change of an object."""

    version: int
    old: Stored | None  # None for a new object
    new: Stored | None  # None for a deleted object


def timestamp() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class ObjectStore:
    """All objects, by the rules of a release."""

    def __init__(self, *, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()
        self.version = 1000
        self.forgotten = 0  # changes up to this version cannot be asked for
        self._listeners: list[Callable[[], None]] = []
        self._found: defaultdict[ApiKind, dict[Key, Stored]] = defaultdict(dict)
        self._owners: dict[tuple[ApiKind, str, str], Owners] = {}
        self._history: defaultdict[ApiKind, deque[Change]] = defaultdict(lambda: deque(maxlen=_KEPT))
        for name in NAMESPACES:
            self.create(_NAMESPACE, "", {"metadata": {"name": name}}, "kube-apiserver")

    # --- reading ------------------------------------------------------------------------------------------------------

    def get(self, kind: ApiKind, namespace: str, name: str) -> Stored:
        """The object. Raises Refused."""
        found = self._found[kind].get((namespace, name))
        if found is None:
            raise not_found(kind, name)
        return found

    def has(self, kind: ApiKind, namespace: str, name: str) -> bool:
        return (namespace, name) in self._found[kind]

    def all(self, kind: ApiKind, namespace: str = "") -> list[Stored]:
        """The objects of a kind, by namespace and name."""
        found = sorted(self._found[kind].items(), key=lambda row: row[0])
        return [each for key, each in found if not namespace or key[0] == namespace]

    def since(self, kind: ApiKind, version: int) -> list[Change]:
        """The changes of a kind's objects after a version. Raises Refused if some of them are forgotten."""
        history = self._history[kind]
        forgotten = max(self.forgotten, history[0].version - 1 if len(history) == _KEPT else 0)
        if version < forgotten:
            raise Refused(410, "Expired", f"too old resource version: {version} ({forgotten})")
        if not history or history[-1].version <= version:
            return []
        start = bisect.bisect_right(history, version, key=lambda each: each.version)
        return [history[index] for index in range(start, len(history))]

    # --- writing ------------------------------------------------------------------------------------------------------

    def create(self, kind: ApiKind, namespace: str, document: Document, manager: str) -> Stored:
        """A new object. Raises Refused."""
        new = deepcopy(dict(as_given_back(kind.kind, document)))
        metadata = new["metadata"] = dict(new.get("metadata") or {})
        if metadata.get("resourceVersion"):
            raise Refused(400, "BadRequest", "resourceVersion should not be set on objects to be created")
        prefix = metadata.get("generateName")
        while prefix and (not metadata.get("name") or self.has(kind, namespace, metadata["name"])):
            metadata["name"] = _generated(prefix)
        name = metadata.get("name", "")
        if not isinstance(name, str) or not name:
            raise invalid(kind, "", [("metadata.name", "Required value: name or generateName is required")])
        if self.has(kind, namespace, name):
            raise exists(kind, name)
        self._begin(kind, namespace, metadata)
        if kind.status and kind.kind != "Node":  # a kubelet registers its Node together with the first status
            new.pop("status", None)
        self.rules.complete(kind, new, now=timestamp())
        owned = without_status(new) if kind.status else new
        owners = ownership.updated({}, (manager, "Update", ""), {}, owned)
        return self._store(kind, (namespace, name), {}, new, owners)

    def change(self, kind: ApiKind, key: Key, document: Document, *, manager: str, subresource: str = "") -> Stored:
        """An object after a PUT or a patch. Only the part of it counts that belongs to the subresource."""
        old = self.get(kind, *key)
        new = self._successor(kind, old, as_given_back(kind.kind, document))
        if subresource:
            new = {**old, "status": new["status"]} if "status" in new else without_status(old)
        elif kind.status:
            new = {**without_status(new), **({"status": old["status"]} if "status" in old else {})}
        owners = ownership.updated(self._owners[kind, *key], (manager, "Update", subresource), old, new)
        return self._store(kind, key, old, new, owners)

    def apply(
        self, kind: ApiKind, key: Key, document: Document, *, manager: str, subresource: str = "", force: bool
    ) -> Stored:
        """An object after a server-side apply, which may create it."""
        metadata = document.get("metadata") or {}
        if metadata.get("managedFields"):
            raise Refused(400, "BadRequest", "metadata.managedFields must be nil")
        old: Stored = {}
        owners: Owners = {}
        if subresource or self.has(kind, *key):
            old, owners = self.get(kind, *key), self._owners[kind, *key]
        elif uid := metadata.get("uid"):
            raise conflict(kind, key[1], f"Precondition failed: UID in precondition: {uid}, UID in object meta: ")
        applied = dict(as_given_back(kind.kind, document))
        if subresource:
            applied = {name: value for name, value in applied.items() if name == "status"}
        elif kind.status:
            applied = without_status(applied)
        new, owners, clashes = ownership.applied(owners, (manager, "Apply", subresource), old, applied, force=force)
        if clashes:
            raise _apply_conflict(clashes, kind.api_version)
        if old:
            new = self._successor(kind, old, new)
        else:
            new = deepcopy(new)
            self._begin(kind, key[0], new.setdefault("metadata", {}))
            self.rules.complete(kind, new, now=timestamp())
        return self._store(kind, key, old, new, owners)

    def delete(
        self,
        kind: ApiKind,
        namespace: str,
        name: str,
        preconditions: Mapping[str, str] | None = None,
        *,
        now: bool = True,
    ) -> Stored:
        """Delete an object, or mark it if its node or the owner of a finalizer must delete it."""
        found = self.get(kind, namespace, name)
        for field, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            wanted, actual = (preconditions or {}).get(field), found["metadata"][field]
            if wanted and wanted != actual:
                text = f"Precondition failed: {label} in precondition: {wanted}, {label} in object meta: {actual}"
                raise conflict(kind, name, text)
        at_once = now or value_at(found, "spec.terminationGracePeriodSeconds") == 0
        waits = kind.graceful and not at_once and value_at(found, "spec.nodeName")
        if not waits and not found["metadata"].get("finalizers"):
            return self._remove(kind, namespace, name)
        if found["metadata"].get("deletionTimestamp"):
            return found
        marked = {**found, "metadata": {**found["metadata"], "deletionTimestamp": timestamp()}}
        return self._store(kind, (namespace, name), found, marked, self._owners[kind, namespace, name])

    def _remove(self, kind: ApiKind, namespace: str, name: str) -> Stored:
        found = self._found[kind].pop((namespace, name))
        del self._owners[kind, namespace, name]
        self._record(kind, found, None)
        if kind == _NAMESPACE:
            inside = [(other, key) for other, objects in self._found.items() for key in objects if key[0] == name]
            for other, key in inside:
                self._remove(other, *key)
        return at_version(found, self.version)

    def _begin(self, kind: ApiKind, namespace: str, metadata: dict[str, Any]) -> None:
        """Give a new object its namespace, UID and time. Raises Refused if the namespace is wrong."""
        if kind.namespaced and not self.has(_NAMESPACE, "", namespace):
            raise not_found(_NAMESPACE, namespace)
        if (metadata.get("namespace") or namespace) != namespace:
            raise _misplaced()
        for field in (*_SERVER_FIELDS[1:], "deletionGracePeriodSeconds", "selfLink"):
            metadata.pop(field, None)
        if namespace:
            metadata["namespace"] = namespace
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": timestamp()}

    def _successor(self, kind: ApiKind, old: Stored, changed: Document) -> Stored:
        """A changed object, complete, with the metadata that only the server writes. Raises Refused."""
        new = deepcopy(dict(changed))
        was, now = old["metadata"], new.get("metadata") or {}
        if (now.get("resourceVersion") or was["resourceVersion"]) != was["resourceVersion"]:
            why = "the object has been modified; please apply your changes to the latest version and try again"
            raise conflict(kind, was["name"], why)
        if any((now.get(field) or was.get(field)) != was.get(field) for field in ("name", "namespace")):
            raise _misplaced()
        sent = {field: value for field, value in now.items() if field not in _SERVER_FIELDS}
        new["metadata"] = {**sent, **{field: was[field] for field in _SERVER_FIELDS if field in was}}
        self.rules.complete(kind, new, now=timestamp())
        fields = [("metadata.uid", now.get("uid") or was["uid"], was["uid"])]
        fields += [(path, value_at(new, path), value_at(old, path)) for path in kind.immutable]
        if different := [(path, value) for path, value, kept in fields if value != kept]:
            causes = [(path, wrong(value, "field is immutable")) for path, value in different]
            raise invalid(kind, was["name"], causes)
        return new

    def _store(self, kind: ApiKind, key: Key, old: Stored, new: Document, owners: Owners) -> Stored:
        """Store an object (`old` empty: a new one), unless nothing changed. Raises Refused."""
        metadata = dict(new["metadata"])
        stored = {**new, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        metadata["managedFields"] = ownership.entries(owners, kind.api_version)
        before = old.get("metadata") or {}
        if kind.generation:
            now = stored.get("spec"), metadata.get("deletionTimestamp")
            is_changed = (old.get("spec"), before.get("deletionTimestamp")) != now
            metadata["generation"] = before.get("generation", 0) + (is_changed or not old)
        if old and at_version(stored, "") == at_version(old, ""):
            return old
        if problems := [*self.rules.problems(kind, old, stored)]:
            raise invalid(kind, metadata["name"], problems)
        metadata["resourceVersion"] = str(self.version + 1)
        self._found[kind][key] = stored
        self._owners[kind, *key] = owners
        self._record(kind, old or None, stored)
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers") and not kind.graceful:
            return self._remove(kind, *key)
        return stored

    # --- changes ------------------------------------------------------------------------------------------------------

    def _record(self, kind: ApiKind, old: Stored | None, new: Stored | None) -> None:
        self.version += 1
        self._history[kind].append(Change(self.version, old, new))
        for listener in self._listeners[:]:
            listener()

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener`, which must not write, after each change; returns a function that ends this."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def newer(self, version: int) -> None:
        """Wait for a version after this one."""
        changed = asyncio.Event()
        stop = self.listen(changed.set)
        try:
            while self.version <= version:
                await changed.wait()
                changed.clear()
        finally:
            stop()


def _misplaced() -> Refused:
    return Refused(400, "BadRequest", "the name or the namespace of the object does not match the URL")


def _apply_conflict(clashes: list[tuple[Manager, ownership.Path]], version: str) -> Refused:
    """The answer to an apply that would change fields of other managers."""
    causes = []
    for (name, operation, subresource), path in clashes:
        text = f'conflict with "{name}"' + (f' with subresource "{subresource}"' if subresource else "")
        text += f" using {version}" if operation != "Apply" else ""
        causes.append({"reason": "FieldManagerConflict", "message": text, "field": ownership.shown(path)})
    lines = "\n".join(f"- {each['message']}: {each['field']}" for each in causes)
    text = f"Apply failed with {len(clashes)} conflict{'s' * (len(clashes) != 1)}:\n{lines}"
    return Refused(409, "Conflict", text, causes=causes)


def _generated(prefix: str) -> str:
    """A name as Kubernetes generates it (names.SimpleNameGenerator)."""
    return prefix[:_LONGEST_PREFIX] + "".join(secrets.choice(_SUFFIX) for _ in range(5))


def without_status(document: Document) -> Stored:
    return {name: value for name, value in document.items() if name != "status"}


def at_version(document: Stored, version: int | str) -> Stored:
    return {**document, "metadata": {**document["metadata"], "resourceVersion": str(version)}}
