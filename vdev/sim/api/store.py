"""Stores the objects of the API server, their versions, the owners of their fields, and recent changes.

Stored objects are replaced and never modified, so callers may keep references to them.
"""

import asyncio
import contextlib
import datetime as dt
import itertools
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..objects import pod_manifest
from . import ownership
from .kinds import BY_NAME, DRA, ApiKind, Document, Refused, Stored, conflict, invalid, not_found, value_at, wrong
from .ownership import SERVER_FIELDS, Manager, Owners
from .validation import wrong_fields, wrong_metadata

Key: TypeAlias = tuple[str, str]  # namespace and name
NAMESPACES = ("default", "kube-system")
_KEPT = 20_000  # changes that a watch can start from
_LONGEST_PREFIX = 55  # of a generated name, so that the name fits into a label
_NAMESPACE = BY_NAME["Namespace"]
_IMMUTABLE = "field is immutable"
_MANAGER = "cluster"  # the field manager for writes of the kubelet and the cluster


@dataclass(frozen=True, slots=True)
class Change:
    """A recorded change of an object, for watches."""

    version: int
    kind: ApiKind
    old: Stored | None  # None for a new object
    new: Stored | None  # None for a deleted object


def timestamp() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextlib.contextmanager
def well_formed() -> Iterator[None]:
    """Convert the exceptions that a malformed object causes to Refused."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        text = f"the object does not have the form of its kind: {type(error).__name__}: {error}"
        raise Refused(400, "BadRequest", text) from error


class ObjectStore:
    def __init__(self) -> None:
        self.version = 1000
        self.forgotten = 0  # changes up to this version are no longer stored
        self._listeners: list[Callable[[], None]] = []
        self._found: defaultdict[ApiKind, dict[Key, Stored]] = defaultdict(dict)
        self._owners: dict[tuple[ApiKind, str, str], Owners] = {}
        self._history: deque[Change] = deque()
        self._changed = asyncio.Event()  # replaced at each change
        for name in NAMESPACES:
            self.create(_NAMESPACE, "", {"metadata": {"name": name}}, "kube-apiserver")

    # --- reading ------------------------------------------------------------------------------------------------------

    def get(self, kind: ApiKind, namespace: str, name: str) -> Stored:
        """Return an object. Raises Refused if it does not exist."""
        found = self.find(kind, namespace, name)
        if found is None:
            raise not_found(kind, name)
        return found

    def find(self, kind: ApiKind, namespace: str, name: str) -> Stored | None:
        """Return an object, or None if it does not exist."""
        return self._found[kind].get((namespace, name))

    def has(self, kind: ApiKind, namespace: str, name: str) -> bool:
        return (namespace, name) in self._found[kind]

    def all(self, kind: ApiKind, namespace: str = "") -> list[Stored]:
        """Return the objects of a kind, sorted by namespace and name."""
        found = sorted(self._found[kind].items(), key=lambda row: row[0])
        return [each for key, each in found if not namespace or key[0] == namespace]

    def since(self, kind: ApiKind, version: int) -> list[Change]:
        """Return the changes of a kind's objects after a version. Raises Refused if some are no longer stored."""
        if version < self.forgotten:
            raise Refused(410, "Expired", f"too old resource version: {version} ({self.forgotten})")
        newest_first = itertools.takewhile(lambda each: each.version > version, reversed(self._history))
        return [each for each in newest_first if each.kind == kind][::-1]

    # --- writing ------------------------------------------------------------------------------------------------------

    def create(self, kind: ApiKind, namespace: str, document: Document, manager: str) -> Stored:
        """Create an object. Raises Refused."""
        metadata = dict(document.get("metadata") or {})
        name = metadata.get("name") or ""
        if not name and (prefix := metadata.get("generateName")):
            metadata["name"] = name = prefix[:_LONGEST_PREFIX] + uuid.uuid4().hex[:8]
        if not isinstance(name, str) or not name:
            raise invalid(kind, "", [("metadata.name", "Required value: name or generateName is required")])
        if self.has(kind, namespace, name):
            raise Refused(409, "AlreadyExists", f'{kind.full} "{name}" already exists')
        return self._write(kind, (namespace, name), {**document, "metadata": metadata}, (manager, "Update", ""))

    @well_formed()
    def add(self, kind: ApiKind, document: Document) -> Stored:
        """Create an object for the kubelet or the cluster, and its namespace if missing. Raises Refused."""
        namespace = _namespace(kind, (document.get("metadata") or {}).get("namespace", ""))
        if namespace and not self.has(_NAMESPACE, "", namespace):
            self.create(_NAMESPACE, "", {"metadata": {"name": namespace}}, _MANAGER)
        return self.create(kind, namespace, document, _MANAGER)

    def edit(self, kind: ApiKind, namespace: str, name: str, edit: Callable[[dict[str, Any]], None]) -> Stored | None:
        """Edit an object for the kubelet or the cluster. Returns None if it does not exist. Raises Refused."""
        old = self.find(kind, namespace, name)
        if old is None:
            return None
        new = deepcopy(old)
        edit(new)
        with well_formed():
            return self.change(kind, (namespace, name), new, manager=_MANAGER)

    def change(self, kind: ApiKind, key: Key, document: Document, *, manager: str, subresource: str = "") -> Stored:
        """Replace an object. `subresource` is only recorded in the managed fields. Raises Refused."""
        self.get(kind, *key)
        return self._write(kind, key, document, (manager, "Update", subresource))

    def apply(
        self, kind: ApiKind, key: Key, document: Document, *, manager: str, subresource: str = "", force: bool
    ) -> Stored:
        """Create or change an object by server-side apply. Raises Refused."""
        who = (manager, "Apply", subresource)
        live, owners = self._found[kind].get(key, {}), self._owners.get((kind, *key), {})
        new, owners = ownership.applied(owners, who, live, document, force=force)
        return self._write(kind, key, new, who, owners)

    def _write(
        self, kind: ApiKind, key: Key, document: Document, manager: Manager, owners: Owners | None = None
    ) -> Stored:
        """Validate and store a new object or the next version of an object. Raises Refused.

        With `owners` None, the manager becomes the owner of the fields that it has changed.
        """
        old = self._found[kind].get(key, {})
        new = deepcopy(dict(document))
        self._check_metadata(kind, key, old, new.get("metadata") or {})
        metadata = {field: each for field, each in (new.get("metadata") or {}).items() if field not in SERVER_FIELDS}
        new |= {"apiVersion": kind.api_version, "kind": kind.kind}
        new["metadata"] = metadata | self._own_metadata(key, old)
        if problems := [*self.problems(kind, old, new)]:
            raise invalid(kind, key[1], problems)
        self.set_defaults(kind, new)
        if owners is None:
            owned = new if old or not kind.status else without_status(new)  # the first status has no owner
            owners = ownership.updated(self._owners.get((kind, *key), {}), manager, old, owned)
        return self._store(kind, key, old, new, owners)

    def problems(self, kind: ApiKind, old: Document, new: Document) -> Iterator[tuple[str, str]]:
        """Yield field and message of each problem of a new or changed object. `old` is empty for a new object.

        Nodes, Events, ConfigMaps and Leases have no checks besides those of their metadata.
        """
        if kind.group == DRA and (problems := wrong_fields(kind.kind, new)):
            yield from problems
            return
        yield from wrong_metadata(new["metadata"])
        if kind.kind == "Pod":
            try:
                pod_manifest.parse(new)
            except pod_manifest.ManifestError as error:
                yield "", str(error)
        for path in kind.immutable if old else ():
            if value_at(old, path) != (value := value_at(new, path)):
                yield path, wrong(value, _IMMUTABLE)
        before, after = (value_at(each, "status.allocation") for each in (old, new))  # of a claim
        if before and after and before != after:
            yield "status.allocation", wrong(after, _IMMUTABLE)

    def set_defaults(self, kind: ApiKind, new: Stored) -> None:
        """Set the defaults of a valid Pod. Other kinds have no defaults here."""
        if kind.kind != "Pod":
            return
        spec = new["spec"]
        spec.setdefault("restartPolicy", "Always")
        spec.setdefault("schedulerName", "default-scheduler")
        spec.setdefault("terminationGracePeriodSeconds", 30)
        for container in (*spec["containers"], *(spec.get("initContainers") or ())):
            resources = container.setdefault("resources", {})
            if limits := resources.get("limits"):
                resources["requests"] = {**limits, **(resources.get("requests") or {})}
        new.setdefault("status", {"phase": "Pending"})

    def _check_metadata(self, kind: ApiKind, key: Key, old: Stored, sent: Document) -> None:
        """Check that the metadata in a request match the object. Raises Refused."""
        namespace, name = key
        if kind.namespaced and not self.has(_NAMESPACE, "", namespace):
            raise not_found(_NAMESPACE, namespace)
        if (sent.get("namespace") or namespace, sent.get("name") or name) != key:
            raise Refused(400, "BadRequest", "the name or the namespace of the object does not match the URL")
        if not old:
            return
        was = old["metadata"]
        if (sent.get("resourceVersion") or was["resourceVersion"]) != was["resourceVersion"]:
            why = "the object has been modified; please apply your changes to the latest version and try again"
            raise conflict(kind, name, why)
        if (sent.get("uid") or was["uid"]) != was["uid"]:
            raise invalid(kind, name, [("metadata.uid", wrong(sent["uid"], _IMMUTABLE))])

    def _own_metadata(self, key: Key, old: Stored) -> Stored:
        """Return the metadata that only the server writes."""
        if old:
            return {field: each for field, each in old["metadata"].items() if field in SERVER_FIELDS}
        namespace, name = key
        own = {"name": name, "uid": str(uuid.uuid4()), "creationTimestamp": timestamp()}
        return {**own, "namespace": namespace} if namespace else own

    def delete(
        self,
        kind: ApiKind,
        namespace: str,
        name: str,
        preconditions: Mapping[str, str] | None = None,
        *,
        now: bool = True,
    ) -> Stored:
        """Delete an object, or mark it as deleted if it waits for its kubelet or has finalizers. Raises Refused."""
        found = self.get(kind, namespace, name)
        for field, wanted in (preconditions or {}).items():
            if wanted and wanted != (actual := found["metadata"][field]):
                raise conflict(kind, name, f"Precondition failed: {field} is {actual}, not {wanted}")
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

    def _store(self, kind: ApiKind, key: Key, old: Stored, new: Document, owners: Owners) -> Stored:
        """Store an object unless nothing changed. `old` is empty for a new object. Raises Refused."""
        metadata = dict(new["metadata"])
        stored = {**new, "metadata": metadata}
        metadata["managedFields"] = ownership.entries(owners, kind.api_version)
        if old and at_version(stored, "") == at_version(old, ""):
            return old
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
        self._history.append(Change(self.version, kind, old, new))
        if len(self._history) > _KEPT:
            self.forgotten = self._history.popleft().version
        self._changed.set()
        self._changed = asyncio.Event()
        for listener in self._listeners[:]:
            listener()

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after each change; it must not write. Returns a function that removes the listener."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def newer(self, version: int) -> None:
        while self.version <= version:
            await self._changed.wait()


