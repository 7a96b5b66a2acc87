"""The HTTP side: metrics, health, readiness, status, and a page for a person. Read-only; it knows nothing of the agent.

    /metrics  Prometheus or OpenMetrics text     /healthz  200 while the agent's loop turns
    /status   the status document, with an ETag  /readyz   200 while all is registered and streaming, or in stand-by
    /         the page, which polls /status  /telemetry  what devices measure now

What is shown comes through `Watched`. When the port is not available, that is reported and the agent works without it.
"""

import asyncio
import contextlib
import hashlib
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from importlib import resources
from typing import Any, Protocol

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ..errors import reason_of
from .allowed_hosts import Guard
from .json_pieces import json_pieces
from .log import Seldom
from .webserver import Limits, Server

log = structlog.get_logger(__name__)

PAGE = "page.html"
FLEET_PAGE = "fleet.html"
_BACKLOG = 128
_PIECE = 2**16  # bytes
_LIMITS = Limits()
_NOTHING = (0, b"", "")
_PAGE_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


class Watched(Protocol):
    """What the HTTP side asks. `status` and `telemetry` are asked from a thread, the rest from the loop."""

    def status(self) -> Mapping[str, Any]:
        """The status document."""

    def telemetry(self) -> Mapping[str, Any]:
        """What devices measure now."""

    def registry(self) -> CollectorRegistry:
        """The metrics, brought up to date."""

    def stalled(self) -> str:
        """Why the agent no longer does its work; empty while it does."""

    def not_ready(self) -> Sequence[str]:
        """Why the agent is not ready, a sentence each; empty when it is."""

    def stand_by(self) -> str:
        """What the agent stands by for, in a sentence; empty when it serves."""


def application(watched: Watched, *, page: str = PAGE) -> Starlette:
    """The ASGI application, with a page from beside this module."""
    one = asyncio.Lock()  # documents are made one at a time: the agent needs its threads as well
    latest_page, latest_status = _Latest(lambda: _page(page), one), _Latest(lambda: _json(watched.status()), one)
    latest_telemetry = _Latest(lambda: _json(watched.telemetry()), one)

    async def front(_request: Request) -> Response:
        body, _ = await latest_page.get()
        return HTMLResponse(body, headers=_PAGE_HEADERS)

    async def healthz(_request: Request) -> Response:
        return _verdict([text] if (text := watched.stalled()) else [])

    async def readyz(_request: Request) -> Response:
        return _verdict(watched.not_ready(), watched.stand_by())

    async def status(request: Request) -> Response:
        body, tag = await latest_status.get()
        headers = {"Cache-Control": "no-cache", "ETag": tag}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return _InPieces(body, media_type="application/json", headers=headers)

    async def telemetry(_request: Request) -> Response:
        body, _ = await latest_telemetry.get()
        return _InPieces(body, media_type="application/json", headers={"Cache-Control": "no-store"})

    async def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        async with one:
            body = await asyncio.to_thread(encode, watched.registry())
        return _InPieces(body, headers={"Content-Type": content_type})

    return answering(
        Route("/", front),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/status", status),
        Route("/telemetry", telemetry),
        Route("/metrics", metrics),
    )


def answering(*routes: Route) -> Starlette:
    """An application with these routes; of failures the log tells now and then."""
    failures = Seldom(log)

    async def failed(request: Request, error: Exception) -> Response:
        failures.warning("HTTP request failed", path=request.url.path, exc_info=error)
        return PlainTextResponse("vdev failed to answer; its log says why\n", status_code=500)

    return Starlette(exception_handlers={Exception: failed}, routes=routes)


class _Latest:
    """A document made in a thread. Those who ask while it is being made wait for the next one and share that."""

    def __init__(self, make: Callable[[], bytes], one: asyncio.Lock) -> None:
        self._make, self._one = make, one
        self._begun = 0  # how often making it began
        self._made = _NOTHING  # which time it was, and what came of it
        self._asking = 0

    async def get(self) -> tuple[bytes, str]:
        """The document as it is at this moment or a later one, and its ETag."""
        before = self._begun
        self._asking += 1
        try:
            async with self._one:
                if self._made[0] <= before:
                    self._begun += 1
                    self._made = (self._begun, *await asyncio.to_thread(self._tagged))
                return self._made[1:]
        finally:
            self._asking -= 1
            if not self._asking:
                self._made = _NOTHING  # it may be large

    def _tagged(self) -> tuple[bytes, str]:
        body = self._make()
        return body, f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'


