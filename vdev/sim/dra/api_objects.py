"""The objects of the API server that DRA is about, behind one small protocol, and a store of them in memory.

Tests that have an API server hand in another implementation; the kubelet and the scheduler cannot tell.
"""

import itertools
import uuid
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, Protocol, TypeAlias

Document: TypeAlias = Mapping[str, Any]
SLICE, CLASS, CLAIM, TEMPLATE, NAMESPACE = (
    "ResourceSlice",
    "DeviceClass",
    "ResourceClaim",
    "ResourceClaimTemplate",
    "Namespace",
)
KINDS = frozenset({SLICE, CLASS, CLAIM, TEMPLATE, NAMESPACE})
NAMESPACED = frozenset({CLAIM, TEMPLATE})


class ApiObjectError(Exception):
    """A request to the API server failed."""


class ApiObjects(Protocol):
    """What the kubelet, the controllers and the scheduler do with objects. Each call may raise ApiObjectError.

    Nobody changes an object that was handed out: one that has changed is another object.
    """

    async def list(self, kind: str) -> list[Document]:
        """All objects of a kind, in all namespaces."""

    async def get(self, kind: str, name: str, namespace: str = "") -> Document | None:
        """An object, None if there is none."""

    async def create(self, kind: str, document: Document) -> Document:
        """Create an object; the server gives it a UID, and a name if it has only a `generateName`."""

    async def edit(
        self, kind: str, name: str, namespace: str, change: Callable[[dict[str, Any]], None]
    ) -> Document | None:
        """Change an object, its status included, in one go; None if it is gone."""

    async def delete(self, kind: str, name: str, namespace: str = "") -> None:
        """Delete an object; no effect if it is gone."""

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` on the event loop after each change; returns what ends that."""


class MemoryObjects:
    """Objects in memory. What is stored is never changed, only replaced, and handed out as it is."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._serial = itertools.count(1)
        self._listeners: list[Callable[[], None]] = []

    async def list(self, kind: str) -> list[Document]:
        """All objects of a kind, by namespace and name."""
        return [self._found[key] for key in sorted(key for key in self._found if key[0] == kind)]

    async def get(self, kind: str, name: str, namespace: str = "") -> Document | None:
        return self._found.get((kind, _home(kind, namespace), name))

    async def create(self, kind: str, document: Document) -> Document:
        """Create an object. Raises ApiObjectError if there is one of that name."""
        new = deepcopy(dict(document))
        meta = new["metadata"] = dict(new.get("metadata") or {})
        serial = next(self._serial)
        if not meta.get("name"):
            meta["name"] = f"{meta['generateName']}{serial:05x}"
        if kind in NAMESPACED:
            meta["namespace"] = _home(kind, meta.get("namespace", ""))
        key = kind, meta.get("namespace", ""), meta["name"]
        if key in self._found:
            raise ApiObjectError(f'{kind.lower()} "{meta["name"]}" already exists')
        meta.setdefault("uid", str(uuid.uuid4()))
        meta["resourceVersion"] = str(serial)
        self._found[key] = new
        self._tell()
        return new

    async def edit(
        self, kind: str, name: str, namespace: str, change: Callable[[dict[str, Any]], None]
    ) -> Document | None:
        found = self._found.get((kind, _home(kind, namespace), name))
        if found is None:
            return None
        new = deepcopy(found)
        change(new)
        if new != found:
            new["metadata"]["resourceVersion"] = str(next(self._serial))
            self._found[kind, _home(kind, namespace), name] = new
            self._tell()
        return new

    async def delete(self, kind: str, name: str, namespace: str = "") -> None:
        if self._found.pop((kind, _home(kind, namespace), name), None) is not None:
            self._tell()

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _tell(self) -> None:
        for listener in self._listeners[:]:
            listener()


def _home(kind: str, namespace: str) -> str:
    return (namespace or "default") if kind in NAMESPACED else ""
