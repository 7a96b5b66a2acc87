"""An API server on loopback for tests: what `vdev.kube` asks for, refused wherever the real one would refuse it.

    async with ApiServer() as api:
        api.add("nodes", {"metadata": {"name": "worker-1"}})
        api.edit("nodes", "worker-1", {"metadata": {"labels": {"a": "b"}}}, manager="kubectl")
        api.fail(status=429, after=1, verb="patch")        # until api.heal()
        assert api.writes == 0

Where it differs from the real one it is the stricter: it never takes what that refuses. The bytes of HTTP are its own,
so that it can hang, stop in the middle of a line, and vanish.
"""

import asyncio
import base64
import contextlib
import functools
import json
import socket
import ssl
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.kit import api_patches
from tests.kit.api_objects import KINDS, Objects, Refused

ME = "system:serviceaccount:vdev-system:vdev"
_WRITES = {"create", "update", "patch", "delete"}
_PATCHES = {
    "application/merge-patch+json": api_patches.merge,
    "application/strategic-merge-patch+json": api_patches.strategic,
    "application/json-patch+json": api_patches.operations,
}
_APPLY = "application/apply-patch+yaml"
_PHRASES = {200: "OK", 201: "Created"}


@dataclass(frozen=True)
class Asked:
    """A request that came."""

    verb: str
    resource: str  # with its subresource: nodes/status
    name: str
    namespace: str
    params: dict
    headers: dict
    body: object


@dataclass(eq=False)
class Failure:
    """What goes wrong with requests of this kind (empty: with all), `times` times."""

    verb: str = ""
    resource: str = ""
    status: int = 0
    message: str = "a failure of the test"
    after: int | None = None
    hang: bool = False
    times: int = -1
    hits: int = field(default=0)

    def hit(self, verb, resource):
        """Whether this request fails by it, which is counted."""
        if self.times == 0 or self.verb not in ("", verb) or self.resource not in ("", resource):
            return False
        self.times -= 1
        self.hits += 1
        return True


@dataclass(eq=False)
class _Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    task: asyncio.Task
    watches: bool = False


