"""One request at a time of the many: connected when needed, a bounded number in flight, waiting when asked to.

Each has a deadline and gets another attempt where the server asks to wait, or knows a token no longer that was written
anew meanwhile. Everything else that goes wrong is the caller's to try again. What the server answers and what a fault
rule says in its place go the same way.
"""

import asyncio
import contextlib
import functools
import json
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ..aio.clock import Clock, Timing
from ..aio.tasks import Backoff, Interrupted, Interruption
from ..api_server import ApiServerAddress
from ..errors import ApiServerError
from ..json_text import parse_json
from .answers import ApiCall, Denied, FieldConflict, Throttled, TooLong, Unreachable, error_of

if TYPE_CHECKING:
    from .connection import Connection, HttpAnswer


_T = TypeVar("_T")
LIMIT = 64 * 2**20  # bytes of an answer, of all pages of a list, and of a line of a watch
_AT_ONCE = 8  # requests in flight, besides watches
_ATTEMPTS = 4  # where the server asks to wait
_LARGE = 256 * 1024  # bytes from which an answer is decoded in a thread
_OK = range(200, 300)
_JSON = "application/json"
_ACCEPTED = {"Accept": _JSON, "Accept-Encoding": "identity"}  # a compressed answer may be a thousand times as long


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedAnswer:
    """An answer in place of the server's: its HTTP status, 0 for none at all; `after` is in seconds."""

    status: int = 0
    message: str = "a fault says so"
    after: int | None = None
    conflicts: tuple[FieldConflict, ...] = ()


FaultHook: TypeAlias = Callable[[ApiCall], InjectedAnswer | None]
"""Asked before each request, with what it is about."""


def NO_FAULT(call: ApiCall) -> None:
    del call


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """What is sent for a call."""

    method: str
    call: ApiCall
    params: Mapping[str, str]
    body: object = None
    content_type: str = _JSON
    path: str = ""  # of what is no object; else it is the call's
    fault: FaultHook = NO_FAULT  # asked after that of the client