class InChunks(Response):
    """A body that was made in pieces, which are never put together; each is freed once it is sent.

    After each one everybody else has a turn: a client that is fast takes megabytes at once.
    """

    def __init__(self, chunks: Sequence[bytes], headers: Mapping[str, str]) -> None:
        super().__init__(headers={**headers, "Content-Length": str(sum(map(len, chunks)))})
        self._chunks = deque(chunks)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        while self._chunks:
            await send({"type": "http.response.body", "body": self._chunks.popleft(), "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class _InPieces(Response):
    """A long body, of which no more is copied than the client takes."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        body = memoryview(self.body)
        for start in range(0, len(body), _PIECE):
            await send({"type": "http.response.body", "body": bytes(body[start : start + _PIECE]), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


@contextlib.asynccontextmanager
async def serving(
    address: str,
    watched: Watched,
    *,
    page: str = PAGE,
    hosts: Collection[str] = (),
    limits: Limits = _LIMITS,
) -> AsyncIterator[str]:
    """Serve on `host:port` while the context lasts; gives the address that was bound, empty when none could be yet.

    Port 0 takes a free one; an empty host means all addresses. `hosts` are further names, or patterns of names, that
    requests may be addressed to (see `allowed_hosts`).
    """
    async with running(Side(address, application(watched, page=page), hosts=hosts, limits=limits)) as bound:
        yield bound


@contextlib.asynccontextmanager
async def running(side: "Side") -> AsyncIterator[str]:
    """Let a side answer while the context lasts; gives the address that was bound, empty when none could be yet."""
    bound = await side.bind()
    failure: Exception | None = None
    async with asyncio.TaskGroup() as group:
        task = group.create_task(side.run(), name="http")
        try:
            yield bound
        except Exception as error:  # the caller's own, which must not come out as a group
            failure = error
        finally:
            if side.server is None:
                task.cancel()
            else:
                side.server.should_exit = True
    if failure is not None:
        raise failure


class Side:
    """An address and the server on it; `server` is None while the address is not available, and `trouble` says why."""

    def __init__(
        self,
        address: str,
        app: Starlette,
        *,
        what: str = "the status",
        hosts: Collection[str] = (),
        limits: Limits = _LIMITS,
        on_change: Callable[[], object] = lambda: None,
    ) -> None:
        self.server: Server | None = None
        self.trouble = ""
        self._address, self._guard, self._limits, self._what = address, Guard(app, hosts), limits, what
        self._on_change = on_change

    async def bind(self) -> str:
        """Try to get the address; its name, or the empty string. The same reason is told once."""
        try:
            listener = await asyncio.to_thread(_bind, self._address)
        except OSError as failed:
            reason = reason_of(failed)
            if reason != self.trouble:
                event = "HTTP address not available; the agent works without it"
                log.error(event, what=self._what, address=self._address, reason=reason)
                self.trouble = reason
                self._on_change()
            return ""
        self.server, before, self.trouble = Server(self._guard, listener, self._limits), self.trouble, ""
        log.info("serving HTTP", what=self._what, address=(name := _name(listener)))
        if before:
            self._on_change()
        return name

    async def run(self) -> None:
        """Serve until told to end, as soon as the address is free; what goes wrong must not take the agent along."""
        while True:
            while self.server is None:
                await asyncio.sleep(self._limits.retry)
                await self.bind()
            try:
                await self.server.run_until_exit()
            except Exception:
                log.exception("the HTTP server failed; it is started again")
            if self.server.should_exit:
                return
            self.server = None


def _bind(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not host and socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # a kernel without IPv6 says so only here
            return socket.create_server(("", int(port)), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, int(port)), family=family, backlog=_BACKLOG)


def _name(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _page(name: str) -> bytes:
    return resources.files(__package__).joinpath(name).read_bytes()


def _json(document: Mapping[str, Any]) -> bytes:
    return b"".join(json_pieces(document, (",", ":")))


def _verdict(reasons: Sequence[str], well: str = "") -> Response:
    if reasons:
        return PlainTextResponse("".join(f"{reason}\n" for reason in reasons), status_code=503)
    return PlainTextResponse(f"{well or 'ok'}\n")
