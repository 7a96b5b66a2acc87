"""Requests to the API server: from method, path and body to the document that it answers, or to an ApiServerError.

The client connects with the first request and has a bounded number of requests in flight. Each request has a deadline.
A request is repeated if the server asks to wait a short time, and once if it does not know the account, because
credentials may have been renewed. All other errors are left to the callers, which try again with growing pauses.

An answer is read up to a limit, and no compressed answer is accepted: a server in trouble, or a wrong one at its
address, must not take the memory of the node's device plugin.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..aio.clock import Timing
from ..aio.tasks import Interrupted, Interruption
from ..api_server import ApiServerAddress
from ..json_text import parse_json
from .answers import ApiCall, Denied, Throttled, Unreachable, error_of

if TYPE_CHECKING:
    import httpx2 as httpx

    from .connection import Connection

JSON = "application/json"
LIMIT = 64 * 2**20  # bytes of an answer, of all pages of a list, and of a line of a watch
_ATTEMPTS = 4  # if the server asks to wait
_LARGE = 256 * 1024  # bytes from which an answer is decoded in a thread
_ACCEPTED = {"Accept": JSON, "Accept-Encoding": "identity"}
_METHODS = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}  # by verb; the others are GET


class ApiCalls:
    """The requests of one client. `writes` counts those that were to change something."""

    def __init__(self, server: ApiServerAddress, *, timing: Timing, at_once: int, limit: int) -> None:
        self.limit = limit
        self.writes = 0
        self._server = server
        self._intervals, self._clock = timing
        self._slots = asyncio.Semaphore(at_once)
        self._connecting = asyncio.Lock()
        self._connection: Connection | None = None
        self._token_at = 0.0
        self._watches: list[Interruption] = []

    async def ask(
        self,
        call: ApiCall,
        params: Mapping[str, str],
        body: object = None,
        content_type: str = JSON,
        *,
        check: Callable[[ApiCall], None],
        limit: int | None = None,
    ) -> tuple[dict[str, Any], int]:
        """Return the document that the server answers, and its size in bytes.

        Raises an ApiServerError, also one of `check`. That is called before each attempt, so the error of a fault rule
        is treated like one of the server.
        """
        most = self.limit if limit is None else limit
        async with self._slots:  # also while a request waits, so that a server that refuses all requests gets few
            for attempt in range(_ATTEMPTS):
                is_last = attempt == _ATTEMPTS - 1
                try:
                    check(call)
                    return await self._attempt(call, params, body, content_type, most)
                except Throttled as busy:
                    if is_last or busy.after is None or busy.after > self._intervals.api_patience:
                        raise
                    await self._clock.sleep(busy.after)
                except Denied as denied:
                    if denied.known or attempt:
                        raise
            raise AssertionError("unreachable: the last attempt returns or raises")

    async def _attempt(
        self, call: ApiCall, params: Mapping[str, str], body: object, content_type: str, limit: int
    ) -> tuple[dict[str, Any], int]:
        self.writes += call.verb in _METHODS
        async with self._open(call, params, body, content_type) as (call, response):
            text = await self._body(call, response, limit)
        try:
            document = await asyncio.to_thread(parse_json, text) if len(text) > _LARGE else parse_json(text)
        except ValueError as wrong:
            raise Unreachable(call, f"the answer is not JSON: {wrong}") from wrong
        if not isinstance(document, dict):
            raise Unreachable(call, "the answer is not a JSON object")
        return document, len(text)

    async def _body(self, call: ApiCall, response: "httpx.Response", limit: int) -> bytes:
        body = bytearray()
        async with self._deadline(call, self._intervals.api_answer):
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > limit:
                    raise self._too_long(call)
        return bytes(body)

    def _too_long(self, call: ApiCall) -> Unreachable:
        return Unreachable(call, f"the answer is longer than {self.limit / 2**20:g} MiB")

    @contextlib.asynccontextmanager
    async def watch(
        self, call: ApiCall, params: Mapping[str, str], *, silence: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of a watch. Raises Unreachable after so many seconds of silence, and after `break_watches`."""
        interruption = Interruption()
        self._watches.append(interruption)
        try:
            async with (
                interruption,
                self._open(call, params) as (call, response),
                contextlib.aclosing(self._lines(call, response, silence)) as lines,
            ):
                yield lines
        except Interrupted:
            raise Unreachable(call, "the watch was broken off") from None
        finally:
            self._watches.remove(interruption)

    def break_watches(self) -> None:
        """End the open watches: when they begin again, the fault hook is asked about them."""
        for watch in tuple(self._watches):
            watch.interrupt()

    async def _lines(self, call: ApiCall, response: "httpx.Response", silence: float) -> AsyncGenerator[bytes, None]:
        """The lines of the answer, as they come."""
        # Not `aiter_lines`: it also splits at U+2028 and others, which JSON allows within a string.
        rest = b""
        chunks = response.aiter_raw()
        while True:
            async with self._deadline(call, silence):
                chunk = await anext(chunks, None)
            if chunk is None:
                break
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line
            if len(rest) > self.limit:
                raise self._too_long(call)
        if rest:
            raise Unreachable(call, "the answer ends in the middle of a line")

    @contextlib.asynccontextmanager
    async def _open(
        self, call: ApiCall, params: Mapping[str, str], body: object = None, content_type: str = JSON
    ) -> AsyncIterator[tuple[ApiCall, "httpx.Response"]]:
        """Send the request. Yields the call with the names of user and server, and the answer if it is a good one."""
        connection = await self.connect()
        from .connection import ConnectError  # was imported in a thread by now: that takes a quarter of a second

        call = replace(call, who=self._server.who, where=connection.where)
        headers = _ACCEPTED if body is None else {**_ACCEPTED, "Content-Type": content_type}
        content = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        path = call.kind.path(namespace=call.namespace, name=call.name, subresource=call.subresource)
        method = _METHODS.get(call.verb, "GET")
        request = connection.http.stream(method, path, params=params, headers=headers, content=content)
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with self._deadline(call, self._intervals.api_answer):
                    response = await stack.enter_async_context(request)
                if not response.is_success:
                    answer = await self._body(call, response, self.limit)
                    raise error_of(call, response.status_code, response.headers, answer)
            except Denied as denied:
                if not denied.known:
                    await self._close(connection)  # token, password or certificate may have been renewed
                raise
            except Unreachable as failed:
                if isinstance(failed.__cause__, ConnectError):
                    await self._close(connection)  # address or certificate authority may have changed
                raise
            yield call, response

    @contextlib.asynccontextmanager
    async def _deadline(self, call: ApiCall, seconds: float) -> AsyncIterator[None]:
        """Errors of the client library inside, and silence, become Unreachable or Unconfigured."""
        from .connection import speaking

        try:
            async with self._clock.timeout(seconds):
                with speaking(call):
                    yield
        except TimeoutError as late:
            raise Unreachable(call, f"nothing came within {seconds:g} s") from late

    # --- the connection -----------------------------------------------------------------------------------------------

    async def connect(self) -> "Connection":
        """Return the connection, with a token no older than `api_token`. Raises Unconfigured."""
        async with self._connecting:
            now = self._clock.now()
            if self._connection is None:
                self._connection = await asyncio.to_thread(_connect, self._server)
                self._token_at = now
            elif self._connection.token and now - self._token_at > self._intervals.api_token:
                await asyncio.to_thread(self._connection.read_token)
                self._token_at = now
            return self._connection

    async def _close(self, connection: "Connection") -> None:
        """Close this connection, so that the next request makes one from the files as they are then."""
        if self._connection is connection:
            await self.aclose()

    async def aclose(self) -> None:
        """Close the connection; another request makes a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.http.aclose()


def _connect(server: ApiServerAddress) -> "Connection":
    from .connection import connect  # imported late: it takes 9 MiB, and only requests need it

    return connect(server)
