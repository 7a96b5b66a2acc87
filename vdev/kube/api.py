"""`Api`: the requests that vdev sends to the API server. Objects are plain mappings, as decoded from JSON.

Each write names its field manager. An apply without `force` does not take fields that another manager owns.
"""

import asyncio
import contextlib
import copy
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar
from urllib.parse import urlencode

from ..aio.clock import PRODUCTION_TIMING, Timing
from ..aio.tasks import Interrupted, Interruption
from ..api_server import ApiServerAddress
from ..errors import ApiServerError
from .errors import ApiCall, Denied, Throttled, Unconfigured, Unreachable, error_of
from .objects import Object, ObjectKind

if TYPE_CHECKING:
    import httpx2 as httpx

MANAGER = "vdev"

_JSON = "application/json"
_MERGE = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"
_APPLY = "application/apply-patch+yaml"  # JSON is valid YAML
_METHODS = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}  # by verb; the others are GET

_PAGE = "500"  # objects in one page of a list, the page size of client-go
_MOST_PAGES = 400  # of a list; Kubernetes supports up to 150,000 pods in a cluster
_DEAD = 2.0  # a watch that lasts this many times its requested length has lost its connection
_AT_ONCE = 8  # requests in flight, not counting watches
_ATTEMPTS = 4  # of one request, if the server asks to wait and retry
_RENEWAL = 600.0  # seconds; a kubelet replaces a token that is valid for one hour after 48 minutes
_SHOWN = 400  # characters in messages of a response that is not a Status, such as a proxy's error page

T = TypeVar("T")


FaultHook: TypeAlias = Callable[[ApiCall], ApiServerError | None]
"""Called before each request. If it returns an error, this is raised and the request is not sent."""


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """The results of `keep` for all objects, at one resource version."""

    objects: tuple[T, ...]
    version: str = ""


def whole(document: Object) -> Object:
    """Keep the whole object: a `keep` function for kinds with few objects."""
    return document