class ApiCalls:
    """The requests of one client."""

    def __init__(
        self,
        server: ApiServerAddress,
        *,
        timing: Timing,
        at_once: int = _AT_ONCE,
        limit: int = LIMIT,
        fault: FaultHook = NO_FAULT,
    ) -> None:
        self.server = server
        self.limit = limit
        self.intervals, self.clock = timing
        self._fault = fault
        self._slots = asyncio.Semaphore(at_once)
        self._backoff = Backoff(timing.intervals.api_pause_first, timing.intervals.api_pause_most)
        self._not_before = timing.clock.now()
        self._connecting = asyncio.Lock()
        self._connection: Connection | None = None
        self._token: str | None = None  # not read yet
        self._token_at = 0.0
        self._watches: dict[Interruption, None] = {}  # in the order in which they began
        self.writes = 0
        self._broken = 0  # how many times all watches were

    async def ask(self, request: ApiRequest) -> dict[str, Any]:
        """The document that answers. Raises an ApiServerError."""
        return (await self.ask_sized(request, self.limit))[0]

    async def ask_sized(self, request: ApiRequest, limit: int) -> tuple[dict[str, Any], int]:
        """The document that answers, and how many bytes it took, at most `limit`. Raises an ApiServerError."""
        for attempt in range(_ATTEMPTS):
            try:
                return await self._attempt(request, limit)
            except Throttled as throttled:
                pause = throttled.after if throttled.after is not None else self._backoff.pause(attempt)
                if attempt == _ATTEMPTS - 1 or pause > self.intervals.api_patience:
                    raise
                self._pause(pause)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _attempt(self, request: ApiRequest, limit: int) -> tuple[dict[str, Any], int]:
        async with self._slots:
            await self._wait()  # also those that had waited for a slot when the server asked to
            self.writes += request.method != "GET"
            async with self._answer(request) as answer:
                body = await answer.within(self.intervals.api_answer, lambda: answer.body(limit))
        return await _decoded(answer.call, body, self.limit), len(body)

    @contextlib.asynccontextmanager
    async def watch(self, request: ApiRequest, *, silence: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of an answer that goes on; it is broken off after so many seconds of silence."""
        await self._wait()
        begun = self._broken
        async with self._answer(request) as answer, contextlib.aclosing(answer.lines()) as lines:
            yield self._lines(answer, lines, silence, begun)

    def break_watches(self) -> None:
        """End the open watches, so that they begin anew: what the fault hook says is another thing now."""
        self._broken += 1
        for watch in tuple(self._watches):
            watch.interrupt()

    async def aclose(self) -> None:
        """Close the connection; the next request makes another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.retire()

    async def _lines(
        self, answer: "_Speech", lines: AsyncIterator[bytes], silence: float, begun: int
    ) -> AsyncIterator[bytes]:
        """The same lines; each is waited for in a scope of its own, since their reader may wait as well."""
        interruption = Interruption()
        self._watches[interruption] = None
        try:
            while True:
                if begun != self._broken:
                    raise Unreachable(answer.call, "the watch was broken off")
                try:
                    async with interruption:
                        line = await answer.within(silence, lambda: anext(lines, None))
                except Interrupted:
                    continue
                if line is None:
                    return
                yield line
        finally:
            self._watches.pop(interruption, None)

    # --- one request --------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _answer(self, request: ApiRequest) -> AsyncIterator["_Speech"]:
        """The good answer, whose body is read inside. An account that is not known is read anew, once."""
        async with contextlib.AsyncExitStack() as stack:
            try:
                answer = await self._begin(stack, request)
            except Denied as denied:
                if denied.known or not await self._renew():
                    raise
                answer = await self._begin(stack, request)
            yield answer

    async def _begin(self, stack: contextlib.AsyncExitStack, request: ApiRequest) -> "_Speech":
        call = replace(request.call, who=self.server.who)
        if (fault := self._fault(call) or request.fault(call)) is not None:
            raise _error_of(call, fault)
        connection = await self.connect()
        call = replace(call, where=connection.where)
        token = await self._authorization(connection)
        speech = _Speech(connection, call, self.clock, self.limit)
        try:
            asked = connection.ask(
                request.method,
                request.path or call.kind.path(namespace=call.namespace, name=call.name, subresource=call.subresource),
                params=request.params,
                headers=_ACCEPTED | ({"Authorization": token} if token else {}) | _described(request),
                body=None if request.body is None else json.dumps(request.body, separators=(",", ":")).encode(),
            )
            limit = self.intervals.api_answer
            answer = speech.answer = await speech.within(limit, lambda: stack.enter_async_context(asked))
            if answer.status not in _OK:
                raise error_of(call, answer.status, answer.headers, await speech.within(limit, speech.body))
        except Unreachable:
            await self._forget_if_stale()  # the certificate authority may be another one
            raise
        return speech

    # --- pace ---------------------------------------------------------------------------------------------------------

    def _pause(self, seconds: float) -> None:
        """Begin no request before; a little later than asked, and not all clients at once."""
        wait = seconds * random.uniform(1.0, 1.25)
        self._not_before = max(self._not_before, self.clock.now() + wait)

    async def _wait(self) -> None:
        while (wait := self._not_before - self.clock.now()) > 0:
            await self.clock.sleep(wait)

    # --- the connection, and who asks ---------------------------------------------------------------------------------

    async def connect(self) -> "Connection":
        async with self._connecting:
            if self._connection is None:
                self._connection = await asyncio.to_thread(_open, self.server)
                self._token = None
            return self._connection

    async def _authorization(self, connection: "Connection") -> str:
        now = self.clock.now()
        token = self._token
        if token is None or now - self._token_at > self.intervals.api_token:
            self._token = token = await asyncio.to_thread(connection.token)
            self._token_at = now
        return token

    async def _renew(self) -> bool:
        """Read the account anew; whether it may be another one now."""
        if self.server.kubeconfig is not None:
            return await self._forget_if_stale()
        before, self._token = self._token, None
        return await self._authorization(await self.connect()) != before

    async def _forget_if_stale(self) -> bool:
        """Make the next connection from the files as they are now, if they are others."""
        connection = self._connection
        if connection is None or not await asyncio.to_thread(connection.is_stale):
            return False
        if self._connection is connection:
            await self.aclose()
        return True


@dataclass(slots=True)
class _Speech:
    """A request under way: what it raises, and its silence, become errors of ours."""

    connection: "Connection"
    call: ApiCall
    clock: Clock
    limit: int
    answer: "HttpAnswer | None" = None

    async def within(self, seconds: float, work: Callable[[], Awaitable[_T]]) -> _T:
        """What the work gives. Raises Unreachable, Unconfigured."""
        try:
            async with self.clock.timeout(seconds):
                with self.connection.speaking(self.call):
                    return await work()
        except TimeoutError as late:
            raise Unreachable(self.call, f"nothing came within {seconds:g} s") from late
        except TooLong as long:
            raise Unreachable(self.call, f"what it sends is longer than {self.limit / 2**20:g} MiB") from long

    async def body(self, limit: int | None = None) -> bytes:
        assert self.answer is not None
        return await self.answer.body(self.limit if limit is None else limit)

    def lines(self) -> AsyncGenerator[bytes, None]:
        assert self.answer is not None
        return self.answer.lines(self.limit)


def _open(server: ApiServerAddress) -> "Connection":
    from .connection import Connection  # 9 MiB, for those who ask the API server

    return Connection.open(server)


def _described(request: ApiRequest) -> dict[str, str]:
    return {} if request.body is None else {"Content-Type": request.content_type}


async def _decoded(call: ApiCall, body: bytes, limit: int) -> dict[str, Any]:
    parse = functools.partial(parse_json, body, longest=limit)
    try:
        document = await asyncio.to_thread(parse) if len(body) > _LARGE else parse()
    except ValueError as wrong:
        raise Unreachable(call, f"what came is no JSON: {wrong}") from wrong
    if not isinstance(document, dict):
        raise Unreachable(call, "what came is no object")
    return document


def checked(call: ApiCall, document: object) -> dict[str, Any]:
    """The document, which is an object. Raises Unreachable where it is none."""
    from .object_shape import why_no_object  # with the client library, for those who ask the API server

    if not isinstance(document, dict):
        raise Unreachable(call, "what came is no object")
    if why := why_no_object(document):
        raise Unreachable(call, f"what came is no {call.kind.name}: {why}")
    return document


def _error_of(call: ApiCall, fault: InjectedAnswer) -> ApiServerError:
    if not fault.status:
        return Unreachable(call, fault.message)
    causes = [
        {"reason": "FieldManagerConflict", "message": f'conflict with "{each.manager}"', "field": each.field}
        for each in fault.conflicts
    ]
    status = {"message": fault.message, "details": {"name": call.name, "causes": causes}}
    headers = {} if fault.after is None else {"retry-after": str(fault.after)}
    return error_of(call, fault.status, headers, json.dumps(status).encode())
