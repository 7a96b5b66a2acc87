"""One HTTP request to the API server, and its answer within bounds.

The client connects with the first request. Each request has a deadline. An answer is read up to a limit, and no
compressed answer is accepted: a server in trouble, or a wrong one at its address, must not take the memory of the
node's device plugin.
"""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..aio.clock import Timing
from ..aio.tasks import Interrupted, Interruption
from ..api_server import ApiServerAddress
from ..json_text import parse_json
from .answers import ApiCall, Denied, Unreachable, error_of, status_in

if TYPE_CHECKING:
    import httpx2 as httpx

JSON = "application/json"
LIMIT = 64 * 2**20  # bytes of an answer, of all pages of a list, and of a line of a watch
_LARGE = 256 * 1024  # bytes from which an answer is decoded in a thread
_ACCEPTED = {"Accept": JSON, "Accept-Encoding": "identity"}
_METHODS = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}  # by verb; the others are GET


class Session:
    """The connection to one server. `writes` counts the requests that were to change something."""

    def __init__(self, server: ApiServerAddress, timing: Timing, limit: int) -> None:
        self.limit = limit
        self.writes = 0
        self._server = server
        self._intervals, self._clock = timing
        self._connecting = asyncio.Lock()
        self._http: httpx.AsyncClient | None = None
        self._users: Counter[httpx.AsyncClient] = Counter()  # the requests that use a client now
        self._watches: list[Interruption] = []

    async def ask(
        self, call: ApiCall, params: Mapping[str, str], body: object, content_type: str, limit: int
    ) -> tuple[dict[str, Any], int]:
        """Return the document that the server answers, and its size in bytes. Raises ApiServerError."""
        self.writes += call.verb in _METHODS
        async with self._answer(call, params, body, content_type) as (call, response):
            text = await self._body(call, response, limit)
        try:
            document = await asyncio.to_thread(parse_json, text) if len(text) > _LARGE else parse_json(text)
        except ValueError as wrong:
            raise Unreachable(call, f"the answer is not JSON: {wrong}") from wrong
        if not isinstance(document, dict):
            raise Unreachable(call, "the answer is not a JSON object")
        return document, len(text)

    @contextlib.asynccontextmanager
    async def watch(
        self, call: ApiCall, params: Mapping[str, str], silence: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of a watch. Raises Unreachable after so many seconds of silence, and after `break_watches`."""
        interruption = Interruption()
        self._watches.append(interruption)
        try:
            async with (
                interruption,
                self._answer(call, params) as (call, response),
                contextlib.aclosing(self._lines(call, response, silence)) as lines,
            ):
                yield lines
        except Interrupted:
            raise Unreachable(call, "the watch was broken off") from None
        finally:
            self._watches.remove(interruption)

    async def _lines(self, call: ApiCall, response: "httpx.Response", silence: float) -> AsyncGenerator[bytes, None]:
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

    def break_watches(self) -> None:
        for watch in tuple(self._watches):
            watch.interrupt()

    @contextlib.asynccontextmanager
    async def _answer(
        self, call: ApiCall, params: Mapping[str, str], body: object = None, content_type: str = JSON
    ) -> AsyncIterator[tuple[ApiCall, "httpx.Response"]]:
        """Send the request. Yields the call with the names of user and server, and the answer if it is a good one."""
        http = await self.connect()
        from .connection import ConnectError  # was imported in a thread by now: that takes a quarter of a second

        call = replace(call, who=self._server.who, where=str(http.base_url).rstrip("/"))
        request = http.build_request(
            _METHODS.get(call.verb, "GET"),
            call.kind.path(namespace=call.namespace, name=call.name, subresource=call.subresource),
            params=params,
            headers=_ACCEPTED if body is None else {**_ACCEPTED, "Content-Type": content_type},
            content=None if body is None else json.dumps(body, separators=(",", ":")).encode(),
        )
        self._users[http] += 1
        try:
            async with self._deadline(call, self._intervals.api_answer):
                response = await http.send(request, stream=True)
            async with contextlib.aclosing(response):
                if not response.is_success:
                    after = response.headers.get("retry-after", "").strip()  # the API server sends no dates
                    seconds = float(after) if after.isascii() and after.isdecimal() else None
                    status = status_in(await self._body(call, response, self.limit))
                    raise error_of(call, response.status_code, status, seconds)
                yield call, response
        except (Denied, Unreachable) as failed:
            # Credentials, address or certificate authority may have changed: the next request reads the files again.
            is_unknown = isinstance(failed, Denied) and not failed.known
            if self._http is http and (is_unknown or isinstance(failed.__cause__, ConnectError)):
                self._http = None
            raise
        finally:
            self._users[http] -= 1
            if self._http is not http and not self._users[http]:
                del self._users[http]
                await http.aclose()  # by its last user: a client that is closed earlier loses what is being connected

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
    async def _deadline(self, call: ApiCall, seconds: float) -> AsyncIterator[None]:
        """Errors of the client library inside, and silence, become Unreachable or Unconfigured."""
        from .connection import speaking

        try:
            async with self._clock.timeout(seconds):
                with speaking(call):
                    yield
        except TimeoutError as late:
            raise Unreachable(call, f"nothing came within {seconds:g} s") from late

    async def connect(self) -> "httpx.AsyncClient":
        """Return the connection. Raises Unconfigured."""
        async with self._connecting:
            if self._http is None:
                self._http = await asyncio.to_thread(_connect, self._server)
            return self._http

    async def aclose(self) -> None:
        """Close the connection; another request makes a new one."""
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()


def _connect(server: ApiServerAddress) -> "httpx.AsyncClient":
    from .connection import connect  # imported late: it takes 9 MiB, and only requests need it

    return connect(server)
