"""The HTTP transport below lightkube's client, which waits for the answer to a watch without a deadline, opens a watch
again at once if the server ends it, and splits its lines also at characters inside of JSON strings.
"""

import ssl
from collections.abc import AsyncIterator

import httpx2 as httpx

from ..aio.clock import Timing

_ENDS_OF_LINES = {chr(code).encode(): rb"\u%04x" % code for code in (0x85, 0x2028, 0x2029)}  # other than \n


class Transport(httpx.AsyncBaseTransport):
    """HTTP with a deadline for the beginning of each response, and pauses between two openings of one watch."""

    def __init__(self, verify: ssl.SSLContext, proxy: str | None, timing: Timing) -> None:
        self._http = httpx.AsyncHTTPTransport(verify=verify, proxy=proxy)
        self._intervals, self._clock = timing
        self._opened: dict[tuple[str, str], float] = {}  # by path and field selector of a watch
        self._is_closed = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        is_read = request.method == "GET"
        response = await (self._read(request) if is_read else self._http.handle_async_request(request))
        if self._is_closed:  # the library has then not closed a connection that was still being opened
            await response.aclose()
            await self._http.aclose()
            raise httpx.ReadError("the connection was closed")
        return response

    async def _read(self, request: httpx.Request) -> httpx.Response:
        """Send a request of which `Connection` does not know when the answer begins: a watch, or a page of a list."""
        params = request.url.params
        if "watch" in params:
            watch = request.url.path, params.get("fieldSelector", "")
            if watch in self._opened:
                await self._clock.sleep(self._opened[watch] + self._intervals.api_pause_first - self._clock.now())
            self._opened[watch] = self._clock.now()
        try:
            async with self._clock.timeout(self._intervals.api_answer):
                response = await self._http.handle_async_request(request)
        except TimeoutError as late:
            raise httpx.ReadTimeout(f"no answer within {self._intervals.api_answer:g} s") from late
        if "watch" in params:
            response.stream = _Escaped(response.stream)
        return response

    async def aclose(self) -> None:
        self._is_closed = True
        await self._http.aclose()


class _Escaped(httpx.AsyncByteStream):
    """The body of a watch, with the ends of lines escaped that JSON allows in strings."""

    def __init__(self, stream: object) -> None:
        assert isinstance(stream, httpx.AsyncByteStream)
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            for end, escape in _ENDS_OF_LINES.items():
                chunk = chunk.replace(end, escape)
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
