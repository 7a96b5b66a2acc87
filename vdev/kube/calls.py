"""Requests: method, path and body to the document that answers, or to an ApiServerError.

The client connects when needed, has a bounded number of requests in flight, and waits when the server asks to. Each
request has a deadline. It gets another attempt where the server asks to wait, or does not know the account: this is
read again then. Everything else that goes wrong is the caller's to try again. What a fault rule says in the place of
the server goes the same way as what the server answers.
"""

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from ..aio.clock import Timing
from ..aio.tasks import Backoff, Interrupted, Interruption
from ..api_server import ApiServerAddress
from ..errors import ApiServerError
from ..json_text import parse_json
from .answers import ApiCall, Denied, Throttled, Unreachable, error_of

if TYPE_CHECKING:
    import httpx2 as httpx

    from .connection import Connection

LIMIT = 64 * 2**20  # bytes of an answer, of all pages of a list, and of a line of a watch
_ATTEMPTS = 4  # where the server asks to wait
_LARGE = 256 * 1024  # bytes from which an answer is decoded in a thread
_OK = range(200, 300)
_METHODS = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}  # by verb; the others are GET
JSON = "application/json"
_ACCEPTED = {"Accept": JSON, "Accept-Encoding": "identity"}  # a compressed answer may be a thousand times as long


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedAnswer:
    """An answer in place of the server's: its HTTP status, 0 for none at all; `after` is in seconds."""

    status: int = 0
    message: str = "a fault says so"
    after: int | None = None

    def error(self, call: ApiCall) -> ApiServerError:
        if not self.status:
            return Unreachable(call, self.message)
        status = {"message": self.message, "details": {"name": call.name}}
        headers = {} if self.after is None else {"retry-after": str(self.after)}
        return error_of(call, self.status, headers, json.dumps(status).encode())


FaultHook: TypeAlias = Callable[[ApiCall], InjectedAnswer | None]
"""Asked before each request, with what it is about."""


def NO_FAULT(call: ApiCall) -> None:
    del call


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """What is sent for a call. `path` is that of what is no object. `fault` is asked first."""

    call: ApiCall
    params: Mapping[str, str]
    body: object = None
    content_type: str = JSON
    path: str = ""
    fault: FaultHook = NO_FAULT

    @property
    def method(self) -> str:
        return _METHODS.get(self.call.verb, "GET")


