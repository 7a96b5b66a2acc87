"""What each kind of event of claims, and of the API server, does to a world."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ..api.claim_model import CELLS, CLASSES
from ..api.world_cluster import WorldCluster
from ..drawn_events import Event

if TYPE_CHECKING:
    from ..world_base import WorldBase

_MOST_PODS = 10


class ClaimEventEffects:
    """Lets events of these kinds happen."""

    def __init__(self, world: "WorldBase", cluster: WorldCluster, write: Callable[[], None]) -> None:
        self._world = world
        self._cluster = cluster
        self._write = write  # the node's file
        self._serial = 0
        self.kinds: dict[str, Callable[[Event], Coroutine[Any, Any, None] | None]] = {
            "claim pod": self._pod,
            "claim shared": self._shared,
            "claim deleted": self._deleted,
            "claims edited": self._edited,
            "cell": self._cell,
            "DRA sockets gone": self._sockets_gone,
            "slices wiped": lambda _: cluster.wipe(),
            "labels spoilt": lambda event: cluster.spoil_labels(event.a % 2),
            "Node made again": lambda _: cluster.forget_node(),
            "API storm": lambda event: cluster.storm(event.a, float(event.b % 120)),
            "API away": self._away,
            "API cut": self._cut,
            "API watches end": lambda _: cluster.server.end_watches(),
            "API forgets": self._forgets,
            "API restored": lambda event: cluster.restore((1, 500, 5000)[event.a % 3]),
        }

    async def heal(self) -> None:
        """Make everything well."""
        self._cluster.clear()
        await self._cluster.come_back()

    # --- pods ---------------------------------------------------------------------------------------------------------

    async def _pod(self, event: Event) -> None:
        """A pod with a claim of its own, or two, of which each of its containers has one."""
        name = sorted(CLASSES)[event.a % 4 // 3]  # mostly the first
        templates = [f"{name}-{event.b % 4 // 3 + 1}"]
        if event.c % 5 == 0:
            templates.append("acme-1")
        await self._run({f"c{number}": {"resourceClaimTemplateName": each} for number, each in enumerate(templates)})

    async def _shared(self, event: Event) -> None:
        """Two pods with one claim."""
        self._serial += 1
        claim = f"shared-{self._serial}"
        request = {"name": "main", "exactly": {"deviceClassName": "acme", "allocationMode": "ExactCount", "count": 1}}
        document = {"metadata": {"name": claim}, "spec": {"devices": {"requests": [request]}}}
        await self._cluster.objects.create("ResourceClaim", document)
        await self._run({"c0": {"resourceClaimName": claim}})
        await asyncio.sleep(event.a % 30)
        await self._run({"c0": {"resourceClaimName": claim}})

    async def _run(self, claims: dict[str, dict[str, str]]) -> None:
        world = self._world
        if len(world.kubelet.pods()) >= _MOST_PODS:
            pod = world.kubelet.pods()[self._serial % _MOST_PODS]
            await world.kubelet.delete_pod(pod.name, force=self._serial % 2 == 0)
        self._serial += 1
        containers = [{"name": name, "image": "none", "resources": {"claims": [{"name": name}]}} for name in claims]
        document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"q{self._serial}"},
            "spec": {
                "containers": containers,
                "resourceClaims": [{"name": name, **source} for name, source in claims.items()],
            },
        }
        await world.kubelet.run_pod(document)
        world.counts["pods with claims"] += 1

    async def _deleted(self, event: Event) -> None:
        """Somebody deletes a claim by force, even if it is in use."""
        found = await self._cluster.objects.list("ResourceClaim")
        if found:
            metadata = found[event.a % len(found)]["metadata"]
            self._world.tell(f"claim {metadata['name']} is deleted")
            await self._cluster.objects.delete("ResourceClaim", metadata["name"], metadata["namespace"])

    # --- the file, devices --------------------------------------------------------------------------------------------

    def _edited(self, event: Event) -> None:
        self._world.tell(self._cluster.model.change(event.a, event.b))
        self._write()

    def _cell(self, event: Event) -> None:
        self._cluster.model.plug(CELLS[event.a % len(CELLS)])

    def _sockets_gone(self, event: Event) -> None:
        """Somebody removes sockets of DRA drivers: with which they register, or are called."""
        root = self._world.kubelet.root
        for path in sorted(root.glob(("plugins_registry/*.sock", "plugins/*/*.sock")[event.a % 2])):
            path.unlink(missing_ok=True)
        self._cluster.trouble()  # without its driver the kubelet takes slices away

    # --- the server ---------------------------------------------------------------------------------------------------

    async def _away(self, event: Event) -> None:
        await self._cluster.go_away()
        await asyncio.sleep(event.a % 400)
        await self._cluster.come_back()

    async def _cut(self, event: Event) -> None:
        self._cluster.cut()
        await asyncio.sleep(event.a % 90)
        self._cluster.clear()

    def _forgets(self, _event: Event) -> None:
        self._cluster.trouble()
        self._cluster.server.forget()
