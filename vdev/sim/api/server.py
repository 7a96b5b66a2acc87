"""An API server on loopback. It serves the objects of `store` to any HTTP client.

    async with ApiServer() as api:
        print(api.address)      # http://127.0.0.1:…

It has no authentication and no authorization, so it listens on loopback only.
"""

import asyncio
import functools
import ipaddress
import json
import logging
import ssl
from collections.abc import Sequence
from typing import Self

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from uvicorn.server import ServerState

from ...errors import UsageError
from . import requests, tables
from .kinds import KINDS, ApiKind, Document, Refused, discovery
from .requests import Request
from .store import ObjectStore, well_formed

_VERBS = {  # as in RBAC: for one object and for a collection
    "GET": ("get", "list"),
    "HEAD": ("get", "list"),
    "POST": ("create", "create"),
    "PUT": ("update", ""),
    "PATCH": ("patch", ""),
    "DELETE": ("delete", "deletecollection"),
}
_ACCEPT_TURNS = 5  # iterations of the event loop: asyncio needs 3 from accept() to connection_made(), and 4 with TLS
_IDLE = 90  # seconds for which a connection may be idle, as in Kubernetes


class ApiServer:
    """Serves objects. With port 0, it chooses a free port and keeps it over restarts.

    Raises UsageError for a host that is not loopback.
    """

    kinds: Sequence[ApiKind] = KINDS
    tls: ssl.SSLContext | None = None
    bookmarks = 60.0
    """Seconds between two bookmarks of a watch (source: cacher, defaultBookmarkFrequency)."""

    def __init__(
        self,
        objects: ObjectStore | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        if not _is_loopback(host):
            raise UsageError(f"{host}: the API server knows no users, so it listens on loopback only: 127.0.0.1")
        self.objects = objects or ObjectStore()
        self.port = port
        self._host = host
        self._listener: asyncio.Server | None = None
        self._state = ServerState()

    async def __aenter__(self) -> Self:
        await self.up()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.down()

    @property
    def address(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    def kubeconfig(self) -> str:
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "vdev-sim", "cluster": {"server": self.address}}],
            "users": [{"name": "nobody", "user": {}}],
            "contexts": [{"name": "vdev-sim", "context": {"cluster": "vdev-sim", "user": "nobody"}}],
            "current-context": "vdev-sim",
        }
        return json.dumps(document, indent=2) + "\n"

    # --- start and stop -----------------------------------------------------------------------------------------------

    async def up(self) -> None:
        """Listen, on the same port as before. Raises OSError."""
        config = uvicorn.Config(
            Starlette(routes=self._routes(), exception_handlers=_HANDLERS),
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level=logging.CRITICAL,
            access_log=False,
            timeout_keep_alive=_IDLE,
        )
        config.load()
        self._state = state = ServerState()

        def connected() -> asyncio.Protocol:
            return config.http_protocol_class(config=config, server_state=state, app_state={})  # type: ignore[call-arg]

        # uvicorn.Server takes 0.2 s to stop, finishes open requests and watches first, and installs signal handlers.
        # Tests of clients need a server that stops immediately, as in a crash.
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(connected, self._host, self.port, ssl=self.tls)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def down(self) -> None:
        """Stop listening and abort all connections."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        # asyncio leaks an accepted connection if the listener is closed before the connection has a transport. So stop
        # accepting first, and close the listener when all accepted connections have a transport.
        for each in listener.sockets:
            asyncio.get_running_loop().remove_reader(each.fileno())
        for _ in range(_ACCEPT_TURNS):
            await asyncio.sleep(0)
        listener.close()
        tasks = [*self._state.tasks]
        for connection in [*self._state.connections]:
            connection.transport.abort()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await listener.wait_closed()

    # --- HTTP ---------------------------------------------------------------------------------------------------------

    def _routes(self) -> list[Route]:
        found = [
            Route(path, functools.partial(_about, document), methods=["GET"])
            for path, document in discovery(self.kinds).items()
        ]
        for kind in self.kinds:
            respond = functools.partial(self._receive, kind, "")
            if kind.namespaced:
                found.append(Route(f"{kind.root}/{kind.plural}", respond, methods=["GET"]))
            found.append(Route(kind.path, respond, methods=["GET", "POST", "DELETE"]))
            found.append(Route(f"{kind.path}/{{name}}", respond, methods=["GET", "PUT", "PATCH", "DELETE"]))
            for name, verbs in kind.subresources.items():
                respond = functools.partial(self._receive, kind, name)
                methods = [method for method, (verb, _) in _VERBS.items() if verb in verbs]
                found.append(Route(f"{kind.path}/{{name}}/{name}", respond, methods=methods))
        return found

    async def _receive(self, kind: ApiKind, subresource: str, sent: HttpRequest) -> Response:
        """Parse a request for objects and respond to it. Raises Refused."""
        place, params = sent.path_params, sent.query_params
        verb, verb_of_all = _VERBS[sent.method]
        if "name" not in place:
            verb = "watch" if verb_of_all == "list" and params.get("watch") in ("true", "1") else verb_of_all
        body = requests.decoded(sent.headers, await sent.body())
        namespace, name = place.get("namespace", ""), place.get("name", "")
        return await self.respond(Request(verb, kind, namespace, name, subresource, params, sent.headers, body))

    async def respond(self, request: Request) -> Response:
        """Respond to a request for objects. Raises Refused."""
        form = tables.form(request.kind, request.headers.get("accept", ""))
        match request.verb:
            case "watch":
                events = requests.watch(self.objects, request, form=form, bookmarks=self.bookmarks)
                return StreamingResponse(events, media_type="application/json")
            case "list":
                return JSONResponse(form(requests.listed(self.objects, request)))
            case "get":
                return JSONResponse(form(self.objects.get(request.kind, request.namespace, request.name)))
        with well_formed():
            status, document = requests.write(self.objects, request)
        return JSONResponse(document, status)


async def _about(document: Document, _sent: HttpRequest) -> Response:
    return JSONResponse(document)


async def _refuse(sent: HttpRequest, error: Exception) -> Response:
    if isinstance(error, HTTPException):  # no route
        reason = error.detail.replace(" ", "")
        error = Refused(error.status_code, reason, f"{error.detail}: {sent.method} {sent.url.path}")
    assert isinstance(error, Refused)
    return JSONResponse(error.document, error.status)


_HANDLERS = {Refused: _refuse, HTTPException: _refuse}


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
