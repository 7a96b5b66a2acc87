"""The API server's objects as the embedded kubelet, its controllers and its scheduler use them.

    async with ApiServer() as api, Kubelet(objects=ServerObjects(api.objects)) as kubelet:
        ...

A driver then talks HTTP to the server, and the kubelet sees what it writes.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from typing import Any

from ..dra.api_objects import ApiObjectError
from .kinds import KINDS, ApiKind, Document, Refused, Stored
from .store import Objects

MANAGER = "cluster"
_GONE = 404


class ServerObjects:
    """The objects of one store, by the names of their kinds; what fails there with HTTP does not fail here.

    What is returned is what is stored: it is never changed, only replaced, and nobody may change it.
    """

    def __init__(self, objects: Objects, *, kinds: Iterable[ApiKind] = KINDS) -> None:
        self.store = objects
        self.fails = False
        self._kinds = {each.kind: each for each in kinds}

    def kind(self, name: str) -> ApiKind:
        return self._kinds[name]

    async def list(self, kind: str) -> list[Document]:
        self._reachable()
        return list(self.store.all(self._kinds[kind]))

    async def get(self, kind: str, name: str, namespace: str = "") -> Document | None:
        """An object, None if there is none."""
        self._reachable()
        try:
            return self.store.get(self._kinds[kind], self._home(kind, namespace), name)
        except Refused:
            return None

    async def create(self, kind: str, document: Document) -> Document:
        self._reachable()
        stored, namespace = self._kinds[kind], self._home(kind, document["metadata"].get("namespace", ""))
        with _as_errors_of_objects():
            found = self.store.create(stored, namespace, document, MANAGER)
            found = self._with_status(stored, found, document.get("status", found.get("status")))
        await self.store.tell()
        return found

    async def edit(
        self, kind: str, name: str, namespace: str, change: Callable[[dict[str, Any]], None]
    ) -> Document | None:
        """Change an object and its status; None if it is gone."""
        old = await self.get(kind, name, namespace)
        if old is None:
            return None
        new = deepcopy(dict(old))
        change(new)
        stored = self._kinds[kind]
        with _as_errors_of_objects():
            found = self.store.change(stored, (self._home(kind, namespace), name), new, manager=MANAGER)
            found = self._with_status(stored, found, new.get("status"))
        await self.store.tell()
        return found

    def _with_status(self, kind: ApiKind, found: Stored, status: Document | None) -> Stored:
        """Write the status as well, which is a part of its own."""
        if not kind.status or (status or {}) == found.get("status", {}):
            return found
        key = found["metadata"].get("namespace", ""), found["metadata"]["name"]
        return self.store.change(kind, key, {**found, "status": status or {}}, manager=MANAGER, subresource="status")

    async def delete(self, kind: str, name: str, namespace: str = "") -> None:
        """Delete an object; no effect if it is gone."""
        self._reachable()
        try:
            self.store.delete(self._kinds[kind], self._home(kind, namespace), name)
        except Refused as refused:
            if refused.status != _GONE:
                raise ApiObjectError(str(refused)) from refused
        await self.store.tell()

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after each change; returns what ends that."""
        return self.store.listen(listener)

    def _home(self, kind: str, namespace: str) -> str:
        return (namespace or "default") if self._kinds[kind].namespaced else ""

    def _reachable(self) -> None:
        if self.fails:
            raise ApiObjectError("dial tcp: connection refused")


@contextlib.contextmanager
def _as_errors_of_objects() -> Iterator[None]:
    try:
        yield
    except (Refused, AttributeError, KeyError, TypeError, ValueError) as refused:
        raise ApiObjectError(str(refused)) from refused
