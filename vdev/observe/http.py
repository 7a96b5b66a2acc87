"""HTTP: metrics, health, readiness, status, and a page for people; and the sensors of devices (`exporter`).

Everything is read-only and does not depend on the agent. An agent's own application has these paths:

    /metrics  Prometheus or OpenMetrics text     /healthz  200 unless the agent's loop hangs
    /status   the status document                /readyz   200 while all is registered and streaming, or in stand-by
    /         the page, which polls /status  /telemetry  the current readings of the devices

The content comes from the functions that `application` takes. If the port is not available, the agent works without
HTTP.
"""

import asyncio
import contextlib
import fnmatch
import ipaddress
import logging
import re
import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

import structlog
import uvicorn
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import HostError, reason_of

log = structlog.get_logger(__name__)

_OWN = ("localhost", "*.localhost", "*.svc", "*.svc.cluster.local")
_MISDIRECTED = 421
_SHOWN = 80  # characters of a client's text that are logged and returned


def answers_to(host: str, patterns: Collection[str]) -> bool:
    """Whether a `Host` header is an IP address or one of the agent's names; `patterns` may contain `*`."""
    name = re.sub(r":\d*$", "", host).strip("[]").removesuffix(".").lower()
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return any(fnmatch.fnmatchcase(name, pattern.lower()) for pattern in (*_OWN, *patterns))
    return True


class Guard:
    """ASGI middleware that refuses requests addressed to other hosts."""

    def __init__(self, application: ASGIApp, patterns: Collection[str]) -> None:
        self._application, self._patterns = application, tuple(patterns)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = Headers(scope=scope).get("host")
        if host is None or answers_to(host, self._patterns):  # HTTP/1.0 has no Host, and no browser uses it
            await self._application(scope, receive, send)
            return
        name = host[:_SHOWN]
        log.debug("HTTP request for an unknown host", host=name, hint="--http-hosts allows it")
        text = f"vdev does not know the name {name!r}; if it is this agent's, start it with --http-hosts\n"
        await PlainTextResponse(text, _MISDIRECTED, {"Connection": "close"})(scope, receive, send)


PAGE = "page.html"
FLEET_PAGE = "fleet.html"
_BACKLOG = 128
_CONNECTIONS = 512  # with more of them, uvicorn answers requests with 503
_KEEP_ALIVE = 5  # seconds for which a connection may be idle
_END = 2  # seconds for open requests when the server stops
_PAGE_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


def application(
    *,
    status: Callable[[], Mapping[str, Any]],
    registry: Callable[[], CollectorRegistry],
    not_ready: Callable[[], Sequence[str]],
    telemetry: Callable[[], Mapping[str, Any]] = dict,
    stalled: Callable[[], str] = str,
    stand_by: Callable[[], str] = str,
    page: str = PAGE,
) -> Starlette:
    """Return the agent's ASGI application. Starlette calls plain functions in a thread.

    `status` and `telemetry` are called in a thread, the others on the event loop. `registry` returns updated metrics.
    `not_ready`, `stalled` and `stand_by` return reasons as sentences, or an empty value if there is none.
    """

    def front(_request: Request) -> Response:
        return HTMLResponse(resources.files(__package__).joinpath(page).read_bytes(), headers=_PAGE_HEADERS)

    async def healthz(_request: Request) -> Response:
        return _verdict([text] if (text := stalled()) else [])

    async def readyz(_request: Request) -> Response:
        return _verdict(not_ready(), stand_by())

    def document(_request: Request) -> Response:
        return JSONResponse(status(), headers={"Cache-Control": "no-cache"})

    def readings(_request: Request) -> Response:
        return JSONResponse(telemetry(), headers={"Cache-Control": "no-store"})

    async def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        body = await run_in_threadpool(encode, registry())
        return Response(body, headers={"Content-Type": content_type})

    return answering(
        Route("/", front),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/status", document),
        Route("/telemetry", readings),
        Route("/metrics", metrics),
    )


