"""`Api`: what vdev can ask of the API server, with documents as plain mappings.

A writer says who it is by the field manager. An apply without `force` takes nothing that somebody else owns.
"""

import contextlib
import copy
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, Self, TypeAlias, TypeVar

from ..aio.clock import PRODUCTION_TIMING, Timing
from ..api_server import ApiServerAddress
from ..json_text import parse_json
from .answers import ApiCall, Unreachable, error_in_watch
from .calls import LIMIT, NO_FAULT, ApiCalls, ApiRequest, FaultHook, checked
from .kinds import ObjectKind

MANAGER = "vdev"

_MERGE = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"
_APPLY = "application/apply-patch+yaml"  # of which JSON is a part

_CHUNK = "500"  # objects in one answer to a list
_BATCH = 50  # of them, before others have a turn
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
        self.server = server
        self.timing = timing
        self._calls = ApiCalls(server, timing=timing, at_once=at_once, limit=limit, fault=fault)
        self._fault: FaultHook = NO_FAULT

    def with_fault(self, fault: FaultHook) -> Self:
        """This client, for one of many uses: before a request of this one `fault` is asked as well."""
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
        return await self._ask("GET", call, params={"resourceVersion": "0"} if at_hand else {})

    async def list(
        self,
        kind: ObjectKind,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        not_older: str = "",
        keep: Callable[[Object], T],
    ) -> Listed[T]:
        """All objects that the selectors choose, in one state; in all namespaces where none is given.

        It is as new as can be, or no older than a version ("0": whatever is at hand). `keep` makes of each object what
        is kept of it: thousands of whole ones are much at once. Raises Expired where it takes so long that the server
        forgets what it is listing.
        """
        call = ApiCall(verb="list", kind=kind, namespace=namespace)
        at = {"resourceVersion": not_older, "resourceVersionMatch": "NotOlderThan"} if not_older else {}
        objects: list[T] = []
        more, left = "", self._calls.limit
        while True:
            page = {"continue": more} if more else at
            params = _selectors(labels, fields) | {"limit": _CHUNK} | page
            found, size = await self._calls.ask_sized(ApiRequest(method="GET", call=call, params=params), left)
            left -= size
            items, metadata = found.get("items") or [], found.get("metadata") or {}
            if not isinstance(items, list) or not isinstance(metadata, dict):
                raise Unreachable(call, "what came is no list")
            for start in range(0, len(items), _BATCH):
                if start:
                    await self.timing.clock.sleep(0)  # what is kept of five hundred slices takes 50 ms to make
                objects += [keep(checked(call, each)) for each in items[start : start + _BATCH]]
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
        request = ApiRequest(method="GET", call=call, params=params)
        async with (
            self._calls.watch(request, silence=seconds * _SILENCE) as lines,
            contextlib.aclosing(_events(call, lines)) as events,
        ):
            yield events

    async def names(self, kind: ObjectKind, most: int) -> tuple[str, ...]:
        """The names of the first objects of a kind, of so many at most."""
        call = ApiCall(verb="list", kind=kind)
        request = ApiRequest(method="GET", call=call, params={"limit": str(most)}, fault=self._fault)
        items = (await self._calls.ask(request)).get("items")
        return tuple(checked(call, each)["metadata"]["name"] for each in items) if isinstance(items, list) else ()

    # --- writing ------------------------------------------------------------------------------------------------------

    async def create(
        self, kind: ObjectKind, document: Mapping[str, Any], *, manager: str = MANAGER, namespace: str = ""
    ) -> dict[str, Any]:
        """The object as it was made. Raises Conflict where there is one of this name."""
        call = ApiCall(verb="create", kind=kind, namespace=namespace)
        return await self._ask("POST", call, params={"fieldManager": manager}, body=_typed(kind, document))

    async def update(self, kind: ObjectKind, document: Mapping[str, Any]) -> dict[str, Any]:
        """The object after it was replaced by this one. Raises Conflict where it is not the version that was read."""
        metadata = document["metadata"]
        namespace = str(metadata.get("namespace") or "")
        call = ApiCall(verb="update", kind=kind, name=str(metadata["name"]), namespace=namespace)
        return await self._ask("PUT", call, params={"fieldManager": MANAGER}, body=_typed(kind, document))

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
        return await self._ask("PATCH", call, params={"fieldManager": manager}, body=change, content_type=form)

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
        return await self._ask("PATCH", call, params=params, body=whole, content_type=_APPLY)

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
        await self._calls.ask(ApiRequest(method="DELETE", call=call, params={}, body=body, fault=self._fault))

    async def _ask(
        self,
        method: str,
        call: ApiCall,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        request = ApiRequest(
            method=method, call=call, params=params or {}, body=body, content_type=content_type, fault=self._fault
        )
        return checked(call, await self._calls.ask(request))


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
            checked(call, found)
        metadata = found.get("metadata")
        yield kind, found, str(metadata.get("resourceVersion") or "") if isinstance(metadata, dict) else ""
