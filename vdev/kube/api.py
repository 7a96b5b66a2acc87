"""`Api`: the requests that vdev sends to the API server. Objects are plain mappings, as decoded from JSON.

Each write names its field manager. An apply without `force` does not take fields that another manager owns.
"""

import asyncio
import contextlib
import copy
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

from ..aio.clock import PRODUCTION_TIMING, Timing
from ..api_server import NO_SERVER, ApiServerAddress
from ..errors import ApiServerError
from .errors import ApiCall, Denied, Throttled, Unconfigured, Unreachable
from .objects import MANAGER, Object, ObjectKind

if TYPE_CHECKING:
    from .connection import Connection

_JSON = "application/json"
_MERGE = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"
_APPLY = "application/apply-patch+yaml"  # JSON is valid YAML

_PAGE = "500"  # objects in one page of a list, the page size of client-go
_DEAD = 2.0  # a watch that lasts this many times its requested length has lost its connection
_AT_ONCE = 8  # requests in flight, not counting watches
_ATTEMPTS = 4  # of one request, if the server asks to wait and retry

T = TypeVar("T")


FaultHook: TypeAlias = Callable[[ApiCall], ApiServerError | None]
"""Called before each request. If it returns an error, this is raised and the request is not sent."""


class Api:
    """A client of one API server. It connects with the first request; `aclose` closes the connection.

    Without a server, each request raises Unconfigured. `fault` is called before each request. All methods raise an
    ApiServerError (see `errors`) and can be cancelled.
    """

    def __init__(
        self,
        server: ApiServerAddress | None,
        *,
        timing: Timing = PRODUCTION_TIMING,
        fault: FaultHook = lambda call: None,
    ) -> None:
        self.has_server = server is not None
        self.timing = timing
        self._connections = _Connections(server, timing)
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._sent = Counter[str]()  # requests by HTTP method
        self._watches: set[asyncio.Timeout] = set()  # each ends a watch
        self._fault = fault

    def with_fault(self, fault: FaultHook) -> Self:
        """Return a client that shares everything with this one except the fault hook."""
        narrowed = copy.copy(self)
        narrowed._fault = fault
        return narrowed

    @property
    def writes(self) -> int:
        """How many write requests were sent."""
        return self._sent.total() - self._sent["GET"]

    async def connect(self) -> None:
        """Read the kubeconfig or service account, without sending a request. Raises Unconfigured."""
        await self._connections.get()

    async def aclose(self) -> None:
        """Close the connection; the next request opens a new one."""
        await self._connections.aclose()

    def break_watches(self) -> None:
        """End the open watches, so that they are opened again and the fault hook is called for them."""
        now = asyncio.get_running_loop().time()
        while self._watches:
            self._watches.pop().reschedule(now)

    # --- reading ------------------------------------------------------------------------------------------------------

    async def get(self, kind: ObjectKind, name: str, *, namespace: str = "", cached: bool = False) -> dict[str, Any]:
        """Return one object. `cached` allows the server's watch cache, which is cheap but may be a moment old."""
        call = ApiCall(verb="get", kind=kind, name=name, namespace=namespace)
        return await self._ask(call, {"resourceVersion": "0"} if cached else {})

    async def list(
        self,
        kind: ObjectKind,
        *,
        fields: str = "",
        cached: bool = False,
        keep: Callable[[Object], T],
    ) -> tuple[list[T], str]:
        """Return the objects in all namespaces that match a field selector, and their resource version.

        `cached` allows the server's watch cache. `keep` reduces each object to the part that is kept, because thousands
        of whole objects need much memory. Raises Expired if the server forgets the version between two pages.
        """
        call = ApiCall(verb="list", kind=kind)
        page = {"resourceVersion": "0", "resourceVersionMatch": "NotOlderThan"} if cached else {}
        objects: list[T] = []
        while True:
            found = await self._ask(call, _selector(fields) | {"limit": _PAGE} | page)
            objects += [keep(each) for each in found.get("items") or ()]
            metadata = found["metadata"]
            if not metadata.get("continue"):
                return objects, str(metadata.get("resourceVersion") or "")
            page = {"continue": str(metadata["continue"])}

    @contextlib.asynccontextmanager
    async def watch(
        self,
        kind: ObjectKind,
        *,
        version: str,
        seconds: float,
        fields: str = "",
    ) -> AsyncIterator[AsyncIterator[tuple[str, Object, str]]]:
        """Watch for changes since a resource version, for so many seconds; yields the type, object and version of each.

        Raises Expired if the server has forgotten the version, and Unreachable if the watch is interrupted or does not
        end in time.
        """
        call = ApiCall(verb="watch", kind=kind)
        params = _selector(fields) | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(max(1, round(seconds))),
        }
        connection = await self._connections.get()
        self._raise_fault(call)
        scope = asyncio.timeout(None)  # noqa: TID251 - no time, only the way to end a watch
        try:
            async with scope, connection.events(call, params, within=seconds * _DEAD) as events:
                self._watches.add(scope)
                yield events
        except TimeoutError:
            if not scope.expired():
                raise
            raise Unreachable(call, "the watch was broken off") from None
        finally:
            self._watches.discard(scope)

    # --- writing ------------------------------------------------------------------------------------------------------

    async def create(
        self, kind: ObjectKind, document: Mapping[str, Any], *, manager: str = MANAGER, namespace: str = ""
    ) -> dict[str, Any]:
        """Create an object and return it. Raises Conflict if the name is in use."""
        call = ApiCall(verb="create", kind=kind, namespace=namespace)
        return await self._ask(call, {"fieldManager": manager}, _typed(kind, document))

    async def update(self, kind: ObjectKind, document: Mapping[str, Any]) -> dict[str, Any]:
        """Replace an object and return it. Raises Conflict if its resource version on the server is different."""
        metadata = document["metadata"]
        namespace = str(metadata.get("namespace") or "")
        call = ApiCall(verb="update", kind=kind, name=str(metadata["name"]), namespace=namespace)
        return await self._ask(call, {"fieldManager": MANAGER}, _typed(kind, document))

    async def patch(
        self,
        kind: ObjectKind,
        name: str,
        change: Mapping[str, Any],
        *,
        manager: str = MANAGER,
        namespace: str = "",
        subresource: str = "",
        strategic: bool = False,
    ) -> dict[str, Any]:
        """Merge a change into an object and return it; `strategic` merges lists by the keys of their items."""
        call = ApiCall(verb="patch", kind=kind, name=name, namespace=namespace, subresource=subresource)
        form = _STRATEGIC if strategic else _MERGE
        return await self._ask(call, {"fieldManager": manager}, change, form)

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
    ) -> dict[str, Any]:
        """Server-side apply: fields that the manager applied before and that are not in the document are removed.

        Returns the object. `apiVersion`, `kind` and name are filled in. An object that does not exist is created, but
        not through a subresource. Raises Conflict if another manager owns a field with another value, unless `force`.
        """
        call = ApiCall(verb="patch", kind=kind, name=name, namespace=namespace, subresource=subresource)
        full = _typed(kind, document)
        full["metadata"] = {**full.get("metadata", {}), "name": name} | ({"namespace": namespace} if namespace else {})
        params = {"fieldManager": manager, "force": "true" if force else "false"}
        return await self._ask(call, params, full, _APPLY)

    async def delete(self, kind: ObjectKind, name: str, *, uid: str = "", version: str = "") -> None:
        """Delete an object, which must have the given uid and version, if any.

        Raises Missing if it does not exist, and Conflict if it has another uid or version.
        """
        call = ApiCall(verb="delete", kind=kind, name=name)
        given = {"uid": uid, "resourceVersion": version}
        conditions = {key: value for key, value in given.items() if value}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions} if conditions else None
        await self._ask(call, {}, body)

    async def _ask(
        self, call: ApiCall, params: Mapping[str, str], body: object = None, content_type: str = _JSON
    ) -> dict[str, Any]:
        """Send a request and return the document in the response.

        The request is repeated if the server asks to wait a short time, and once after status 401, because the
        credentials may have been renewed. Callers handle all other errors by retrying with a backoff.
        """
        intervals, clock = self.timing
        async with self._slots:  # held while a request waits to be repeated, to send few requests to a busy server
            for attempt in range(_ATTEMPTS):
                try:
                    connection = await self._connections.get()
                    self._raise_fault(call)
                    self._sent[call.method] += 1
                    return await connection.document(call, params, body, content_type)
                except Throttled as busy:
                    if attempt == _ATTEMPTS - 1 or busy.after is None or busy.after > intervals.api_patience:
                        raise
                    await clock.sleep(busy.after)
                except Denied as denied:
                    if denied.known or attempt:
                        raise
            raise AssertionError("unreachable: the last attempt returns or raises")

    def _raise_fault(self, call: ApiCall) -> None:
        if (fault := self._fault(call)) is not None:
            raise fault


def _typed(kind: ObjectKind, document: Mapping[str, Any]) -> dict[str, Any]:
    return {**document, "apiVersion": kind.api_version, "kind": kind.name}


def _selector(fields: str) -> dict[str, str]:
    return {"fieldSelector": fields} if fields else {}


class _Connections:
    """The connection to one server. It is made by the first request, and again if the credentials may have changed."""

    def __init__(self, server: ApiServerAddress | None, timing: Timing) -> None:
        self._server, self._timing = server, timing
        self._connecting = asyncio.Lock()
        self._connection: Connection | None = None

    async def get(self) -> "Connection":
        """Return a connection with current credentials. Raises Unconfigured."""
        if self._server is None:
            raise Unconfigured(NO_SERVER)
        async with self._connecting:
            if self._connection is None or self._connection.is_outdated:
                before = self._connection
                self._connection = await asyncio.to_thread(_connect, self._server, self._timing)
                if before is not None:
                    await before.close_unused()
            return self._connection

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()


def _connect(server: ApiServerAddress, timing: Timing) -> "Connection":
    from .connection import Connection  # imported late: it takes 9 MiB and 0.25 s, and only requests need it

    return Connection(server, timing)
