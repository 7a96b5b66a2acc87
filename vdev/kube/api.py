"""`Api`: the requests that vdev sends to the API server, through lightkube's client. Objects are plain mappings.

Each write names its field manager. An apply without `force` does not take fields that another manager owns.
"""

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from ..errors import ApiServerError
from .connection import Connection, resource
from .errors import ApiCall
from .objects import MANAGER, Object, ObjectKind

_PAGE = 500  # objects in one page of a list, the page size of client-go

T = TypeVar("T")
Document: TypeAlias = dict[str, Any]

FaultHook: TypeAlias = Callable[[ApiCall], ApiServerError | None]
"""Called before each request. If it returns an error, this is raised and the request is not sent."""


class Api:
    """The requests over a connection, which several of these may share.

    All methods raise an ApiServerError (see `errors`), can be cancelled, and do not repeat a request: callers retry
    with a backoff.
    """

    def __init__(self, connection: Connection, *, fault: FaultHook = lambda call: None) -> None:
        self.connection = connection
        self._fault = fault

    # --- reading ------------------------------------------------------------------------------------------------------

    async def get(self, kind: ObjectKind, name: str, *, namespace: str = "") -> Document:
        call = ApiCall(verb="get", kind=kind, name=name, namespace=namespace)
        return await self._ask(call, lambda client, of: client.get(of, name, namespace=namespace or None))

    async def list(
        self, kind: ObjectKind, *, fields: Mapping[str, str] | None = None, keep: Callable[[Object], T]
    ) -> tuple[list[T], str]:
        """Return the objects in all namespaces whose fields have these values, and the resource version of the list.

        `keep` reduces each object to the part that is kept, because thousands of whole objects need much memory.
        Raises Expired if the server forgets the version between two pages.
        """

        async def send(client: Any, of: Any) -> tuple[list[T], str]:
            # Without a page size, a server from 1.31 on can select the objects of one node in its cache.
            size, namespace = None if fields else _PAGE, "*" if kind.namespaced else None
            pages = client.list(of, namespace=namespace, fields=fields, chunk_size=size)
            return [keep(each) async for each in pages], pages.resourceVersion

        return await self._ask(ApiCall(verb="list", kind=kind), send)

    async def watch(
        self, kind: ObjectKind, *, version: str, fields: Mapping[str, str] | None = None
    ) -> AsyncGenerator[tuple[str, Object], None]:
        """Yield the type and object of each change since a resource version.

        lightkube opens the watch again whenever the server ends it. Raises Expired if the server has forgotten the
        version, and Unreachable if the watch is interrupted.
        """
        call = ApiCall(verb="watch", kind=kind)
        self._raise_fault(call)
        client = await self.connection.client()
        namespace = "*" if kind.namespaced else None
        watch = client.watch(resource(kind), namespace=namespace, fields=fields, resource_version=version)
        async with contextlib.aclosing(watch) as events:
            while True:
                try:
                    event = await anext(events)
                except Exception as failed:
                    raise self.connection.error(call, failed) from failed
                yield event

    # --- writing ------------------------------------------------------------------------------------------------------

    async def create(
        self, kind: ObjectKind, document: Mapping[str, Any], *, manager: str = MANAGER, namespace: str = ""
    ) -> Document:
        """Create an object and return it. Raises Conflict if the name is in use."""
        call = ApiCall(verb="create", kind=kind, namespace=namespace)
        options = {"namespace": namespace or None, "field_manager": manager}
        return await self._ask(call, lambda client, of: client.create(of(document), **options))

    async def update(self, kind: ObjectKind, document: Mapping[str, Any]) -> Document:
        """Replace an object that has no namespace. Raises Conflict if the server has another version of it."""
        call = ApiCall(verb="update", kind=kind, name=str(document["metadata"]["name"]))
        return await self._ask(call, lambda client, of: client.replace(of(document), field_manager=MANAGER))

    async def patch(
        self,
        kind: ObjectKind,
        name: str,
        change: Mapping[str, Any],
        *,
        manager: str = MANAGER,
        namespace: str = "",
        subresource: str = "",
    ) -> Document:
        """Merge a change into an object and return it. Lists with keys, such as conditions, are merged by item."""
        call = ApiCall(verb="patch", kind=kind, name=name, namespace=namespace, subresource=subresource)
        options = {"namespace": namespace or None, "field_manager": manager}
        return await self._ask(call, lambda client, of: client.patch(of, name, change, **options))

    async def apply(
        self,
        kind: ObjectKind,
        name: str,
        document: Mapping[str, Any],
        *,
        force: bool = False,
        manager: str = MANAGER,
        namespace: str = "",
        subresource: str = "",
    ) -> Document:
        """Server-side apply: fields that the manager applied before and that are not in the document are removed.

        Returns the object. An object that does not exist is created, but not through a subresource. Raises Conflict if
        another manager owns a field with another value, unless `force`.
        """
        call = ApiCall(verb="patch", kind=kind, name=name, namespace=namespace, subresource=subresource)
        whole = {**document, "metadata": {**document.get("metadata", {}), "name": name}}
        options = {"namespace": namespace or None, "field_manager": manager, "force": force}
        return await self._ask(call, lambda client, of: client.apply(of(whole), name, **options))

    async def delete(self, kind: ObjectKind, name: str) -> None:
        """Delete an object that has no namespace. Raises Missing if it does not exist."""
        call = ApiCall(verb="delete", kind=kind, name=name)
        await self._ask(call, lambda client, of: client.delete(of, name))

    async def _ask(self, call: ApiCall, send: Callable[[Any, Any], Awaitable[T]]) -> T:
        self._raise_fault(call)
        return await self.connection.ask(call, send)

    def _raise_fault(self, call: ApiCall) -> None:
        if (fault := self._fault(call)) is not None:
            raise fault
