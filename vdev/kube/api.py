"""`Api`: what vdev can ask of the API server. Objects are plain mappings, as JSON has them.

The field manager of a write says who writes. An apply without `force` takes no field that somebody else owns.
"""

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Any, Generic, Self, TypeAlias, TypeVar

from ..aio.clock import PRODUCTION_TIMING, Timing
from ..api_server import ApiServerAddress
from ..errors import ApiServerError
from .answers import ApiCall, Denied, Throttled, Unreachable, error_of, json_object
from .calls import JSON, LIMIT, Session
from .objects import Object, ObjectKind

MANAGER = "vdev"

_MERGE = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"
_APPLY = "application/apply-patch+yaml"  # JSON is a part of YAML

_OBJECT = 2**10  # bytes that an object of a list counts beside its text: a short one takes many times its length
_PAGE = "500"  # objects in one answer to a list, as client-go has it
_DEAD = 2.0  # times the length of a watch, after which its connection must be dead
_AT_ONCE = 8  # requests in flight, beside watches
_ATTEMPTS = 4  # if the server asks to wait

T = TypeVar("T")


FaultHook: TypeAlias = Callable[[ApiCall], ApiServerError | None]
"""Asked before each request; returns the error to raise in place of it, if any."""


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """All objects, or what `keep` made of them, at one resource version."""

    objects: tuple[T, ...]
    version: str = ""


def whole(document: Object) -> Object:
    """For `keep`, if there are few objects: keep all of each."""
    return document


