"""The HTTP side: metrics, health, readiness, status, and a page for a person. Read-only; it knows nothing of the agent.

    /metrics  Prometheus or OpenMetrics text     /healthz  200 while the agent's loop turns
    /status   the status document, with an ETag  /readyz   200 while every resource is registered and streaming
    /         the page, which polls /status

What is shown comes through `Watched`. A port that cannot be had is reported, and the agent works on without.
"""

import asyncio
import contextlib
import hashlib
import json
import socket
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from importlib import resources
from typing import Any, Protocol

import structlog
import uvicorn
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

log = structlog.get_logger(__name__)

_SHUTDOWN = 2  # seconds that open requests get at the end
_BACKLOG = 128
_PAGE_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


class Watched(Protocol):
    """What the HTTP side asks. `status` and `registry` are asked from a thread, the rest from the loop."""

    def status(self) -> Mapping[str, Any]:
        """The status document."""

    def registry(self) -> CollectorRegistry:
        """The metrics, brought up to date."""

    def stalled(self) -> str:
        """Why the agent no longer does its work; empty while it does."""

    def not_ready(self) -> Sequence[str]:
        """Why the agent is not ready, a sentence each; empty when it is."""


def application(watched: Watched) -> Starlette:
    """The ASGI application."""

    async def page(_request: Request) -> Response:
        return HTMLResponse(await asyncio.to_thread(_page), headers=_PAGE_HEADERS)

    async def healthz(_request: Request) -> Response:
        return _verdict([text] if (text := watched.stalled()) else [])

    async def readyz(_request: Request) -> Response:
        return _verdict(watched.not_ready())

    async def status(request: Request) -> Response:
        body = await asyncio.to_thread(lambda: json.dumps(watched.status(), separators=(",", ":")).encode())
        tag = f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
        headers = {"Cache-Control": "no-cache", "ETag": tag}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type="application/json", headers=headers)

    async def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        body = await asyncio.to_thread(lambda: encode(watched.registry()))
        return Response(body, headers={"Content-Type": content_type})

    return Starlette(
        routes=[
            Route("/", page),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/status", status),
            Route("/metrics", metrics),
        ]
    )


@contextlib.asynccontextmanager
async def serving(address: str, watched: Watched) -> AsyncIterator[str]:
    """Serve on `host:port` while the context lasts; gives the address that was bound, empty when none could be.

    Port 0 takes a free one; an empty host means all addresses.
    """
    try:
        listener = await asyncio.to_thread(_bind, address)
    except OSError as failed:
        log.error("no HTTP side; the agent goes on without", address=address, reason=failed.strerror or str(failed))  # noqa: TRY400
        yield ""
        return
    config = uvicorn.Config(
        application(watched),
        http="h11",
        ws="none",
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_SHUTDOWN,
    )
    server = _Server(config)
    bound = _name(listener)
    log.info("serving HTTP", address=bound)
    failure: Exception | None = None
    async with asyncio.TaskGroup() as group:
        group.create_task(_serve(server, listener), name="http")
        try:
            yield bound
        except Exception as error:  # noqa: BLE001  # the caller's own, which must not come out as a group
            failure = error
        finally:
            server.should_exit = True
    if failure is not None:
        raise failure


class _Server(uvicorn.Server):
    """uvicorn as a guest in the agent's loop: signals stay the agent's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _serve(server: uvicorn.Server, listener: socket.socket) -> None:
    """Serve until told to end; what goes wrong here must not take the agent along."""
    try:
        await server.serve(sockets=[listener])
    except Exception:
        log.exception("the HTTP side ended; the agent goes on without")
    finally:
        listener.close()


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


def _page() -> str:
    return resources.files(__package__).joinpath("page.html").read_text()


def _verdict(reasons: Sequence[str]) -> Response:
    if reasons:
        return PlainTextResponse("".join(f"{reason}\n" for reason in reasons), status_code=503)
    return PlainTextResponse("ok\n")
