"""The API server of `vdev.sim` for tests, with failures on demand, checks of tokens and permissions, and counters.

    async with ApiServer() as api:
        await api.add("nodes", {"metadata": {"name": "worker-1"}})
        await api.edit("nodes", "worker-1", {"metadata": {"labels": {"a": "b"}}}, manager="kubectl")
        api.fail(status=429, after=1, verb="patch")        # until api.heal()
        assert api.writes == 0

Objects are also validated against Kubernetes' own schemas, if these are installed.
"""

import asyncio
import contextvars
import functools
from dataclasses import dataclass, field

from starlette.responses import JSONResponse, StreamingResponse

from tests.kit import api_schemas
from tests.kit.canonical_store import CanonicalStore
from tests.kit.releases import Release
from vdev.sim.api import patches, server
from vdev.sim.api.kinds import KINDS, Refused

ME = "system:serviceaccount:vdev-system:vdev"
_REQUEST = contextvars.ContextVar("request", default=None)
_WRITES = {"create", "update", "patch", "delete", "deletecollection"}


@dataclass(frozen=True)
class ReceivedRequest:
    """A request that the server received."""

    verb: str
    resource: str  # with its subresource: nodes/status
    name: str
    namespace: str
    params: dict
    headers: dict
    body: object


@dataclass(eq=False)
class Failure:
    """How requests with this verb and resource fail. An empty verb or resource matches any."""

    verb: str = ""
    resource: str = ""
    status: int = 0
    message: str = "a failure of the test"
    after: int | None = None
    hang: bool = False
    times: int = -1  # the number of requests that fail; -1: all
    every: int = 1  # 3: only every third request fails
    seen: int = field(default=0)
    hits: int = field(default=0)
    released: asyncio.Event = field(default_factory=asyncio.Event)  # set it to let hanging requests continue

    def hit(self, verb, resource):
        """Count the request, and return whether it fails."""
        if self.times == 0 or self.verb not in ("", verb) or self.resource not in ("", resource):
            return False
        self.seen += 1
        if self.seen % self.every:
            return False
        self.times -= 1
        self.hits += 1
        return True


class _LaterError(Refused):
    """A refusal with a Retry-After header."""

    def __init__(self, failure):
        super().__init__(failure.status, "Failure", failure.message)
        self.after = failure.after


async def _cut():
    """The body of a response whose connection breaks."""
    yield b""
    raise ConnectionResetError