class Api:
    """One client of one API server. It connects with the first request; `aclose` ends that.

    `fault` is asked before each request. `limit` is the number of bytes that are read of an answer, of all pages of a
    list, and of a line of a watch; a longer one is an error. All methods raise an ApiServerError (see `answers`), and
    end at once when cancelled.
    """

    def __init__(
        self,
        server: ApiServerAddress,
        *,
        timing: Timing = PRODUCTION_TIMING,
        fault: FaultHook = lambda call: None,
        limit: int = LIMIT,
    ) -> None:
        self.timing = timing
        self._session = Session(server, timing, limit)
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._fault = fault

    def with_fault(self, fault: FaultHook) -> Self:
        """Return a client that uses the same connection and asks this hook instead."""
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
        """How many requests were to change something."""
        return self._session.writes

    async def connect(self) -> None:
        """Read kubeconfig or service account. Raises Unconfigured. Nothing is sent yet."""
        await self._session.connect()

    async def aclose(self) -> None:
        """Close the connection; another request makes a new one."""
        await self._session.aclose()

    def break_watches(self) -> None:
        """End the open watches, so that they begin again and the fault hook is asked about them."""
        self._session.break_watches()

    # --- reading ------------------------------------------------------------------------------------------------------

    async def get(self, kind: ObjectKind, name: str, *, namespace: str = "", cached: bool = False) -> dict[str, Any]:
        """Return one object. `cached` takes it from the server's watch cache: cheap, and perhaps a moment old."""
        call = ApiCall(verb="get", kind=kind, name=name, namespace=namespace)
        return await self._ask_object(call, {"resourceVersion": "0"} if cached else {})

    async def list(
        self,
        kind: ObjectKind,
        *,
        fields: str = "",
        cached: bool = False,
        keep: Callable[[Object], T],
    ) -> Listed[T]:
        """Return all objects of all namespaces that a field selector chooses, at one resource version.

        `cached` takes them from the server's watch cache. `keep` returns what is kept of an object: thousands of whole
        ones take much memory. Raises Expired if the server forgets the version between two pages.
        """
        call = ApiCall(verb="list", kind=kind)
        start = {"resourceVersion": "0", "resourceVersionMatch": "NotOlderThan"} if cached else {}
        objects: list[T] = []
        more = ""
        while True:
            page = {"continue": more} if more else start
            found = await self._ask(call, _selector(fields) | {"limit": _PAGE} | page)
            items, metadata = found.get("items") or [], found.get("metadata") or {}
            if not isinstance(items, list) or not isinstance(metadata, dict):
                raise Unreachable(call, "the answer is not a list")
            objects += [keep(_checked(call, each)) for each in items]
            call.received += len(items) * _OBJECT
            more = str(metadata.get("continue") or "")
            if not more:
                return Listed(tuple(objects), str(metadata.get("resourceVersion") or ""))

    @contextlib.asynccontextmanager
    async def watch(
        self,
        kind: ObjectKind,
        *,
        version: str,
        seconds: float,
        fields: str = "",
    ) -> AsyncIterator[AsyncIterator[tuple[str, Object, str]]]:
        """Follow changes since a resource version, for so many seconds: the type of each event, object and version.

        Raises Expired if the server has forgotten the version.
        """
        call = ApiCall(verb="watch", kind=kind)
        params = _selector(fields) | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(max(1, round(seconds))),
        }
        self._raise_fault(call)
        async with self._session.watch(call, params, seconds * _DEAD) as lines:
            yield (_event(call, line) async for line in lines)

    # --- writing ------------------------------------------------------------------------------------------------------

    async def create(
        self, kind: ObjectKind, document: Mapping[str, Any], *, manager: str = MANAGER, namespace: str = ""
    ) -> dict[str, Any]:
        """Create an object and return it. Raises Conflict if there is one of this name."""
        call = ApiCall(verb="create", kind=kind, namespace=namespace)
        return await self._ask_object(call, {"fieldManager": manager}, _typed(kind, document))

    async def update(self, kind: ObjectKind, document: Mapping[str, Any]) -> dict[str, Any]:
        """Replace an object and return it. Raises Conflict if the server has another version than the document."""
        metadata = document["metadata"]
        namespace = str(metadata.get("namespace") or "")
        call = ApiCall(verb="update", kind=kind, name=str(metadata["name"]), namespace=namespace)
        return await self._ask_object(call, {"fieldManager": MANAGER}, _typed(kind, document))

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
        return await self._ask_object(call, {"fieldManager": manager}, change, form)

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

        Returns the object. `apiVersion`, `kind` and name are filled in. An object that does not exist is created,
        except by a subresource. Raises Conflict if others own a field with another value; `force` takes it over.
        """
        call = ApiCall(verb="patch", kind=kind, name=name, namespace=namespace, subresource=subresource)
        full = _typed(kind, document)
        full["metadata"] = {**full.get("metadata", {}), "name": name} | ({"namespace": namespace} if namespace else {})
        params = {"fieldManager": manager, "force": "true" if force else "false"}
        return await self._ask_object(call, params, full, _APPLY)

    async def delete(self, kind: ObjectKind, name: str, *, uid: str = "", version: str = "") -> None:
        """Delete an object; with a uid or version, only if it has that one.

        Raises Missing if there is none, and Conflict if it has another uid or version.
        """
        call = ApiCall(verb="delete", kind=kind, name=name)
        given = {"uid": uid, "resourceVersion": version}
        conditions = {key: value for key, value in given.items() if value}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions} if conditions else None
        await self._ask(call, {}, body)

    async def _ask_object(
        self, call: ApiCall, params: Mapping[str, str], body: object = None, content_type: str = JSON
    ) -> dict[str, Any]:
        return _checked(call, await self._ask(call, params, body, content_type))

    async def _ask(
        self, call: ApiCall, params: Mapping[str, str], body: object = None, content_type: str = JSON
    ) -> dict[str, Any]:
        """Return the document that the server answers.

        A request is repeated if the server asks to wait a short time, and once if it does not know the account, because
        credentials may have been renewed. All other errors are left to the callers, which try again with growing
        pauses.
        """
        intervals, clock = self.timing
        async with self._slots:  # also while a request waits, so that a server that refuses all requests gets few
            for attempt in range(_ATTEMPTS):
                try:
                    self._raise_fault(call)
                    return await self._session.ask(call, params, body, content_type)
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


def _event(call: ApiCall, line: bytes) -> tuple[str, Object, str]:
    """The type of an event, its object and the version."""
    event = json_object(line) or {}
    kind, found = event.get("type"), event.get("object")
    if not isinstance(kind, str) or not isinstance(found, dict):
        raise Unreachable(call, "a line of the watch is not an event")
    if kind == "ERROR":
        code = found.get("code")
        raise error_of(call, code if isinstance(code, int) else HTTPStatus.INTERNAL_SERVER_ERROR, found)
    if kind in ("ADDED", "MODIFIED", "DELETED"):
        _checked(call, found)
    metadata = found.get("metadata")
    return kind, found, str(metadata.get("resourceVersion") or "") if isinstance(metadata, dict) else ""
