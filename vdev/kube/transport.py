"""The HTTP transport below lightkube's client, which waits for the answer to a watch without a deadline, and opens a
watch again at once if the server ends it.
"""

import ssl

import httpx2 as httpx

from ..aio.clock import Timing


class Transport(httpx.AsyncBaseTransport):
    """HTTP with a deadline for the first byte of each GET, and pauses between two openings of one watch."""

    def __init__(self, verify: ssl.SSLContext, proxy: str | None, timing: Timing) -> None:
        self._http = httpx.AsyncHTTPTransport(verify=verify, proxy=proxy)
        self._intervals, self._clock = timing
        self._opened: dict[tuple[str, str], float] = {}  # by path and field selector of a watch
        self._is_closed = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET" and "watch" in (params := request.url.params):
            watch = request.url.path, params.get("fieldSelector", "")
            if watch in self._opened:
                await self._clock.sleep(self._opened[watch] + self._intervals.api_pause_first - self._clock.now())
            self._opened[watch] = self._clock.now()
        within = self._intervals.api_answer if request.method == "GET" else None  # others have one in `Connection`
        try:
            async with self._clock.timeout(within):
                response = await self._http.handle_async_request(request)
        except TimeoutError as late:
            raise httpx.ReadTimeout(f"no answer within {within:g} s") from late
        if self._is_closed:  # the library has then not closed a connection that was still being opened
            await response.aclose()
            await self._http.aclose()
            raise httpx.ReadError("the connection was closed")
        return response

    async def aclose(self) -> None:
        self._is_closed = True
        await self._http.aclose()
