"""One HTTP request to the API server, and its answer within bounds.

The client connects with the first request. Each request has a deadline, and an answer is read up to a limit: a server
in trouble, or a wrong one at its address, must not take the memory of the node's device plugin.
"""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from ..aio.clock import Timing
from ..aio.tasks import Interrupted, Interruption
from ..api_server import ApiServerAddress
from .answers import ApiCall, Denied, Unconfigured, Unreachable, error_of, json_object, status_in

if TYPE_CHECKING:
    import httpx2 as httpx

JSON = "application/json"
LIMIT = 64 * 2**20  # bytes of an answer, and of a line of a watch
_RENEWAL = 600.0  # seconds; a kubelet replaces a token of an hour after 48 minutes
_METHODS = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}  # by verb; the others are GET


class Session:
    """The connection to one server. `writes` counts the requests that were to change something."""

    def __init__(self, server: ApiServerAddress, timing: Timing, limit: int) -> None:
        self.writes = 0
        self._limit = limit
        self._server = server
        self._intervals, self._clock = timing
        self._connecting = asyncio.Lock()
        self._http: httpx.AsyncClient | None = None
        self._renew_at = 0.0  # when the next request reads the credentials again
        self._users: Counter[httpx.AsyncClient] = Counter()  # the requests that use a client now
        self._watches: list[Interruption] = []

    async def ask(
        self, call: ApiCall, params: Mapping[str, str], body: object = None, content_type: str = JSON
    ) -> dict[str, Any]:
        """Return the document that the server answers. Raises ApiServerError."""
        self.writes += call.verb in _METHODS
        async with self._answer(call, params, body, content_type, within=self._intervals.api_answer) as response:
            document = json_object(await self._body(call, response))
        if document is None:
            raise Unreachable(call, "the answer is not a JSON object")
        return document

    @contextlib.asynccontextmanager
    async def watch(
        self, call: ApiCall, params: Mapping[str, str], within: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of a watch. Raises Unreachable if it does not end in time, and after `break_watches`."""
        interruption = Interruption()
        self._watches.append(interruption)
        try:
            async with (
                interruption,
                self._answer(call, params, within=within) as response,
                contextlib.aclosing(self._lines(call, response)) as lines,
            ):
                yield lines
        except Interrupted:
            raise Unreachable(call, "the watch was broken off") from None
        finally:
            self._watches.remove(interruption)

    async def _lines(self, call: ApiCall, response: "httpx.Response") -> AsyncGenerator[bytes, None]:
        # Not `aiter_lines`: it also splits at U+2028 and others, which JSON allows within a string.
        rest = b""
        async for chunk in response.aiter_raw():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line
            if len(rest) > self._limit:
                raise self._too_long(call)
        if rest:
            raise Unreachable(call, "the answer ends in the middle of a line")

    def break_watches(self) -> None:
        for watch in tuple(self._watches):
            watch.interrupt()

    @contextlib.asynccontextmanager
    async def _answer(
        self, call: ApiCall, params: Mapping[str, str], body: object = None, content_type: str = JSON, *, within: float
    ) -> AsyncIterator["httpx.Response"]:
        """Send the request, and yield the answer if it is a good one; both take at most so many seconds.

        The answer begins within the time for one answer, also that of a watch.
        """
        http = await self.connect()
        from . import connection  # was imported in a thread by now: that takes a quarter of a second

        call.who, call.where = self._server.who, str(http.base_url).rstrip("/")
        path = call.kind.path(namespace=call.namespace, name=call.name, subresource=call.subresource)
        request = http.build_request(
            _METHODS.get(call.verb, "GET"),
            f"{call.where}{path}?{urlencode(params)}",  # whole: the library would parse a part of a URL twice
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
                except TimeoutError as late:  # a watch may take much longer, but its answer begins at once
                    raise Unreachable(call, f"no answer within {self._intervals.api_answer:g} s") from late
                except Exception as failed:  # such as a program that prints credentials
                    raise Unconfigured(f"{call.who} cannot be used: {connection.reason(failed)}") from failed
                async with contextlib.aclosing(response):
                    if not response.is_success:
                        after = response.headers.get("retry-after", "").strip()  # the API server sends no dates
                        seconds = float(after) if after.isascii() and after.isdecimal() else None
                        status = status_in(await self._body(call, response))
                        raise error_of(call, response.status_code, status, seconds)
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

    def _forget(self, http: "httpx.AsyncClient") -> None:
        """Let the next request read the files again: credentials, address or authority may have changed."""
        if self._http is http:
            self._http = None

    async def _close_unused(self, http: "httpx.AsyncClient") -> None:
        """Close an old client after its last request: one that is closed earlier loses what is being connected."""
        if not self._users[http]:
            del self._users[http]
            await http.aclose()

    async def _body(self, call: ApiCall, response: "httpx.Response") -> bytes:
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            call.received += len(chunk)
            if call.received > self._limit:
                raise self._too_long(call)
        return bytes(body)

    def _too_long(self, call: ApiCall) -> Unreachable:
        return Unreachable(call, f"the answer is longer than {self._limit / 2**20:g} MiB")

    async def connect(self) -> "httpx.AsyncClient":
        """Return the connection. Raises Unconfigured."""
        if self._http is None or self._clock.now() >= self._renew_at:
            async with self._connecting:
                if self._http is None or self._clock.now() >= self._renew_at:
                    before, self._http = self._http, await asyncio.to_thread(_connect, self._server)
                    self._renew_at = self._clock.now() + _RENEWAL
                    if before is not None:
                        await self._close_unused(before)
        return self._http

    async def aclose(self) -> None:
        """Close the connection; another request makes a new one."""
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()


def _connect(server: ApiServerAddress) -> "httpx.AsyncClient":
    from .connection import connect  # imported late: it takes 9 MiB, and only requests need it

    return connect(server)