class Api:
    """A client of one API server. It connects with the first request; `aclose` closes the connection.

    `fault` is called before each request. All methods raise an ApiServerError (see `errors`) and can be cancelled.
    """

    def __init__(
        self,
        server: ApiServerAddress,
        *,
        timing: Timing = PRODUCTION_TIMING,
        fault: FaultHook = lambda call: None,
    ) -> None:
        self.timing = timing
        self._connection = _Connection(server, timing)
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._sent = Counter[str]()  # requests by verb
        self._watches: list[Interruption] = []
        self._fault = fault

    def with_fault(self, fault: FaultHook) -> Self:
        """Return a client that shares everything with this one except the fault hook."""
        narrowed = copy.copy(self)
        narrowed._fault = fault
        return narrowed

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def writes(self) -> int:
        """How many write requests were sent."""
        return sum(self._sent[verb] for verb in _METHODS)

    async def connect(self) -> None:
        """Read the kubeconfig or service account, without sending a request. Raises Unconfigured."""
        await self._connection.open()

    async def aclose(self) -> None:
        """Close the connection; the next request opens a new one."""
        await self._connection.aclose()

    def break_watches(self) -> None:
        """End the open watches, so that they are opened again and the fault hook is called for them."""
        for watch in tuple(self._watches):
            watch.interrupt()

    # --- reading ------------------------------------------------------------------------------------------------------

    async def get(self, kind: ObjectKind, name: str, *, namespace: str = "", cached: bool = False) -> dict[str, Any]:
        """Return one object. `cached` allows the server's watch cache, which is cheap but may be a moment old."""
        call = ApiCall(verb="get", kind=kind, name=name, namespace=namespace)
        return _checked(call, await self._ask(call, {"resourceVersion": "0"} if cached else {}))

    async def list(
        self,
        kind: ObjectKind,
        *,
        fields: str = "",
        cached: bool = False,
        keep: Callable[[Object], T],
    ) -> Listed[T]:
        """Return the objects in all namespaces that match a field selector, at one resource version.

        `cached` allows the server's watch cache. `keep` reduces each object to the part that is kept, because thousands
        of whole objects need much memory. Raises Expired if the server forgets the version between two pages.
        """
        call = ApiCall(verb="list", kind=kind)
        page = {"resourceVersion": "0", "resourceVersionMatch": "NotOlderThan"} if cached else {}
        objects: list[T] = []
        for _ in range(_MOST_PAGES):
            found = await self._ask(call, _selector(fields) | {"limit": _PAGE} | page)
            try:
                items, metadata = list(found.get("items") or ()), dict(found.get("metadata") or {})
            except (TypeError, ValueError) as odd:
                raise Unreachable(call, "the answer is not a list") from odd
            objects += [keep(_checked(call, each)) for each in items]
            if not metadata.get("continue"):
                return Listed(tuple(objects), str(metadata.get("resourceVersion") or ""))
            page = {"continue": str(metadata["continue"])}
        raise Unreachable(call, f"the list has more than {_MOST_PAGES} pages")

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
        self._raise_fault(call)
        interruption = Interruption()
        self._watches.append(interruption)
        try:
            async with (
                interruption,
                self._connection.answer(call, params, within=seconds * _DEAD) as response,
                contextlib.aclosing(_events(call, response)) as events,
            ):
                yield events
        except Interrupted:
            raise Unreachable(call, "the watch was broken off") from None
        finally:
            self._watches.remove(interruption)

    # --- writing ------------------------------------------------------------------------------------------------------

    async def create(
        self, kind: ObjectKind, document: Mapping[str, Any], *, manager: str = MANAGER, namespace: str = ""
    ) -> dict[str, Any]:
        """Create an object and return it. Raises Conflict if the name is in use."""
        call = ApiCall(verb="create", kind=kind, namespace=namespace)
        return _checked(call, await self._ask(call, {"fieldManager": manager}, _typed(kind, document)))

    async def update(self, kind: ObjectKind, document: Mapping[str, Any]) -> dict[str, Any]:
        """Replace an object and return it. Raises Conflict if its resource version on the server is different."""
        metadata = document["metadata"]
        namespace = str(metadata.get("namespace") or "")
        call = ApiCall(verb="update", kind=kind, name=str(metadata["name"]), namespace=namespace)
        return _checked(call, await self._ask(call, {"fieldManager": MANAGER}, _typed(kind, document)))

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
        return _checked(call, await self._ask(call, {"fieldManager": manager}, change, form))

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
        return _checked(call, await self._ask(call, params, full, _APPLY))

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
                    self._raise_fault(call)
                    self._sent[call.verb] += 1
                    async with self._connection.answer(
                        call, params, body, content_type, within=intervals.api_answer
                    ) as response:
                        text = await response.aread()
                    return _json_object(call, text)
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


def _checked(call: ApiCall, document: object) -> dict[str, Any]:
    """Return the document if it is an object with a name. Raises Unreachable."""
    metadata = document.get("metadata") if isinstance(document, dict) else None
    if isinstance(document, dict) and isinstance(metadata, dict) and isinstance(metadata.get("name"), str):
        return document
    raise Unreachable(call, f"the answer is not a {call.kind.name}")


def _typed(kind: ObjectKind, document: Mapping[str, Any]) -> dict[str, Any]:
    return {**document, "apiVersion": kind.api_version, "kind": kind.name}


def _selector(fields: str) -> dict[str, str]:
    return {"fieldSelector": fields} if fields else {}


async def _events(call: ApiCall, response: "httpx.Response") -> AsyncGenerator[tuple[str, Object, str], None]:
    """Yield the type of each event, its object and its resource version."""
    # Not `aiter_lines`: it also splits at U+2028 and similar characters, which JSON allows inside strings.
    rest = b""
    async for chunk in response.aiter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield _event(call, line)
    if rest:
        raise Unreachable(call, "the answer ends in the middle of a line")


def _event(call: ApiCall, line: bytes) -> tuple[str, Object, str]:
    try:
        event = json.loads(line)
        kind, found = str(event["type"]), dict(event["object"])
        if kind == "ERROR":
            raise error_of(call, int(found.get("code") or HTTPStatus.INTERNAL_SERVER_ERROR), found)
        version = str(found["metadata"].get("resourceVersion") or "")
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as odd:
        raise Unreachable(call, "a line of the watch is not an event") from odd
    return kind, found if kind == "BOOKMARK" else _checked(call, found), version


def _json_object(call: ApiCall, text: bytes) -> dict[str, Any]:
    """Decode a JSON object. Raises Unreachable if the text is anything else."""
    found: object = None
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(text)
    if isinstance(found, dict):
        return found
    raise Unreachable(call, "the answer is not a JSON object")


