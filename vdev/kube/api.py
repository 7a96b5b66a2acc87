"""`Api`: what vdev can ask of the API server, with documents as plain mappings.

A writer says who it is by the field manager. An apply without `force` takes nothing that somebody else owns.
"""

import contextlib
import copy
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Generic, Self, TypeAlias, TypeVar

from ..aio.clock import PRODUCTION_TIMING, Timing
from ..api_server import ApiServerAddress
from ..json_text import parse_json
from .answers import ApiCall, Unreachable, error_in_watch
from .calls import JSON, LIMIT, NO_FAULT, ApiCalls, ApiRequest, FaultHook
from .kinds import ObjectKind

MANAGER = "vdev"

_MERGE = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"
_APPLY = "application/apply-patch+yaml"  # of which JSON is a part

_CHUNK = "500"  # objects in one answer to a list
_OBJECT = 2**10  # bytes that an object counts beside its text: in memory, a short one takes many times its length
_SILENCE = 2.0  # times the longest watch, after which the connection must be dead

Object: TypeAlias = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """All objects there are, in one state, or what was kept of them; `version` is that of the state."""

    objects: tuple[T, ...]
    version: str = field(default="", compare=False)


def whole(document: Object) -> Object:
    """All of an object: what is kept where these are few."""
    return document


class Api:
    """One client of one API server. It connects with the first request; `aclose` ends that.

    `fault` is asked before each request and may answer in the server's place (see `calls.FaultHook`). `limit` is how
    many bytes are taken of an answer, of all pages of a list, and of a line of a watch.
    All methods raise an ApiServerError (see `answers`) and end at once when cancelled.
    """

    def __init__(
        self,
        server: ApiServerAddress,
        *,
        timing: Timing = PRODUCTION_TIMING,
        fault: FaultHook = NO_FAULT,
        at_once: int = 8,
        limit: int = LIMIT,
    ) -> None:
        self.timing = timing
        self._calls = ApiCalls(server, timing=timing, at_once=at_once, limit=limit)
        self._fault = fault

    def with_fault(self, fault: FaultHook) -> Self:
        """This client, for one of many uses: before a request of this one `fault` is asked instead."""
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
        return self._calls.writes

    async def connect(self) -> None:
        """Read what says how to reach the server. Raises Unconfigured; whether a server is there is not known then."""
        await self._calls.connect()

    async def aclose(self) -> None:
        """Close the connection; another request would make a new one."""
        await self._calls.aclose()

    def break_watches(self) -> None:
        """Let open watches begin anew, and so ask the fault hook."""
        self._calls.break_watches()

    # --- reading ------------------------------------------------------------------------------------------------------

    async def get(self, kind: ObjectKind, name: str, *, namespace: str = "", at_hand: bool = False) -> dict[str, Any]:
        """One object; `at_hand`: as the API server's cache has it, which may be a moment old and is cheap for it."""
        call = ApiCall(verb="get", kind=kind, name=name, namespace=namespace)
        return await self._ask_object(call, {"resourceVersion": "0"} if at_hand else {})

    async def list(
        self,
        kind: ObjectKind,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        at_hand: bool = False,
        keep: Callable[[Object], T],
    ) -> Listed[T]:
        """All objects that the selectors choose, in one state; in all namespaces where none is given.

        It is as new as can be, or (`at_hand`) as the server's cache has it. `keep` makes of each object what
        is kept of it: thousands of whole ones are much at once. Raises Expired where it takes so long that the server
        forgets what it is listing.
        """
        call = ApiCall(verb="list", kind=kind, namespace=namespace)
        at = {"resourceVersion": "0", "resourceVersionMatch": "NotOlderThan"} if at_hand else {}
        objects: list[T] = []
        more, left = "", self._calls.limit
        while True:
            page = {"continue": more} if more else at
            params = _selectors(labels, fields) | {"limit": _CHUNK} | page
            found, size = await self._calls.ask(ApiRequest(call=call, params=params, fault=self._fault), left)
            items, metadata = found.get("items") or [], found.get("metadata") or {}
            if not isinstance(items, list) or not isinstance(metadata, dict):
                raise Unreachable(call, "what came is no list")
            left -= size + len(items) * _OBJECT
            objects += [keep(_checked(call, each)) for each in items]
            if not (more := str(metadata.get("continue") or "")):
                return Listed(tuple(objects), str(metadata.get("resourceVersion") or ""))

    @contextlib.asynccontextmanager
    async def watch(
        self,
        kind: ObjectKind,
        *,
        version: str,
        seconds: float,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
    ) -> AsyncIterator[AsyncIterator[tuple[str, Object, str]]]:
        """What happens after a version, for so many seconds: the type of each event, the object, and its version.

        Events of the types ADDED, MODIFIED and DELETED have an object that was checked. Raises Expired where the
        version is forgotten.
        """
        call = ApiCall(verb="watch", kind=kind, namespace=namespace)
        params = _selectors(labels, fields) | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(max(1, round(seconds))),
        }
        request = ApiRequest(call=call, params=params, fault=self._fault)
        async with (
            self._calls.watch(request, silence=seconds * _SILENCE) as lines,
            contextlib.aclosing(_events(call, lines)) as events,
        ):
            yield events

    # --- writing ------------------------------------------------------------------------------------------------------

    async def create(
        self, kind: ObjectKind, document: Mapping[str, Any], *, manager: str = MANAGER, namespace: str = ""
    ) -> dict[str, Any]:
        """The object as it was made. Raises Conflict where there is one of this name."""
        call = ApiCall(verb="create", kind=kind, namespace=namespace)
        return await self._ask_object(call, {"fieldManager": manager}, _typed(kind, document))

    async def update(self, kind: ObjectKind, document: Mapping[str, Any]) -> dict[str, Any]:
        """The object after it was replaced by this one. Raises Conflict where it is not the version that was read."""
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
        """The object after this was merged into it; `strategic`: lists by the keys of their items."""
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
        """The object after a server-side apply of all that `manager` wants; what it wanted before and not now goes.

        Version, kind and name are filled in. An object that is not there is made, except by a subresource.
        Raises Conflict, with what they are, where others own a field with another value, unless `force` takes it over.
        """
        call = ApiCall(verb="patch", kind=kind, name=name, namespace=namespace, subresource=subresource)
        whole = _typed(kind, document)
        whole["metadata"] = {**whole.get("metadata", {}), "name": name} | (
            {"namespace": namespace} if namespace else {}
        )
        params = {"fieldManager": manager, "force": "true" if force else "false"}
        return await self._ask_object(call, params, whole, _APPLY)

    async def delete(
        self, kind: ObjectKind, name: str, *, namespace: str = "", uid: str = "", version: str = ""
    ) -> None:
        """Delete an object, with a uid or version only if it has that one.

        Raises Missing if there is none, and Conflict if it is another one.
        """
        call = ApiCall(verb="delete", kind=kind, name=name, namespace=namespace)
        given = {"uid": uid, "resourceVersion": version}
        conditions = {key: value for key, value in given.items() if value}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions} if conditions else None
        await self._ask(ApiRequest(call=call, params={}, body=body))

    async def _ask_object(
        self, call: ApiCall, params: Mapping[str, str], body: object = None, content_type: str = JSON
    ) -> dict[str, Any]:
        request = ApiRequest(call=call, params=params, body=body, content_type=content_type)
        return _checked(call, await self._ask(request))

    async def _ask(self, request: ApiRequest) -> dict[str, Any]:
        return (await self._calls.ask(replace(request, fault=self._fault), self._calls.limit))[0]