class ApiCalls:
    """The requests of one client. `writes` counts those that were to change something."""

    def __init__(self, server: ApiServerAddress, *, timing: Timing, at_once: int, limit: int) -> None:
        self.limit = limit
        self.writes = 0
        self._server = server
        self._intervals, self._clock = timing
        self._slots = asyncio.Semaphore(at_once)
        self._backoff = Backoff(timing.intervals.api_pause_first, timing.intervals.api_pause_most)
        self._not_before = self._clock.now()
        self._connecting = asyncio.Lock()
        self._connection: Connection | None = None
        self._token_at = 0.0
        self._watches: list[Interruption] = []

    async def ask(self, request: ApiRequest, limit: int) -> tuple[dict[str, Any], int]:
        """The document that answers, and how many bytes it took, at most `limit`. Raises an ApiServerError."""
        for attempt in range(_ATTEMPTS):
            try:
                return await self._attempt(request, limit)
            except Throttled as throttled:
                pause = throttled.after if throttled.after is not None else self._backoff.pause(attempt)
                if attempt == _ATTEMPTS - 1 or pause > self._intervals.api_patience:
                    raise
                # All requests wait, a little longer than asked, and not those of all clients at once.
                until = self._clock.now() + pause * random.uniform(1.0, 1.25)
                self._not_before = max(self._not_before, until)
        raise AssertionError("unreachable: the last attempt returns or raises")

    @contextlib.asynccontextmanager
    async def watch(self, request: ApiRequest, *, silence: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of an answer that goes on; it is broken off after so many seconds of silence."""
        interruption = Interruption()
        self._watches.append(interruption)
        try:
            async with interruption:
                await self._wait()
                async with (
                    self._answer(request) as (call, response),
                    contextlib.aclosing(self._lines(call, response, silence)) as lines,
                ):
                    yield lines
        except Interrupted:
            raise Unreachable(request.call, "the watch was broken off") from None
        finally:
            self._watches.remove(interruption)

    def break_watches(self) -> None:
        """End the open watches, so that they begin anew: what the fault hook says is another thing now."""
        for watch in tuple(self._watches):
            watch.interrupt()

    async def aclose(self) -> None:
        """Close the connection; the next request makes another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.http.aclose()

    # --- one request --------------------------------------------------------------------------------------------------

    async def _attempt(self, request: ApiRequest, limit: int) -> tuple[dict[str, Any], int]:
        async with self._slots:
            await self._wait()  # also those that had waited for a slot when the server asked to
            self.writes += request.method != "GET"
            async with self._answer(request) as (call, response):
                body = await self._body(call, response, limit)
        try:
            document = await asyncio.to_thread(parse_json, body) if len(body) > _LARGE else parse_json(body)
        except ValueError as wrong:
            raise Unreachable(call, f"what came is no JSON: {wrong}") from wrong
        if not isinstance(document, dict):
            raise Unreachable(call, "what came is no object")
        return document, len(body)

    async def _wait(self) -> None:
        while (wait := self._not_before - self._clock.now()) > 0:
            await self._clock.sleep(wait)

    @contextlib.asynccontextmanager
    async def _answer(self, request: ApiRequest) -> AsyncIterator[tuple[ApiCall, "httpx.Response"]]:
        """The good answer, whose body is read inside, and the call with who asks whom."""
        call = replace(request.call, who=self._server.who)
        if (fault := request.fault(call)) is not None:
            raise fault.error(call)
        async with contextlib.AsyncExitStack() as stack:
            connection = await self.connect()
            call = replace(call, where=connection.where)
            try:
                response = await self._begin(stack, connection, request, call)
            except Denied as denied:
                if denied.known:
                    raise
                # Token, password or certificate may have been renewed.
                await self._leave(connection)
                response = await self._begin(stack, await self.connect(), request, call)
            yield call, response

    async def _begin(
        self, stack: contextlib.AsyncExitStack, connection: "Connection", request: ApiRequest, call: ApiCall
    ) -> "httpx.Response":
        from .connection import ConnectError  # imported with the connection

        headers = dict(_ACCEPTED)
        content = None
        if request.body is not None:
            headers["Content-Type"] = request.content_type
            content = json.dumps(request.body, separators=(",", ":")).encode()
        path = request.path or call.kind.path(namespace=call.namespace, name=call.name, subresource=call.subresource)
        asked = connection.http.stream(request.method, path, params=request.params, headers=headers, content=content)
        try:
            async with self._within(call, self._intervals.api_answer):
                response = await stack.enter_async_context(asked)
        except Unreachable as failed:
            if isinstance(failed.__cause__, ConnectError):
                await self._leave(connection)  # the certificate authority may be another one
            raise
        if response.status_code not in _OK:
            raise error_of(call, response.status_code, response.headers, await self._body(call, response, self.limit))
        return response

    async def _body(self, call: ApiCall, response: "httpx.Response", limit: int) -> bytes:
        chunks, left = [], limit
        async with self._within(call, self._intervals.api_answer):
            async for chunk in response.aiter_raw():
                chunks.append(chunk)
                if (left := left - len(chunk)) < 0:
                    raise self._too_long(call)
        return b"".join(chunks)

    async def _lines(self, call: ApiCall, response: "httpx.Response", silence: float) -> AsyncGenerator[bytes, None]:
        """The lines of the body as they come, the last one only when it is whole."""
        rest = b""
        chunks = response.aiter_raw()
        while True:
            async with self._within(call, silence):
                chunk = await anext(chunks, None)
            if chunk is None:
                break
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > self.limit:
                raise self._too_long(call)
            for line in lines:
                yield line
        if rest:
            raise Unreachable(call, "the answer ends in the middle of a line")

    def _too_long(self, call: ApiCall) -> Unreachable:
        return Unreachable(call, f"what it sends is longer than {self.limit / 2**20:g} MiB")

    @contextlib.asynccontextmanager
    async def _within(self, call: ApiCall, seconds: float) -> AsyncIterator[None]:
        """What the library raises inside, and silence, become Unreachable or Unconfigured."""
        from .connection import speaking

        try:
            async with self._clock.timeout(seconds):
                with speaking(call):
                    yield
        except TimeoutError as late:
            raise Unreachable(call, f"nothing came within {seconds:g} s") from late

    # --- the connection -----------------------------------------------------------------------------------------------

    async def connect(self) -> "Connection":
        """The connection, whose token is no older than `api_token`. Raises Unconfigured."""
        async with self._connecting:
            now = self._clock.now()
            if self._connection is None:
                self._connection = await asyncio.to_thread(_connect, self._server)
                self._token_at = now
            elif self._connection.token and now - self._token_at > self._intervals.api_token:
                await asyncio.to_thread(self._connection.read_token)
                self._token_at = now
            return self._connection

    async def _leave(self, connection: "Connection") -> None:
        """Make another one for the next request, from the files as they are then."""
        if self._connection is connection:
            await self.aclose()


def _connect(server: ApiServerAddress) -> "Connection":
    from .connection import connect  # 9 MiB, for those who ask the API server

    return connect(server)
