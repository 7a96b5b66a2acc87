"""The objects of the tests' API server, as the embedded kubelet and its scheduler want them.

    async with ApiServer(kinds=DRA_KINDS) as api:
        async with Kubelet(objects=ServerObjects(api)) as kubelet:
            ...

A driver then talks HTTP to the server, and the kubelet sees what it writes.
"""

import asyncio
import copy

from tests.kit.api_objects import KINDS, Refused, Stored
from vdev.sim import ApiObjectError

_OTHERS = (
    Stored("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", namespaced=False),
    Stored("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates", namespaced=True),
    Stored("", "v1", "Namespace", "namespaces", namespaced=False),
)
DRA_KINDS = (*KINDS, *(each for each in _OTHERS if each.kind not in {known.kind for known in KINDS}))
MANAGER = "cluster"


class ServerObjects:
    """The objects of one API server; what fails there with HTTP does not fail here."""

    def __init__(self, api):
        self._api = api
        self._plurals = {each.kind: each.plural for each in api.kinds.values()}
        self._namespaced = {each.kind for each in api.kinds.values() if each.namespaced}
        self.fails = False

    async def list(self, kind):
        """All objects of a kind."""
        self._reachable()
        return [copy.deepcopy(each) for each in self._api.all(self._plurals[kind])]

    async def get(self, kind, name, namespace=""):
        """An object, None if there is none."""
        self._reachable()
        try:
            return copy.deepcopy(self._api.object(self._plurals[kind], name, self._home(kind, namespace)))
        except Refused:
            return None

    async def create(self, kind, document):
        """Create an object, with its status."""
        self._reachable()
        namespace = self._home(kind, document["metadata"].get("namespace", ""))
        try:
            return copy.deepcopy(
                await self._api.add(
                    self._plurals[kind], document, namespace=namespace, manager=MANAGER, status=document.get("status")
                )
            )
        except Refused as refused:
            raise ApiObjectError(str(refused)) from refused

    async def edit(self, kind, name, namespace, change):
        """Change an object and its status; None if it is gone."""
        old = await self.get(kind, name, namespace)
        if old is None:
            return None
        new = copy.deepcopy(old)
        change(new)
        objects, stored, home = self._api.objects, self._api.kind(self._plurals[kind]), self._home(kind, namespace)
        status = {**new, "status": new.get("status", {})}
        try:
            found = objects.change(stored, home, name, new, MANAGER, "")
            if stored.status and status["status"] != old.get("status", {}):
                status["metadata"] = found["metadata"]
                found = objects.change(stored, home, name, status, MANAGER, "status")
        except Refused as refused:
            raise ApiObjectError(str(refused)) from refused
        await objects.tell()
        return copy.deepcopy(found)

    async def delete(self, kind, name, namespace=""):
        """Delete an object; no effect if it is gone."""
        self._reachable()
        try:
            await self._api.remove(self._plurals[kind], name, namespace=self._home(kind, namespace))
        except Refused as refused:
            if refused.status != 404:
                raise ApiObjectError(str(refused)) from refused

    def listen(self, listener):
        """Call `listener` after each change; returns what ends that."""
        task = asyncio.create_task(self._listen(listener), name="listener of the API server")
        return task.cancel

    async def _listen(self, listener):
        version = self._api.objects.version
        while True:
            await self._api.objects.newer(version)
            version = self._api.objects.version
            listener()

    def _home(self, kind, namespace):
        return (namespace or "default") if kind in self._namespaced else ""

    def _reachable(self):
        if self.fails:
            raise ApiObjectError("dial tcp: connection refused")