def _checked(call: ApiCall, document: object) -> dict[str, Any]:
    """The document, if it is an object with a name. Raises Unreachable."""
    if isinstance(document, dict) and isinstance(metadata := document.get("metadata"), dict) and "name" in metadata:
        return document
    raise Unreachable(call, f"what came is no {call.kind.name}")


def _typed(kind: ObjectKind, document: Mapping[str, Any]) -> dict[str, Any]:
    return {**document, "apiVersion": kind.api_version, "kind": kind.name}


def _selectors(labels: str, fields: str) -> dict[str, str]:
    given = {"labelSelector": labels, "fieldSelector": fields}
    return {name: value for name, value in given.items() if value}


async def _events(call: ApiCall, lines: AsyncIterator[bytes]) -> AsyncGenerator[tuple[str, Object, str], None]:
    async for line in lines:
        try:
            event = parse_json(line)
            kind, found = event["type"], dict(event["object"])
        except (ValueError, LookupError, TypeError) as wrong:
            raise Unreachable(call, "what came in a watch is no event") from wrong
        if kind == "ERROR":
            raise error_in_watch(call, found)
        if kind in ("ADDED", "MODIFIED", "DELETED"):
            _checked(call, found)
        metadata = found.get("metadata")
        yield kind, found, str(metadata.get("resourceVersion") or "") if isinstance(metadata, dict) else ""