_TEXT = "text/plain; version=0.0.4; charset=utf-8"


def exporter(page: Callable[..., str], nodes: Callable[[], Sequence[str]] = tuple) -> Starlette:
    """Return the application that serves the devices' sensors. It needs its own port, as scrapers of exporters expect.

    `page` renders the metrics (see `telemetry/exporters.py`) in a thread. The Prometheus library would sort labels and
    append _total to the names of counters.

    The metrics of each of the `nodes` of a fleet are also at /nodes/<name>/metrics, for which `page` takes the node's
    name, and /targets lists these paths for Prometheus (http_sd_configs).
    """

    def metrics(request: Request) -> Response:
        node = request.path_params.get("node", "")
        if node and node not in nodes():
            return PlainTextResponse(f"there are no readings of a node {node}\n", status_code=404)
        return Response(page(node) if node else page(), headers={"Content-Type": _TEXT})

    async def targets(request: Request) -> Response:
        here = request.headers.get("host", "")
        labels = [{"__metrics_path__": f"/nodes/{each}/metrics", "node": each} for each in nodes()]
        return JSONResponse([{"targets": [here], "labels": each} for each in labels])

    async def healthz(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    return answering(
        Route("/metrics", metrics),
        Route("/healthz", healthz),
        Route("/health", healthz),
        Route("/targets", targets),
        Route("/nodes/{node}/metrics", metrics),
    )


def answering(*routes: Route) -> Starlette:
    """Return an application with these routes. Failures are logged."""

    async def failed(request: Request, error: Exception) -> Response:
        log.warning("HTTP request failed", path=request.url.path, exc_info=error)
        return PlainTextResponse("internal error; the log of vdev has the reason\n", status_code=500)

    return Starlette(exception_handlers={Exception: failed}, routes=routes)


async def serve(
    address: str,
    app: Starlette,
    *,
    what: str = "the status",
    option: str = "--http-address",
    hosts: Collection[str] = (),
) -> None:
    """Serve an application on `host:port` until cancelled. Raises HostError if the address is not available.

    Port 0 means any free port, an empty host all addresses. `hosts` are further names, or patterns of names, that the
    `Host` header may have. Messages name the service by `what` and the option with the address by `option`.
    """
    try:
        listener = await asyncio.to_thread(listen, address)
    except OSError as failed:
        why = f"{option}: {what} cannot be served at {address}: {reason_of(failed)}"
        raise HostError(f"{why}; choose another address, or end the process that uses this one") from failed
    log.info("serving HTTP", what=what, address=name_of(listener))
    await serve_on(listener, app, hosts)


async def serve_on(listener: socket.socket, app: Starlette, hosts: Collection[str] = ()) -> None:
    """Serve until cancelled, then wait briefly for open requests and close the socket."""
    config = uvicorn.Config(
        Guard(app, hosts),
        http="h11",
        ws="none",
        loop="none",
        lifespan="off",
        log_config=None,
        log_level=logging.CRITICAL,  # uvicorn would log each bad request
        access_log=False,
        server_header=False,
        backlog=_BACKLOG,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=_END,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    try:
        await asyncio.shield(task)  # a cancelled server would leave its connections open
    finally:
        server.should_exit = True
        await asyncio.wait([task])
        listener.close()


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers, for which it has no option."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(address: str) -> socket.socket:
    """Return a listening socket. Raises OSError; blocks."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not host and socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # fails here on a kernel without IPv6
            return socket.create_server(("", int(port)), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, int(port)), family=family, backlog=_BACKLOG)


def name_of(listener: socket.socket) -> str:
    """Return the address of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _verdict(reasons: Sequence[str], well: str = "") -> Response:
    if reasons:
        return PlainTextResponse("".join(f"{reason}\n" for reason in reasons), status_code=503)
    return PlainTextResponse(f"{well or 'ok'}\n")
