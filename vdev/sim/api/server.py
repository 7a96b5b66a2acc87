"""An API server on loopback: Kubernetes' verbs over the objects of `store`, by its rules, for any client of HTTP.

    async with ApiServer() as api:
        print(api.address)      # http://127.0.0.1:…

It knows no users and allows everything, so it listens on loopback alone.
The bytes of HTTP are its own: a subclass for tests can hang, stop in the middle of a line, and vanish.
"""

import asyncio
import contextlib
import ipaddress
import json
import socket
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from ...errors import UsageError
from . import discovery, http_requests, tables
from .http_requests import Request
from .kinds import KINDS, ApiKind, Document, Refused, by_path
from .lists_and_watches import Lists, Watch
from .patches import PatchRefused
from .store import Check, Objects, anything

_PHRASES = {200: "OK", 201: "Created"}
_LARGEST_BODY = 3 * 1024 * 1024  # bytes, as the real one
_UNPROCESSABLE = 422


@dataclass(eq=False, slots=True)
class Client:
    """A connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    task: "asyncio.Task[None]"
    watches: bool = False


class ApiServer:
    """One server of some objects, whose release it claims to be. With port 0 it takes one that is free, and keeps it.

    Raises UsageError for a host that is not loopback.
    """

    bookmarks = 60.0
    """Seconds between two of a watch, as in Kubernetes (cacher, defaultBookmarkFrequency)."""

    def __init__(
        self,
        objects: Objects | None = None,
        *,
        kinds: Iterable[ApiKind] = KINDS,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        if not _is_loopback(host):
            raise UsageError(f"{host}: the API server knows no users, so it listens on loopback alone: 127.0.0.1")
        self.objects = objects or Objects()
        self.kinds = by_path(kinds)
        self.port = port
        self.watching = 0
        self.connections = 0  # that were ever opened
        self._host = host
        self._tls = tls
        self._lists = Lists(self.objects)
        self._listener: asyncio.Server | None = None
        self._clients: dict[Client, None] = {}  # in the order in which they came

    async def __aenter__(self) -> Self:
        await self.up()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.down()

    @property
    def address(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}"

    def kind(self, name: str) -> ApiKind:
        """The kind of this plural, or of this name."""
        return next(each for each in self.kinds.values() if name in (each.plural, each.kind))

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

    # --- life ---------------------------------------------------------------------------------------------------------

    async def up(self) -> None:
        """Listen, on the same port as before. Raises OSError."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        self._listener = await asyncio.start_server(
            self._serve, self._host, self.port, family=family, ssl=self._tls, start_serving=False
        )
        self.port = self._listener.sockets[0].getsockname()[1]
        await self._listener.start_serving()

    async def down(self) -> None:
        """Vanish: no listener, every connection cut."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        for taking in listener.sockets:  # asyncio forgets a connection that it has taken once the listener is closed
            asyncio.get_running_loop().remove_reader(taking.fileno())
        await asyncio.sleep(0)
        listener.close()
        clients = [*self._clients]
        for each in clients:
            each.writer.transport.abort()
            each.task.cancel()
        await asyncio.gather(*(each.task for each in clients), return_exceptions=True)
        await listener.wait_closed()

    # --- for tests ----------------------------------------------------------------------------------------------------

    async def admit(self, request: Request, writer: asyncio.StreamWriter) -> None:
        """Called before a request is done; may raise Refused, hang, or cut the connection."""

    def check_of(self, _request: Request) -> Check:
        """What must hold for the object before and after a request that writes."""
        return anything

    # --- HTTP ---------------------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._listener is None:  # the loop had taken the connection before `down`, which did not see it
            writer.transport.abort()
            return
        self.connections += 1
        client = Client(reader, writer, task)
        self._clients[client] = None
        try:
            with contextlib.suppress(
                ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, asyncio.CancelledError
            ):
                while await self._respond(client):
                    pass
        finally:
            self._clients.pop(client, None)
            writer.close()

    async def _respond(self, client: Client) -> bool:
        """Answer the next request; whether the connection goes on."""
        try:
            received = await _received(client.reader)
            if received is None:
                return False
            method, target, headers, body = received
        except Refused as refused:
            await _send(client.writer, refused.status, refused.document)
            return False
        try:
            await self._answer(client, method, target, headers, body)
        except Refused as refused:
            more = {} if refused.after is None else {"Retry-After": str(refused.after)}
            await _send(client.writer, refused.status, refused.document, more)
        except PatchRefused as refused:
            reason = "Invalid" if refused.status == _UNPROCESSABLE else "BadRequest"
            await _send(client.writer, refused.status, Refused(refused.status, reason, str(refused)).document)
        return True

    async def _answer(self, client: Client, method: str, target: str, headers: Mapping[str, str], body: bytes) -> None:
        about = discovery.answer(urlsplit(target).path, self.kinds.values(), self.objects.release.version)
        if method == "GET" and about is not None:
            await _send(client.writer, 200, about)
            return
        await self.authenticate(headers)
        request = http_requests.read(self.kinds, method, target, headers, body)
        await self.admit(request, client.writer)
        form = tables.Form(request.kind, request.headers, request.params)
        match request.verb:
            case "watch":
                await self._watch(client, request, form)
            case "list":
                found = self._lists.answer(request.kind, request.namespace, request.params)
                await _send(client.writer, 200, form(found))
            case "get":
                found = self.objects.get(request.kind, request.namespace, request.name)
                await _send(client.writer, 200, form(found))
            case _:
                try:
                    done = http_requests.write(self.objects, request, check=self.check_of(request))
                except (AttributeError, KeyError, TypeError, ValueError) as error:
                    text = f"the object is not one: {type(error).__name__}: {error}"
                    raise Refused(400, "BadRequest", text) from error
                await self.objects.tell()
                await _send(client.writer, done.status, done.document)

    async def authenticate(self, headers: Mapping[str, str]) -> None:
        """Called before anything is looked at; may raise Refused."""

    async def _watch(self, client: Client, request: Request, form: tables.Form) -> None:
        """Until its time is over, or the client goes."""
        about = request.kind, request.namespace, request.params
        watch = Watch(self.objects, *about, client.writer, form=form, bookmarks=self.bookmarks)
        head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        client.writer.write(head.encode())
        await client.writer.drain()
        telling = asyncio.ensure_future(watch.run())
        gone = asyncio.ensure_future(client.reader.read(1))
        current = asyncio.ensure_future(self._is_current(client, watch))
        try:
            done, _ = await asyncio.wait([telling, gone], timeout=watch.seconds, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
            if gone in done:
                raise ConnectionResetError
        finally:
            self.watching -= client.watches
            client.watches = False
            for each in (telling, gone, current):
                each.cancel()
            await asyncio.gather(telling, gone, current, return_exceptions=True)
        client.writer.write(b"0\r\n\r\n")
        await client.writer.drain()

    async def _is_current(self, client: Client, watch: Watch) -> None:
        await watch.current.wait()
        client.watches = True
        self.watching += 1


async def _received(reader: asyncio.StreamReader) -> tuple[str, str, dict[str, str], bytes] | None:
    """Method, target, headers by lower-case name, body; None at the end of the connection. Raises Refused."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError:
        raise Refused(431, "BadRequest", "the head of the request is too large") from None
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    words = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = headers.get("content-length", "0")
    if len(words) != 3 or not length.isdecimal() or "transfer-encoding" in headers:  # method, target, version
        raise Refused(400, "BadRequest", "this is no request that the server understands: it wants a Content-Length")
    if int(length) > _LARGEST_BODY:
        text = f"the request is too large: {length} bytes, and at most {_LARGEST_BODY} are taken"
        raise Refused(413, "RequestEntityTooLarge", text)
    return words[0], words[1], headers, await reader.readexactly(int(length))


async def _send(
    writer: asyncio.StreamWriter,
    status: int,
    document: Document,
    more: Mapping[str, str] | None = None,
) -> None:
    body = json.dumps(document).encode()
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **(more or {})}
    head = f"HTTP/1.1 {status} {_PHRASES.get(status, 'No')}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
    writer.write(head.encode() + body)
    await writer.drain()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
