"""A store's objects as the embedded kubelet, its controllers and its scheduler use them.

    async with ApiServer() as api, Kubelet(objects=ApiObjects(api.objects)) as kubelet:
        ...

A driver then talks HTTP to the server, and the kubelet sees what the driver writes.
"""

import contextlib
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

from .kinds import BY_NAME, ApiKind, Document, Refused, Stored
from .store import ObjectStore

_MANAGER = "cluster"  # the field manager of everything that the kubelet and the cluster write


class ApiObjectError(Exception):
    """A request to the API server failed."""


class ApiObjects:
    """The objects of a store, by the name of their kind; by default of a new store in memory.

    Returned objects are never changed, only replaced, and callers must not change them either.
    """

    def __init__(self, store: ObjectStore | None = None) -> None:
        self.store = store or ObjectStore()

    async def list(self, kind: str) -> list[Document]:
        """All objects of a kind, in all namespaces, by namespace and name."""
        return list(self.store.all(BY_NAME[kind]))

    async def get(self, kind: str, name: str, namespace: str = "") -> Document | None:
        """An object, None if it does not exist."""
        try:
            return self.store.get(BY_NAME[kind], _namespace(kind, namespace), name)
        except Refused:
            return None

    async def create(self, kind: str, document: Document) -> Document:
        """Create an object with its status, and its namespace if that does not exist. Raises ApiObjectError."""
        with _as_object_errors():
            namespace = _namespace(kind, (document.get("metadata") or {}).get("namespace", ""))
            if namespace and not self.store.has(BY_NAME["Namespace"], "", namespace):
                self.store.create(BY_NAME["Namespace"], "", {"metadata": {"name": namespace}}, _MANAGER)
            found = self.store.create(BY_NAME[kind], namespace, document, _MANAGER)
            return self._with_status(BY_NAME[kind], found, document.get("status", found.get("status")))

    async def edit(
        self, kind: str, name: str, namespace: str, change: Callable[[dict[str, Any]], None]
    ) -> Document | None:
        """Change an object and its status; None if it does not exist. Raises ApiObjectError."""
        old = await self.get(kind, name, namespace)
        if old is None:
            return None
        new = deepcopy(dict(old))
        change(new)
        with _as_object_errors():
            found = self.store.change(BY_NAME[kind], (_namespace(kind, namespace), name), new, manager=_MANAGER)
            return self._with_status(BY_NAME[kind], found, new.get("status"))

    def _with_status(self, kind: ApiKind, found: Stored, status: Document | None) -> Stored:
        """Write the status too, which is a subresource."""
        if not kind.status or (status or {}) == found.get("status", {}):
            return found
        key = found["metadata"].get("namespace", ""), found["metadata"]["name"]
        new = {**found, "status": status or {}}
        return self.store.change(kind, key, new, manager=_MANAGER, subresource="status")

    async def delete(self, kind: str, name: str, namespace: str = "") -> None:
        """Delete an object; no effect if it does not exist."""
        if await self.get(kind, name, namespace) is not None:
            self.store.delete(BY_NAME[kind], _namespace(kind, namespace), name)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` on the event loop after each change; returns a function that ends this."""
        return self.store.listen(listener)


def _namespace(kind: str, namespace: str) -> str:
    return (namespace or "default") if BY_NAME[kind].namespaced else ""


@contextlib.contextmanager
def _as_object_errors() -> Iterator[None]:
    try:
        yield
    except (Refused, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ApiObjectError(str(error)) from error