class ApiServer:
    """One server. `tokens` are those it knows; `permissions` those of RBAC ("patch nodes/status", or for objects of one
    name alone "patch nodes worker-1"), None: all.
    """

    def __init__(self, *, token="secret", tls=None, kinds=KINDS):
        self.objects = Objects()
        self.kinds = {(each.group, each.version, each.plural): each for each in kinds}
        self.tokens = {token}
        self.permissions = None
        self.version = (1, 36)
        self.asked = []
        self.watching = 0
        self.connections = 0  # that were ever opened
        self.port = 0
        self._tls = tls
        self._failures = []
        self._listener = None
        self._clients = set()

    async def __aenter__(self):
        await self.up()
        return self

    async def __aexit__(self, *_):
        await self.down()

    # --- what a test does ---------------------------------------------------------------------------------------------

    @property
    def address(self):
        """Its URL."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def writes(self):
        """How many requests came that write, whatever became of them."""
        return sum(each.verb in _WRITES for each in self.asked)

    @property
    def changes(self):
        """How many changes were stored."""
        return len(self.objects.history)

    def kind(self, plural):
        """The kind of this plural."""
        return next(each for each in self.kinds.values() if each.plural == plural)

    def object(self, plural, name, namespace=""):
        """An object as it is stored."""
        return self.objects.get(self.kind(plural), namespace, name)

    def all(self, plural, namespace=""):
        """The objects of a kind."""
        return self.objects.all(self.kind(plural), namespace)

    async def add(self, plural, document, *, namespace="", manager="somebody", status=None):
        """Make an object, as somebody else; with its status."""
        kind = self.kind(plural)
        found = self.objects.create(kind, namespace, document, manager)
        if status is not None:
            name = found["metadata"]["name"]
            found = self.objects.change(kind, namespace, name, {**found, "status": status}, manager, "status")
        await self.objects.tell()
        return found

    async def edit(self, plural, name, patch, *, namespace="", manager="somebody", subresource=""):
        """Merge a patch into an object, as somebody else."""
        kind = self.kind(plural)
        new = api_patches.merge(self.objects.get(kind, namespace, name), patch)
        found = self.objects.change(kind, namespace, name, new, manager, subresource)
        await self.objects.tell()
        return found

    async def remove(self, plural, name, *, namespace=""):
        """Delete an object, as somebody else."""
        self.objects.delete(self.kind(plural), namespace, name, "")
        await self.objects.tell()

    async def until(self, condition):
        """Wait for a condition, which may depend on everything that goes on in the loop."""
        async with asyncio.timeout(30):
            while not condition():  # noqa: ASYNC110 - anything may make it true
                await asyncio.sleep(0.005)

    def fail(self, **failure):
        """Let requests fail: by verb and resource; with a status, or hanging; so many times or until `heal`."""
        self._failures.append(Failure(**failure))
        return self._failures[-1]

    def heal(self):
        """Nothing fails any more; what hangs stays so."""
        self._failures.clear()

    async def down(self):
        """Vanish: no listener, every connection cut."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
            clients = [*self._clients]
            for each in clients:
                each.writer.transport.abort()
                each.task.cancel()
            await asyncio.gather(*(each.task for each in clients), return_exceptions=True)
            await listener.wait_closed()

    async def up(self):
        """Listen, on the same port as before."""
        listener = socket.create_server(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        self._listener = await asyncio.start_server(self._serve, sock=listener, ssl=self._tls)

    def break_watches(self, rest=b""):
        """Cut every connection that watches, after a last few bytes."""
        for each in self._clients:
            if each.watches:
                each.writer.write(b"%x\r\n%s\r\n" % (len(rest), rest) if rest else b"")
                each.task.cancel()

    def expire(self):
        """Forget every version but the newest."""
        self.objects.version += 1
        self.objects.forgotten = self.objects.version

    async def bookmark(self):
        """Tell those who watch the newest version, though nothing happened to what they watch."""
        self.objects.version += 1
        await self.objects.tell()

    # --- HTTP ---------------------------------------------------------------------------------------------------------

    async def _serve(self, reader, writer):
        self.connections += 1
        client = _Client(reader, writer, asyncio.current_task())
        self._clients.add(client)
        try:
            with contextlib.suppress(
                ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, asyncio.CancelledError
            ):
                while request := await _request(reader):
                    await self._respond(client, *request)
        finally:
            self._clients.discard(client)
            writer.close()

    async def _respond(self, client, method, target, headers, body):
        try:
            await self._answer(client, method, target, headers, body)
        except Refused as refused:
            more = {"Retry-After": str(refused.after)} if getattr(refused, "after", None) is not None else {}
            await _send(client.writer, refused.status, refused.document, more)
        except api_patches.PatchRefused as refused:
            reason = "Invalid" if refused.status == 422 else "BadRequest"
            await _send(client.writer, refused.status, Refused(refused.status, reason, str(refused)).document, {})

    async def _answer(self, client, method, target, headers, body):
        url = urlsplit(target)
        if (method, url.path) == ("GET", "/version"):
            major, minor = self.version
            await _send(
                client.writer, 200, {"major": str(major), "minor": str(minor), "gitVersion": f"v{major}.{minor}.2"}
            )
            return
        params = dict(parse_qsl(url.query, keep_blank_values=True))
        writer = client.writer
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme != "Bearer" or token not in self.tokens:
            raise Refused(401, "Unauthorized", "Unauthorized")
        kind, namespace, name, subresource = self._path(url.path)
        verb = _verb(method, name, params)
        resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
        document = json.loads(body) if body else None
        self.asked.append(Asked(verb, resource, name, namespace, params, headers, document))
        await self._fail(writer, verb, resource)
        self._allow(verb, kind, resource, namespace, name)
        if verb == "watch":
            await self._watch(client, kind, namespace, params)
        elif verb == "list":
            await _send(writer, 200, self._list(kind, namespace, params))
        elif verb == "get":
            await _send(writer, 200, self.objects.get(kind, namespace, name))
        else:
            status, found = self._write(verb, kind, namespace, name, subresource, params, headers, document)
            await self.objects.tell()
            await _send(writer, status, found)

    def _path(self, path):
        parts = [unquote(part) for part in path.split("/")[1:]]
        group, parts = ("", parts[1:]) if parts[0] == "api" else (parts[1] if parts[1:] else "", parts[2:])
        version, *parts = parts or [""]
        namespace = ""
        if parts[:1] == ["namespaces"] and len(parts) > 2:
            namespace, parts = parts[1], parts[2:]
        kind = self.kinds.get((group, version, parts[0] if parts else ""))
        subresource = parts[2] if len(parts) > 2 else ""
        if kind is None or (namespace and not kind.namespaced) or (subresource and not kind.status):
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        name = parts[1] if len(parts) > 1 else ""
        if kind.namespaced and name and not namespace:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        return kind, namespace, name, subresource

    async def _fail(self, writer, verb, resource):
        for each in self._failures:
            if each.hit(verb, resource):
                if each.hang:
                    await asyncio.Event().wait()
                if not each.status:
                    writer.transport.abort()
                    raise ConnectionResetError
                refused = Refused(each.status, "Failure", each.message)
                refused.after = each.after
                raise refused

    def _allow(self, verb, kind, resource, namespace, name):
        if self._may(verb, resource, name):
            return
        where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        what = f'{kind.full} "{name}"' if name else kind.full
        said = f'User "{ME}" cannot {verb} resource "{resource}" in API group "{kind.group}" {where}'
        raise Refused(403, "Forbidden", f"{what} is forbidden: {said}", name=name, kind=kind.plural)

    def _may(self, verb, resource, name):
        asked = f"{verb} {resource}"
        return self.permissions is None or not self.permissions.isdisjoint({asked, f"{asked} {name}"})

    def _allow_devices(self, verb, kind, name, old, new):
        """Since 1.36, who changes what a claim's status says of devices needs a permission of their drivers."""
        before, after = ((each.get("status") or {}).get("devices") or [] for each in (old, new))
        if kind.kind != "ResourceClaim" or self.version < (1, 36):
            return
        for driver in sorted({each["driver"] for each in (*before, *after)}):
            same = [each for each in before if each["driver"] == driver] == [
                each for each in after if each["driver"] == driver
            ]
            wanted = f"associated-node:{verb}"
            if not same and not self._may(wanted, "resourceclaims/driver", driver):
                text = (
                    f'changing status.devices requires resource="resourceclaims/driver", verb="[{wanted}]" permission'
                )
                text = f"status.devices: Forbidden: {text}: {driver}"
                raise Refused(422, "Invalid", f'{kind.kind} "{name}" is invalid: {text}', name=name, kind=kind.kind)

    # --- writing ------------------------------------------------------------------------------------------------------

    def _write(self, verb, kind, namespace, name, subresource, params, headers, document):
        agent = headers.get("user-agent", "").partition("/")[0] or "unknown"
        manager = params.get("fieldManager") or agent
        content_type = headers.get("content-type", "").partition(";")[0]
        check = functools.partial(self._allow_devices, verb, kind, name)
        if verb == "create":
            _typed(kind, document)
            return 201, self.objects.create(kind, namespace, document, manager)
        if verb == "update":
            _typed(kind, document)
            return 200, self.objects.replace(kind, namespace, name, document, manager, subresource, check=check)
        if verb == "delete":
            uid = ((document or {}).get("preconditions") or {}).get("uid", "")
            gone = self.objects.delete(kind, namespace, name, uid)
            details = {"name": name, "kind": kind.plural, "uid": gone["metadata"]["uid"]}
            return 200, {"kind": "Status", "apiVersion": "v1", "status": "Success", "details": details}
        if content_type == _APPLY:
            return self._apply(kind, namespace, name, subresource, params, document, check)
        if content_type not in _PATCHES:
            text = f"the body of the request was in an unknown format - accepted media types include: {[*_PATCHES]}"
            raise Refused(415, "UnsupportedMediaType", text)
        if "force" in params:
            raise _invalid_option("force", "may not be specified for non-apply patch")
        old = self.objects.get(kind, namespace, name)
        new = _PATCHES[content_type](old, document)
        return 200, self.objects.change(kind, namespace, name, new, manager, subresource, check=check)

    def _apply(self, kind, namespace, name, subresource, params, document, check):
        if not params.get("fieldManager"):
            raise _invalid_option("fieldManager", "is required for apply patch")
        _typed(kind, document)
        if (document.get("metadata") or {}).get("name", name) != name:
            raise Refused(400, "BadRequest", "the name of the object does not match the name on the URL")
        there = any(each["metadata"]["name"] == name for each in self.objects.all(kind, namespace))
        if not there and not subresource:
            self._allow("create", kind, kind.plural, namespace, name)
        force = params.get("force") == "true"
        manager = params["fieldManager"]
        found = self.objects.apply(kind, namespace, name, document, manager, subresource, force=force, check=check)
        return (200 if there else 201), found

    # --- lists and watches --------------------------------------------------------------------------------------------

    def _list(self, kind, namespace, params):
        chosen = _selection(kind, params)
        version, start = self.objects.version, 0
        if "continue" in params:
            if "resourceVersion" in params or "resourceVersionMatch" in params:
                raise Refused(400, "BadRequest", "resourceVersion is forbidden with continue")
            version, start = json.loads(base64.urlsafe_b64decode(params["continue"]))
            if version < self.objects.forgotten:
                text = "The provided continue parameter is too old to display a consistent list result."
                raise Refused(410, "Expired", text)
        else:
            self._at(params, watch=False)
        found = [each for each in self.objects.all(kind, namespace) if chosen(each)]
        limit = int(params.get("limit", 0)) or len(found)
        rest = found[start + limit :]
        metadata = {"resourceVersion": str(version)}
        if rest:
            token = base64.urlsafe_b64encode(json.dumps([version, start + limit]).encode()).decode()
            metadata |= {"continue": token, "remainingItemCount": len(rest)}
        items = [_bare(each) for each in found[start : start + limit]]
        return {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata, "items": items}

    def _at(self, params, *, watch):
        """The version that a list or watch asks for; 0: any."""
        given, match = params.get("resourceVersion", ""), params.get("resourceVersionMatch", "")
        if not given.isdigit() and given:
            raise Refused(400, "BadRequest", f'resourceVersion: Invalid value: "{given}"')
        if match and (watch or not given):
            why = "for watch" if watch else "unless resourceVersion is provided"
            raise _invalid_option("resourceVersionMatch", f"is forbidden {why}")
        if match not in ("", "NotOlderThan") or (given not in ("", "0") and not watch and not match):
            raise Refused(400, "BadRequest", "this server for tests lists no state of the past")
        if given and int(given) > self.objects.version:
            text = f"Too large resource version: {given}, current: {self.objects.version}"
            cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            raise Refused(504, "Timeout", text, causes=[cause])
        return int(given or 0)

    async def _watch(self, client, kind, namespace, params):
        """Until its time is over, or the client goes."""
        chosen = _selection(kind, params)
        seen = self._at(params, watch=True)
        head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        client.writer.write(head.encode())
        await client.writer.drain()
        ends = [
            asyncio.ensure_future(self._events(client, kind, namespace, chosen, seen, params)),
            asyncio.ensure_future(client.reader.read(1)),
        ]
        try:
            seconds = float(params.get("timeoutSeconds", 1800))
            done, _ = await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
            if ends[1] in done:
                raise ConnectionResetError
        finally:
            self.watching -= client.watches
            client.watches = False
            for each in ends:
                each.cancel()
            await asyncio.gather(*ends, return_exceptions=True)
        client.writer.write(b"0\r\n\r\n")
        await client.writer.drain()

    async def _events(self, client, kind, namespace, chosen, seen, params):
        """Counted as a watch once all that was there is told, so that a test knows from where it goes on."""
        writer = client.writer
        if seen == 0:
            for each in self.objects.all(kind, namespace):
                if chosen(each):
                    _event(writer, "ADDED", each)
            seen = self.objects.version
        while True:
            if seen < self.objects.forgotten:
                text = f"too old resource version: {seen} ({self.objects.forgotten})"
                _event(writer, "ERROR", Refused(410, "Expired", text).document)
                await writer.drain()
                return
            for each in self.objects.history:
                if each.version > seen and each.kind == kind:
                    _tell(writer, each, namespace, chosen)
            if self.objects.version > seen and params.get("allowWatchBookmarks") == "true":
                version = {"resourceVersion": str(self.objects.version), "creationTimestamp": None}
                mark = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": version}
                _event(writer, "BOOKMARK", mark)
            seen = self.objects.version
            await writer.drain()
            self.watching += not client.watches
            client.watches = True
            await self.objects.newer(seen)


def _tell(writer, happened, namespace, chosen):
    old, new = happened.old, happened.new
    where = (new or old)["metadata"].get("namespace", "")
    if namespace and where != namespace:
        return
    before, after = old is not None and chosen(old), new is not None and chosen(new)
    if after:
        _event(writer, "MODIFIED" if before else "ADDED", new)
    elif before:
        metadata = {**old["metadata"], "resourceVersion": str(happened.version)}
        _event(writer, "DELETED", {**(new or old), "metadata": metadata})


def _event(writer, kind, document):
    line = json.dumps({"type": kind, "object": document}, ensure_ascii=False).encode() + b"\n"
    writer.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")


async def _request(reader):
    """Method, target, headers by lower-case name, body; None at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return method, target, headers, body


async def _send(writer, status, document, more=None):
    body = json.dumps(document).encode()
    headers = {"Content-Type": "application/json", "Content-Length": len(body)} | (more or {})
    head = f"HTTP/1.1 {status} {_PHRASES.get(status, 'No')}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
    writer.write(head.encode() + body)
    await writer.drain()


def _verb(method, name, params):
    if method == "GET":
        return "get" if name else "watch" if params.get("watch") in ("true", "1") else "list"
    found = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}.get(method, "")
    if not found or bool(name) != (found != "create"):
        raise Refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    return found


def _typed(kind, document):
    if not isinstance(document, dict) or (document.get("apiVersion"), document.get("kind")) != (
        kind.api_version,
        kind.kind,
    ):
        raise Refused(400, "BadRequest", f"apiVersion and kind must be {kind.api_version} and {kind.kind}")


def _invalid_option(option, text):
    return Refused(422, "Invalid", f"PatchOptions.meta.k8s.io is invalid: {option}: {text}")


def _bare(document):
    return {name: value for name, value in document.items() if name not in ("apiVersion", "kind")}


def _selection(kind, params):
    fields = _fields(kind, params.get("fieldSelector", ""))
    labels = [_label(each) for each in _split(params.get("labelSelector", ""))]

    def chosen(document):
        have = document["metadata"].get("labels") or {}
        return all(_value(document, path) == value for path, value in fields) and all(test(have) for test in labels)

    return chosen


def _fields(kind, text):
    found = []
    for each in filter(None, text.split(",")):
        name, equals, value = each.partition("=")
        if not equals or name.endswith("!"):
            raise Refused(400, "BadRequest", f"this server for tests knows only = in field selectors: {each}")
        if name not in ("metadata.name", "metadata.namespace", *kind.selectable):
            raise Refused(400, "BadRequest", f"field label not supported: {name}")
        found.append((name, value.removeprefix("=")))
    return found


def _split(text):
    depth, part = 0, ""
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            yield part
            part = ""
        else:
            part += character
    if part:
        yield part


def _label(text):
    """One requirement of a label selector: a=b, a!=b, a, !a, a in (b,c), a notin (b,c)."""
    text = text.strip()
    for word, wanted in ((" notin ", False), (" in ", True)):
        name, found, values = text.partition(word)
        if found:
            among = {each.strip() for each in values.strip().removeprefix("(").removesuffix(")").split(",")}
            return lambda have: (have.get(name.strip()) in among) is wanted
    for word, wanted in (("!=", False), ("==", True), ("=", True)):
        name, found, value = text.partition(word)
        if found:
            return lambda have: (have.get(name.strip()) == value.strip()) is wanted
    return (lambda have: text[1:] not in have) if text.startswith("!") else (lambda have: text in have)


def _value(document, path):
    found = document
    for part in path.split("."):
        found = (found or {}).get(part)
    return str(found) if found is not None else ""
