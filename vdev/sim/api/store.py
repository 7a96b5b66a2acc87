"""What the API server stores: objects with versions, their owners, and what happened to them lately.

Stored objects are never changed, only replaced, so that code that has one may keep it.
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
from .kinds import KINDS, ApiKind, Document, Refused, Stored, conflict, exists, invalid, not_found, value_at
from .object_changes import (
    applied,
    clash,
    identified,
    keep_identity,
    let_through,
    misplaced,
    without_deallocated,
    without_status,
)
from .ownership import Manager, Owners
from .rules import Rules

Key: TypeAlias = tuple[str, str]  # namespace and name
Check: TypeAlias = Callable[[Document, Document], None]
NAMESPACES = ("default", "kube-system")
_KEPT = 20_000  # changes of a kind that a watch can still ask for
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"  # as Kubernetes has it behind generated names
_LONGEST_BEGINNING = 58  # of a generated name
_NAMESPACE = next(each for each in KINDS if each.kind == "Namespace")


@dataclass(frozen=True, slots=True)
class Happened:
    """One change: `old` None for a new object, `new` None for one that is gone."""

    version: int
    old: Stored | None
    new: Stored | None


def timestamp() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def anything(_old: Document, _new: Document) -> None: ...


class Objects:
    """All objects, by the rules of a release."""

    def __init__(self, *, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()
        self.version = 1000
        self.forgotten = 0  # versions below this one
        self.changes = 0
        self.news = asyncio.Condition()
        self._listeners: list[Callable[[], None]] = []
        self._found: defaultdict[ApiKind, dict[tuple[str, str], Stored]] = defaultdict(dict)
        self._owners: dict[tuple[ApiKind, str, str], Owners] = {}
        self._history: defaultdict[ApiKind, deque[Happened]] = defaultdict(lambda: deque(maxlen=_KEPT))
        for name in NAMESPACES:
            self.create(_NAMESPACE, "", {"metadata": {"name": name}}, "kube-apiserver")
        self._history.clear()
        self.changes = 0

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

    def since(self, kind: ApiKind, version: int) -> list[Happened]:
        """What happened to objects of a kind after a version. Raises Refused if that is forgotten."""
        history = self._history[kind]
        oldest = history[0].version - 1 if len(history) == _KEPT else 0
        if version < max(oldest, self.forgotten):
            text = f"too old resource version: {version} ({max(oldest, self.forgotten)})"
            raise Refused(410, "Expired", text)
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
        if not metadata.get("name") and (beginning := metadata.get("generateName")):
            names = iter(lambda: _generated(beginning), "")
            metadata["name"] = next(each for each in names if not self.has(kind, namespace, each))
        name = metadata.get("name", "")
        if not isinstance(name, str) or not name:
            raise invalid(kind, "", [("metadata.name", "Required value: name or generateName is required")])
        if self.has(kind, namespace, name):
            raise exists(kind, name)
        self._home(kind, namespace, metadata)
        if kind.status and kind.kind != "Node":  # which registers with its status, and nobody owns that
            new.pop("status", None)
        if kind.at_first:
            new["status"] = {"phase": kind.at_first}
        self.rules.complete(kind, new, now=timestamp())
        begun = without_status(new) if kind.status else new
        owners = ownership.updated({}, (manager, "Update", ""), {}, begun)
        return self._store(kind, (namespace, name), {}, new, owners)

    def change(
        self, kind: ApiKind, key: Key, new: Document, *, manager: str, subresource: str = "", check: Check = anything
    ) -> Stored:
        """An object after a patch or a PUT, of which the part counts that the subresource is for.

        `check` is given the object before and after, and raises Refused.
        """
        old = self.get(kind, *key)
        whole = deepcopy(identified(old, as_given_back(kind.kind, new)))
        self.rules.complete(kind, whole, now=timestamp())
        new = let_through(kind, old, whole, subresource)
        if kind.kind == "ResourceClaim" and subresource == "status":
            new = without_deallocated(old, new)
        check(old, new)
        return self._update(kind, key, old, new, (manager, "Update", subresource))

    def bind(self, kind: ApiKind, key: Key, pod: Stored, *, manager: str) -> Stored:
        """A pod that has its node now, in one change with the condition that says so."""
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": timestamp()}
        status = pod.setdefault("status", {})
        others = [each for each in status.get("conditions") or () if each["type"] != scheduled["type"]]
        status["conditions"] = [*others, scheduled]
        return self._update(kind, key, self.get(kind, *key), pod, (manager, "Update", ""))

    def replace(self, kind: ApiKind, key: Key, document: Document, **how: Any) -> Stored:
        """An object after a PUT, which must say which version of it was read; `how` is as for a change."""
        self.get(kind, *key)
        name = key[1]
        metadata = document.get("metadata") or {}
        if metadata.get("name") != name:
            raise misplaced()
        if not metadata.get("resourceVersion"):
            text = "Invalid value: 0: must be specified for an update"
            raise invalid(kind, name, [("metadata.resourceVersion", text)])
        return self.change(kind, key, document, **how)

    def apply(
        self,
        kind: ApiKind,
        key: Key,
        document: Document,
        *,
        manager: str,
        subresource: str = "",
        force: bool,
        check: Check = anything,
    ) -> Stored:
        """An object after a server-side apply."""
        if (document.get("metadata") or {}).get("managedFields"):
            raise Refused(400, "BadRequest", "metadata.managedFields must be nil")
        old: Stored = {}
        owners: Owners = {}
        if subresource or self.has(kind, *key):
            old = self.get(kind, *key)
            owners = self._owners[kind, *key]
        elif uid := (document.get("metadata") or {}).get("uid"):
            raise conflict(kind, key[1], f"Precondition failed: UID in precondition: {uid}, UID in object meta: ")
        given = applied(kind, as_given_back(kind.kind, document), subresource)
        new, owners, clashes = ownership.applied(owners, (manager, "Apply", subresource), old, given, force=force)
        if clashes:
            raise clash(clashes, kind.api_version)
        new = deepcopy(identified(old, new) if old else new)
        self.rules.complete(kind, new, now=timestamp())
        if old:
            keep_identity(kind, old, new)
        check(old, new)
        if not old:
            self._home(kind, key[0], new.setdefault("metadata", {}))
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
        """The object that is deleted; or one that stays until its node, or who put a finalizer on it, lets it go."""
        found = self.get(kind, namespace, name)
        for field, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            wanted, is_so = (preconditions or {}).get(field), found["metadata"][field]
            if wanted and wanted != is_so:
                text = f"Precondition failed: {label} in precondition: {wanted}, {label} in object meta: {is_so}"
                raise conflict(kind, name, text)
        at_once = now or value_at(found, "spec.terminationGracePeriodSeconds") == 0
        waits = kind.graceful and not at_once and value_at(found, "spec.nodeName")
        if waits or found["metadata"].get("finalizers"):
            if found["metadata"].get("deletionTimestamp"):
                return found
            marked = {**found, "metadata": {**found["metadata"], "deletionTimestamp": timestamp()}}
            if kind.generation:
                marked["metadata"]["generation"] += 1
            return self._store(kind, (namespace, name), found, marked, self._owners[kind, namespace, name])
        return self._remove(kind, namespace, name)

    def _remove(self, kind: ApiKind, namespace: str, name: str) -> Stored:
        found = self._found[kind].pop((namespace, name))
        del self._owners[kind, namespace, name]
        self._happened(kind, found, None)
        if kind == _NAMESPACE:
            inside = [(other, key) for other, found_ in self._found.items() for key in found_ if key[0] == name]
            for other, key in inside:
                self._remove(other, *key)
        return of_version(found, self.version)

    # --- what is stored -----------------------------------------------------------------------------------------------

    def _home(self, kind: ApiKind, namespace: str, metadata: dict[str, Any]) -> None:
        if kind.namespaced:
            if not self.has(_NAMESPACE, "", namespace):
                raise not_found(_NAMESPACE, namespace)
            if metadata.setdefault("namespace", namespace) != namespace:
                raise misplaced()
        elif metadata.get("namespace"):
            raise misplaced()
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = timestamp()
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"):
            metadata.pop(field, None)

    def _update(self, kind: ApiKind, key: Key, old: Stored, new: Document, manager: Manager) -> Stored:
        owners = ownership.updated(self._owners[kind, *key], manager, old, new)
        return self._store(kind, key, old, new, owners)

    def _store(self, kind: ApiKind, key: Key, old: Stored, new: Document, owners: Owners) -> Stored:
        metadata = dict(new["metadata"])
        stored = {**new, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        metadata["managedFields"] = ownership.entries(owners, kind.api_version)
        if kind.generation:
            before = old["metadata"]["generation"] if old else 0
            was = max(before, metadata.get("generation") or 0) if old else 0
            metadata["generation"] = was + (not old or old.get("spec") != stored.get("spec"))
        if old and of_version(stored, "") == of_version(old, ""):
            return old
        if wrong := [*self.rules.problems(kind, old, stored)]:
            raise invalid(kind, metadata["name"], wrong)
        metadata["resourceVersion"] = str(self.version + 1)
        self._found[kind][key] = stored
        self._owners[kind, *key] = owners
        self._happened(kind, old or None, stored)
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers") and not kind.graceful:
            return self._remove(kind, *key)
        return stored

    def _happened(self, kind: ApiKind, old: Stored | None, new: Stored | None) -> None:
        self.version += 1
        self.changes += 1
        self._history[kind].append(Happened(self.version, old, new))

    # --- telling ------------------------------------------------------------------------------------------------------

    async def newer(self, version: int) -> None:
        async with self.news:
            await self.news.wait_for(lambda: self.version > version)

    async def tell(self) -> None:
        """Wake those who watch or listen: after one change, or after several."""
        async with self.news:
            self.news.notify_all()
        for listener in self._listeners[:]:
            listener()

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` on the event loop after each change; returns what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)


def _generated(beginning: str) -> str:
    """A name as Kubernetes makes it (names.SimpleNameGenerator): of a long beginning no more than fits a label."""
    return beginning[:_LONGEST_BEGINNING] + "".join(secrets.choice(_SUFFIX) for _ in range(5))


def of_version(document: Stored, version: int | str) -> Stored:
    return {**document, "metadata": {**document["metadata"], "resourceVersion": str(version)}}