class ApiServer(server.ApiServer):
    """An API server with failures, tokens and permissions.

    `tokens` are the valid tokens. `permissions` are RBAC rules ("patch nodes/status", or "patch nodes worker-1" for one
    object); None allows everything. Without `schemas`, objects are not validated against Kubernetes' schemas, which
    takes 30 ms for a large object.
    """

    bookmarks = 0.0  # sent at once, so that no test waits for one

    def __init__(self, *, token="secret", tls=None, kinds=KINDS, release=None, schemas=True):
        self._schemas = schemas
        self._new_store = functools.partial(CanonicalStore, release or Release(), self._problems)
        super().__init__(self._new_store())
        self.kinds, self.tls = kinds, tls
        self._begin()
        self.watching = 0  # watches that have sent all existing objects
        self.tokens = {token}
        self.permissions = None
        self.asked = []
        self._failures = []
        self._watches = {}  # by task of a watch: the bytes to send before its connection breaks; None: it continues

    def _begin(self):
        for name in ("vdev-system",):
            self.objects.create(self.kind("namespaces"), "", {"metadata": {"name": name}}, "kubectl")
        self.changes = 0  # stored changes
        self.objects.listen(self._count)

    def _count(self):
        self.changes += 1

    # --- for tests ----------------------------------------------------------------------------------------------------

    @property
    def writes(self):
        """The number of write requests that the server received, successful or not."""
        return sum(each.verb in _WRITES for each in self.asked)

    def kind(self, plural):
        """Return the kind with this plural name."""
        return next(each for each in self.kinds if each.plural == plural)

    def object(self, plural, name, namespace=""):
        """Return a stored object."""
        return self.objects.get(self.kind(plural), namespace, name)

    def all(self, plural, namespace=""):
        """Return the objects of a kind."""
        return self.objects.all(self.kind(plural), namespace)

    async def add(self, plural, document, *, namespace="", manager="somebody", status=None):
        """Create an object with its status, as another client does."""
        kind = self.kind(plural)
        found = self.objects.create(kind, namespace, document, manager)
        if status is not None:
            new = {**found, "status": status}
            name = found["metadata"]["name"]
            found = self.objects.change(kind, (namespace, name), new, manager=manager, subresource="status")
        return found

    async def register(self, name, status, **labels):
        """Create a Node as a kubelet does. The first status has no field manager; the kubelet owns later changes."""
        ready = {"type": "Ready", "status": "False", "reason": "KubeletNotReady"}
        quiet = {"type": "MemoryPressure", "status": "False", "lastHeartbeatTime": "2026-11-23T08:00:00Z"}
        metadata = {"name": name} | ({"labels": labels} if labels else {})
        await self.add(
            "nodes", {"metadata": metadata, "status": status | {"conditions": [quiet, ready]}}, manager="kubelet"
        )
        later = {**quiet, "lastHeartbeatTime": "2026-11-23T08:00:10Z"}, ready | {"status": "True", "reason": "Up"}
        return await self.edit(
            "nodes", name, {"status": {"conditions": list(later)}}, manager="kubelet", subresource="status"
        )

    async def edit(self, plural, name, patch, *, namespace="", manager="somebody", subresource=""):
        """Merge a patch into an object, as another client does."""
        kind = self.kind(plural)
        new = patches.merge(self.objects.get(kind, namespace, name), patch)
        return self.objects.change(kind, (namespace, name), new, manager=manager, subresource=subresource)

    async def remove(self, plural, name, *, namespace=""):
        """Delete an object, as another client does."""
        self.objects.delete(self.kind(plural), namespace, name)

    async def until(self, condition, *, seconds=90):
        """Wait for any condition."""
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.005)

    def fail(self, **failure):
        """Let requests fail until `heal`. The arguments are the fields of `Failure`."""
        self._failures.append(Failure(**failure))
        return self._failures[-1]

    def heal(self):
        """End all failures; hanging requests still hang."""
        self._failures.clear()

    def break_watches(self, rest=b""):
        """Send an incomplete line to every watch, and break its connection."""
        for task in self._watches:
            self._watches[task] = rest
            task.cancel()

    def expire(self):
        """Forget all versions except the newest."""
        self.objects.version += 1
        self.objects.forgotten = self.objects.version

    def lose_store(self):
        """Replace the store by an empty one with new versions. Call this while the server is down."""
        self.objects = self._new_store()
        self._begin()

    async def bookmark(self):
        """Make watches send a bookmark, by a change of another object."""
        self.objects.create(self.kind("namespaces"), "", {"metadata": {"generateName": "x"}}, "somebody")

    # --- requests -----------------------------------------------------------------------------------------------------

    async def respond(self, request):
        """Answer a request. A failure without a status breaks the connection."""
        try:
            await self.admit(request)
            response = await super().respond(request)
        except ConnectionResetError:
            return StreamingResponse(_cut())
        except _LaterError as later:
            return JSONResponse(later.document, later.status, {"Retry-After": str(later.after)})
        if request.verb == "watch":
            response.body_iterator = self.stream(response.body_iterator)
        return response

    async def stream(self, events):
        """Send the events until `break_watches`."""
        task = asyncio.current_task()
        self._watches[task] = None
        is_current = False
        try:
            async for text in events:
                yield text
                self.watching += not is_current
                is_current = True
        except asyncio.CancelledError:
            if self._watches[task] is None:
                raise
            task.uncancel()
            yield self._watches[task]
            raise ConnectionResetError from None
        finally:
            self.watching -= is_current
            del self._watches[task]

    async def admit(self, request):
        """Check the token, record the request, apply failures, and check the permission."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme != "Bearer" or token not in self.tokens:
            raise Refused(401, "Unauthorized", "Unauthorized")
        asked = ReceivedRequest(
            request.verb,
            request.resource,
            request.name,
            request.namespace,
            dict(request.params),
            dict(request.headers),
            request.body,
        )
        self.asked.append(asked)
        _REQUEST.set(request)  # in the context of the task that answers it
        await self._fail(request.verb, request.resource)
        self._allow(request.verb, request)
        is_apply = request.verb == "patch" and "apply" in request.content_type and not request.subresource
        if is_apply and not self.objects.has(request.kind, request.namespace, request.name):
            self._allow("create", request)

    def _problems(self, kind, old, new):
        """Return schema errors and missing permissions.

        Since 1.36, a client that changes the status of a claim's devices needs a permission for their drivers.
        """
        if self._schemas:
            yield from api_schemas.causes(new)
        request = _REQUEST.get()
        if request is not None:
            self.look_at(request, old, new)
        if request is None or kind.kind != "ResourceClaim" or self.objects.release.version < (1, 36):
            return
        before, after = ((each.get("status") or {}).get("devices") or [] for each in (old, new))
        wanted = f"associated-node:{request.verb}"
        for driver in sorted({each["driver"] for each in (*before, *after)}):
            is_same = [each for each in before if each["driver"] == driver] == [
                each for each in after if each["driver"] == driver
            ]
            if not is_same and not self._may(wanted, "resourceclaims/driver", driver):
                text = f'changing status.devices requires resource="resourceclaims/driver", verb="[{wanted}]"'
                yield "status.devices", f"Forbidden: {text} permission: {driver}"

    def look_at(self, request, old, new):
        """Called for each object that a request changes, with its old and new state."""

    async def _fail(self, verb, resource):
        for each in self._failures:
            if each.hit(verb, resource):
                if each.hang:
                    await each.released.wait()
                    return
                if not each.status:
                    raise ConnectionResetError
                if each.after is not None:
                    raise _LaterError(each)
                raise Refused(each.status, "Failure", each.message)

    def _allow(self, verb, request):
        kind, name, namespace = request.kind, request.name, request.namespace
        if self._may(verb, request.resource, name):
            return
        where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        what = f'{kind.full} "{name}"' if name else kind.full
        said = f'User "{ME}" cannot {verb} resource "{request.resource}" in API group "{kind.group}" {where}'
        raise Refused(403, "Forbidden", f"{what} is forbidden: {said}", name=name, kind=kind.plural)

    def _may(self, verb, resource, name):
        asked = f"{verb} {resource}"
        return self.permissions is None or not self.permissions.isdisjoint({asked, f"{asked} {name}"})
