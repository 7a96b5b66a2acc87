"""The API server of `vdev.sim` for tests of `vdev.kube`: it also fails on command, knows tokens, and counts.

    async with ApiServer() as api:
        await api.add("nodes", {"metadata": {"name": "worker-1"}})
        await api.edit("nodes", "worker-1", {"metadata": {"labels": {"a": "b"}}}, manager="kubectl")
        api.fail(status=429, after=1, verb="patch")        # until api.heal()
        assert api.writes == 0

Objects must be such by Kubernetes' own schemas as well, where these are installed.
"""

import asyncio
import contextvars
import functools
from dataclasses import dataclass, field

from starlette.responses import StreamingResponse

from tests.kit import api_schemas
from tests.kit.releases import Release
from vdev.sim.api import patches, server
from vdev.sim.api.kinds import KINDS, Refused
from vdev.sim.api.store import Objects

ME = "system:serviceaccount:vdev-system:vdev"
_REQUEST = contextvars.ContextVar("request", default=None)
_WRITES = {"create", "update", "patch", "delete", "deletecollection"}


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
    """What goes wrong with requests of this kind (empty: with all), `times` times; with every one of so many."""

    verb: str = ""
    resource: str = ""
    status: int = 0
    message: str = "a failure of the test"
    after: int | None = None
    hang: bool = False
    times: int = -1
    every: int = 1
    seen: int = field(default=0)
    hits: int = field(default=0)
    released: asyncio.Event = field(default_factory=asyncio.Event)  # set: what hung goes on

    def hit(self, verb, resource):
        """Whether this request fails by it, which is counted."""
        if self.times == 0 or self.verb not in ("", verb) or self.resource not in ("", resource):
            return False
        self.seen += 1
        if self.seen % self.every:
            return False
        self.times -= 1
        self.hits += 1
        return True


async def _cut():
    """The body of an answer that breaks."""
    yield b""
    raise ConnectionResetError


class ApiServer(server.ApiServer):
    """One server. `tokens` are those it knows; `permissions` those of RBAC ("patch nodes/status", or for objects of one
    name alone "patch nodes worker-1"), None: all. Without `schemas` objects are not held against Kubernetes' own, which
    takes thirty milliseconds for a large one.
    """

    bookmarks = 0.0  # at once, so that no test waits for one

    def __init__(self, *, token="secret", tls=None, kinds=KINDS, release=None, schemas=True):
        rules = release or Release()
        rules.more = self._problems
        self._schemas = schemas
        self._anew = functools.partial(Objects, rules=rules)
        super().__init__(self._anew(), kinds=kinds, tls=tls)
        self._begin()
        self.tokens = {token}
        self.permissions = None
        self.asked = []
        self._failures = []
        self._watches = {}  # the bytes with which each task that watches is to break, None: it is not

    def _begin(self):
        for name in ("vdev-system",):
            self.objects.create(self.kind("namespaces"), "", {"metadata": {"name": name}}, "kubectl")
        self.changes = 0  # how many were stored
        self.objects.listen(self._count)

    def _count(self):
        self.changes += 1

    # --- what a test does ---------------------------------------------------------------------------------------------

    @property
    def writes(self):
        """How many requests came that write, whatever became of them."""
        return sum(each.verb in _WRITES for each in self.asked)

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
            new = {**found, "status": status}
            name = found["metadata"]["name"]
            found = self.objects.change(kind, (namespace, name), new, manager=manager, subresource="status")
        return found

    async def register(self, name, status, **labels):
        """Make a Node as a kubelet does: nobody owns its first status, and then the kubelet what changes of it."""
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
        """Merge a patch into an object, as somebody else."""
        kind = self.kind(plural)
        new = patches.merge(self.objects.get(kind, namespace, name), patch)
        return self.objects.change(kind, (namespace, name), new, manager=manager, subresource=subresource)

    async def remove(self, plural, name, *, namespace=""):
        """Delete an object, as somebody else."""
        self.objects.delete(self.kind(plural), namespace, name)

    async def until(self, condition, *, seconds=90):
        """Wait for a condition, which may depend on everything that goes on in the loop."""
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.005)

    def fail(self, **failure):
        """Let requests fail: by verb and resource; with a status, or hanging; so many times or until `heal`."""
        self._failures.append(Failure(**failure))
        return self._failures[-1]

    def heal(self):
        """Nothing fails any more; what hangs stays so."""
        self._failures.clear()

    def break_watches(self, rest=b""):
        """Cut every connection that watches, after a last few bytes."""
        for task in self._watches:
            self._watches[task] = rest
            task.cancel()

    def expire(self):
        """Forget every version but the newest."""
        self.objects.version += 1
        self.objects.forgotten = self.objects.version

    def lose_store(self):
        """Have another, empty one, whose versions begin anew; to be done while it is down."""
        self.objects = self._anew()
        self._begin()

    async def bookmark(self):
        """Tell those who watch the newest version, though nothing happened to what they watch."""
        self.objects.create(self.kind("namespaces"), "", {"metadata": {"generateName": "x"}}, "somebody")

    # --- on the way of a request --------------------------------------------------------------------------------------

    async def respond(self, sent):
        """Cut the connection where a failure has no status."""
        try:
            return await super().respond(sent)
        except ConnectionResetError:
            return StreamingResponse(_cut())

    async def stream(self, watch):
        """Until `break_watches`."""
        task = asyncio.current_task()
        self._watches[task] = None
        try:
            async for text in super().stream(watch):
                yield text
        except asyncio.CancelledError:
            if self._watches[task] is None:
                raise
            task.uncancel()
            yield self._watches[task]
            raise ConnectionResetError from None
        finally:
            del self._watches[task]

    async def admit(self, request):
        """Ask for its token, note it, let it fail, ask for its permission."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme != "Bearer" or token not in self.tokens:
            raise Refused(401, "Unauthorized", "Unauthorized")
        asked = Asked(
            request.verb,
            request.resource,
            request.name,
            request.namespace,
            dict(request.params),
            dict(request.headers),
            request.body,
        )
        self.asked.append(asked)
        _REQUEST.set(request)  # of the task that answers it
        await self._fail(request.verb, request.resource)
        self._allow(request.verb, request)
        is_apply = request.verb == "patch" and "apply" in request.content_type and not request.subresource
        if is_apply and not self.objects.has(request.kind, request.namespace, request.name):
            self._allow("create", request)

    def _problems(self, kind, old, new):
        """What is wrong by Kubernetes' schemas. Since 1.36, a client that changes the status of a claim's devices needs
        a permission for their drivers.
        """
        if self._schemas:
            yield from api_schemas.causes(new)
        request = _REQUEST.get()
        if request is None or kind.kind != "ResourceClaim" or self.objects.rules.version < (1, 36):
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

    async def _fail(self, verb, resource):
        for each in self._failures:
            if each.hit(verb, resource):
                if each.hang:
                    await each.released.wait()
                    return
                if not each.status:
                    raise ConnectionResetError
                raise Refused(each.status, "Failure", each.message, after=each.after)

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
