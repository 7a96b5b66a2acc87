"""The objects of the tests' API server, as the embedded kubelet, its controllers and its scheduler use them."""

import copy

from tests.kit.api_objects import Refused
from vdev.sim.dra.api_objects import CLAIM, SLICE, ApiObjectError, MemoryObjects

PLURALS = {SLICE: "resourceslices", CLAIM: "resourceclaims"}
_WHO = "kube-controller-manager"


class ClusterObjects(MemoryObjects):
    """Slices and claims are those of the API server; what only the scheduler reads is kept here."""

    def __init__(self, server):
        super().__init__()
        self._server = server
        tell = server.objects.tell

        async def told():
            await tell()
            self._tell()

        server.objects.tell = told

    async def list(self, kind):
        """All objects of a kind."""
        return copy.deepcopy(self._server.all(PLURALS[kind])) if kind in PLURALS else await super().list(kind)

    async def get(self, kind, name, namespace=""):
        """An object, None if there is none."""
        if kind not in PLURALS:
            return await super().get(kind, name, namespace)
        found = self._server.all(PLURALS[kind], namespace)
        return copy.deepcopy(next((each for each in found if each["metadata"]["name"] == name), None))

    async def create(self, kind, document):
        """Create an object."""
        if kind not in PLURALS:
            return await super().create(kind, document)
        namespace = "" if kind == SLICE else document["metadata"].get("namespace", "default")
        return await self._server.add(PLURALS[kind], document, namespace=namespace, manager=_WHO)

    async def edit(self, kind, name, namespace, change):
        """Change an object, its status included."""
        if kind not in PLURALS:
            return await super().edit(kind, name, namespace, change)
        found = await self.get(kind, name, namespace)
        if found is None:
            return None
        change(found)
        stored, server = self._server.kind(PLURALS[kind]), self._server
        try:
            server.objects.change(stored, namespace, name, found, _WHO, "")
            if stored.status:
                found["metadata"].pop("resourceVersion", None)
                server.objects.change(stored, namespace, name, found, _WHO, "status")
        except Refused as refused:
            raise ApiObjectError(str(refused)) from refused
        await server.objects.tell()
        return await self.get(kind, name, namespace)

    async def delete(self, kind, name, namespace=""):
        """Delete an object; no effect if it is gone."""
        if kind not in PLURALS:
            await super().delete(kind, name, namespace)
        elif await self.get(kind, name, namespace) is not None:
            await self._server.remove(PLURALS[kind], name, namespace=namespace)