class _Connection:
    """The HTTP client for one server. It is replaced when the credentials may have changed."""

    def __init__(self, server: ApiServerAddress, timing: Timing) -> None:
        self._server = server
        self._intervals, self._clock = timing
        self._connecting = asyncio.Lock()
        self._http: httpx.AsyncClient | None = None
        self._renew_at = 0.0  # when the next request reads the credentials again
        self._users: Counter[httpx.AsyncClient] = Counter()  # open requests by client

    @contextlib.asynccontextmanager
    async def answer(
        self, call: ApiCall, params: Mapping[str, str], body: object = None, content_type: str = _JSON, *, within: float
    ) -> AsyncIterator["httpx.Response"]:
        """Send a request and yield the response if it is a success, all within so many seconds.

        The response, even that of a watch, must begin within the timeout for one answer.
        """
        http = await self.open()
        from . import connection  # already imported in a thread by `open`, because the first import takes 0.25 s

        call.who, call.where = self._server.who, str(http.base_url).rstrip("/")
        path = call.kind.path(namespace=call.namespace, name=call.name, subresource=call.subresource)
        request = http.build_request(
            _METHODS.get(call.verb, "GET"),
            f"{call.where}{path}?{urlencode(params)}",  # absolute: the library would parse a relative URL twice
            headers=None if body is None else {"Content-Type": content_type},
            content=None if body is None else json.dumps(body, separators=(",", ":")).encode(),
        )
        self._users[http] += 1
        try:
            async with self._clock.timeout(within):
                try:
                    async with self._clock.timeout(self._intervals.api_answer):
                        response = await http.send(request, stream=True)
                except connection.NO_ANSWER:
                    raise
                except TimeoutError as late:  # a watch lasts longer, but its response begins at once
                    raise Unreachable(call, f"no answer within {self._intervals.api_answer:g} s") from late
                except Exception as failed:  # e.g. a credential plugin of the kubeconfig failed
                    raise Unconfigured(f"{call.who} cannot be used: {connection.reason(failed)}") from failed
                async with contextlib.aclosing(response):
                    if not response.is_success:
                        raise await _refusal(call, response)
                    yield response
        except TimeoutError as late:
            raise Unreachable(call, f"no complete answer within {within:g} s") from late
        except connection.NO_ANSWER as failed:
            if isinstance(failed, connection.ConnectError):
                self._forget(http)
            raise Unreachable(call, connection.reason(failed)) from failed
        except Denied as denied:
            if not denied.known:
                self._forget(http)
            raise
        finally:
            self._users[http] -= 1
            if self._http is not http:
                await self._close_unused(http)

    async def open(self) -> "httpx.AsyncClient":
        """Return the client. Raises Unconfigured."""
        if self._http is None or self._clock.now() >= self._renew_at:
            async with self._connecting:
                if self._http is None or self._clock.now() >= self._renew_at:
                    before, self._http = self._http, await asyncio.to_thread(_connect, self._server)
                    self._renew_at = self._clock.now() + _RENEWAL
                    if before is not None:
                        await self._close_unused(before)
        return self._http

    async def aclose(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    def _forget(self, http: "httpx.AsyncClient") -> None:
        """Let the next request read the files again: credentials, address or CA may have changed."""
        if self._http is http:
            self._http = None

    async def _close_unused(self, http: "httpx.AsyncClient") -> None:
        """Close an old client after its last request; earlier, this would break connections that are being made."""
        if not self._users[http]:
            del self._users[http]
            await http.aclose()


async def _refusal(call: ApiCall, response: "httpx.Response") -> ApiServerError:
    """Return the error for a response. If its body is not a Status, e.g. from a proxy, its text becomes the message."""
    after = response.headers.get("retry-after", "").strip()  # the API server sends no dates
    body = await response.aread()
    try:
        status = _json_object(call, body)
    except Unreachable:
        status = {"message": " ".join(body.decode(errors="replace").split())[:_SHOWN]}
    return error_of(call, response.status_code, status, float(after) if after.isdecimal() else None)


def _connect(server: ApiServerAddress) -> "httpx.AsyncClient":
    from .connection import connect  # imported late: it takes 9 MiB, and only requests need it

    return connect(server)