def without_status(document: Document) -> Stored:
    return {name: value for name, value in document.items() if name != "status"}


def status_of(document: Document) -> Stored:
    return {"status": document["status"]} if "status" in document else {}


def at_version(document: Stored, version: int | str) -> Stored:
    return {**document, "metadata": {**document["metadata"], "resourceVersion": str(version)}}


# --- for tests -----------------------------------------------------------------------------------------------------


class ApiObjects:
    """API of a store for tests. By default, the store is a new one in memory.

        async with ApiServer() as api, Kubelet(objects=ApiObjects(api.objects)) as kubelet:
            ...

    A driver then sends requests to the server, and the kubelet sees the objects that it writes. A kind is its name,
    such as `ResourceSlice`.

    Callers must not modify returned objects. A change in the store replaces them.
    """

    def __init__(self, store: ObjectStore | None = None) -> None:
        self.store = store or ObjectStore()

    async def list(self, kind: str) -> list[Document]:
        """Return the objects of a kind in all namespaces, sorted by namespace and name."""
        return list(self.store.all(BY_NAME[kind]))

    async def get(self, kind: str, name: str, namespace: str = "") -> Document | None:
        """Return an object, or None if it does not exist."""
        return self.store.find(*_place(kind, namespace), name)

    async def create(self, kind: str, document: Document) -> Document:
        """Create an object with its status, and its namespace if missing. Raises ApiObjectError."""
        return self.store.add(BY_NAME[kind], document)

    async def edit(
        self, kind: str, name: str, namespace: str, change: Callable[[dict[str, Any]], None]
    ) -> Document | None:
        """Edit an object and its status. Returns None if it does not exist. Raises ApiObjectError."""
        return self.store.edit(*_place(kind, namespace), name, change)

    async def delete(self, kind: str, name: str, namespace: str = "") -> None:
        """Delete an object; no effect if it does not exist."""
        if self.store.has(*_place(kind, namespace), name):
            self.store.delete(*_place(kind, namespace), name)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` on the event loop after each change. Returns a function that removes it."""
        return self.store.listen(listener)


def _place(kind: str, namespace: str) -> tuple[ApiKind, str]:
    return BY_NAME[kind], _namespace(BY_NAME[kind], namespace)


def _namespace(kind: ApiKind, namespace: str) -> str:
    return (namespace or "default") if kind.namespaced else ""
