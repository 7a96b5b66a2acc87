"""`Api`: what vdev can ask of the API server, with documents as plain mappings.

A writer says who it is by the field manager. An apply without `force` takes nothing that somebody else owns.
"""

import contextlib
import copy
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from types import TracebackType
from typing import Any, Self

from ..aio.clock import PRODUCTION_TIMING, Timing
from ..api_server import ApiServerAddress
from .answers import ApiCall
from .calls import LIMIT, NO_FAULT, ApiCalls, ApiRequest, FaultHook, checked
from .follow import Change, Listed, Object, Selection, follow, listing
from .kinds import ObjectKind

MANAGER = "vdev"
_VERSION = ObjectKind("", "", "version", "version", namespaced=False)  # no object, but in sentences it is one


def _whole(each: Object) -> Object:
    return each


_MERGE = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"
_APPLY = "application/apply-patch+yaml"  # of which JSON is a part


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

    async def list(self, kind: ObjectKind, *, namespace: str = "", labels: str = "", fields: str = "") -> Listed:
        """All objects that the selectors choose, in one state; in all namespaces where none is given."""
        return await listing(self._calls, Selection(kind=kind, namespace=namespace, labels=labels, fields=fields))

    async def names(self, kind: ObjectKind, most: int) -> tuple[str, ...]:
        """The names of the first objects of a kind, of so many at most."""
        call = ApiCall(verb="list", kind=kind)
        request = ApiRequest(method="GET", call=call, params={"limit": str(most)}, fault=self._fault)
        items = (await self._calls.ask(request)).get("items")
        return tuple(checked(call, each)["metadata"]["name"] for each in items) if isinstance(items, list) else ()

    def follow(
        self,
        kind: ObjectKind,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        keep: Callable[[Object], Object] = _whole,
    ) -> contextlib.aclosing[AsyncGenerator[Change, None]]:
        """What there is, then each change, forever: `async with api.follow(NODES) as changes: async for …`.

        It outlives a server that goes away (`Lost`, `Back`) and lists again where it must (`Listed`). Raises Denied,
        Missing and Invalid, which waiting does not change. `keep` makes of an object what a `Listed` has of it.
        """
        chosen = Selection(kind=kind, namespace=namespace, labels=labels, fields=fields, keep=keep)
        return contextlib.aclosing(follow(self._calls, chosen))

    async def version(self) -> tuple[int, int]:
        """The server's version: major and minor number."""
        call = ApiCall(verb="get", kind=_VERSION)
        found = await self._calls.ask(ApiRequest(method="GET", call=call, params={}, path="/version"))
        numbers = [re.match("[0-9]*", str(found.get(part, "")))[0] or "0" for part in ("major", "minor")]  # type: ignore[index]
        return int(numbers[0]), int(numbers[1])

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
