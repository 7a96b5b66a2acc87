"""What DRA drivers are known to do wrong, or did: each a patch of our own code, by name, for worlds with claims."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ...agent.outputs.dra import resource_slices
from ...agent.outputs.dra.drivers import Dra
from ...agent.outputs.dra.resource_slices import ResourceSlices
from ...agent.outputs.node.node_labels import NodeLabels
from ...core.claims.prepared import PreparedClaim
from ...core.slices.objects import publishing
from ...dra.checkpoint import Checkpoint
from ...dra.claim_files import ClaimFiles
from ...dra.driver import DraDriver
from .known import Patch, patched

_WRITE, _PUBLISH, _ARE_THERE = Checkpoint.write, ResourceSlices._publish, DraDriver._are_there
_SETTLE = NodeLabels.settle


def _remember_in_memory(self: Any, claims: Mapping[str, PreparedClaim]) -> None:
    self._known = dict(claims)


def _unprepare_nothing(self: Any, claims: Mapping[str, PreparedClaim]) -> None:
    _WRITE(self, {**self.read(), **claims})


def _old_generation(*arguments: Any, **named: Any) -> Any:
    found = publishing.changes(*arguments, **named)
    for each in (*found.create, *found.update):
        each["spec"]["pool"]["generation"] = 1
    return found


async def _publish_once(self: Any, driver: str, uid: str) -> None:
    if driver not in self.published:
        await _PUBLISH(self, driver, uid)


def _never_again(self: Any) -> bool:
    return bool(self._serves) or _ARE_THERE(self)


async def _labels_stay(self: Any, plan: Any) -> None:
    if plan.labels:
        await _SETTLE(self, plan)


BAD_DRIVERS: dict[str, Patch] = {
    "prepares claims without their CDI files": patched(ClaimFiles, "write"),
    "unprepares claims and leaves their CDI files": patched(ClaimFiles, "remove"),
    "remembers prepared claims in memory alone": patched(Checkpoint, "write", _remember_in_memory),
    "answers unprepare and forgets nothing": patched(Checkpoint, "write", _unprepare_nothing),
    "prepares what another claim has": patched(PreparedClaim, "conflict", return_value=""),
    "takes what claims have from the slices": patched(Dra, "claimed", MappingProxyType({})),
    "publishes slices of an old generation": patched(resource_slices, "changes", _old_generation),
    "publishes slices once, whatever becomes of them": patched(ResourceSlices, "_publish", _publish_once),
    "never serves again what a kubelet removed": patched(DraDriver, "_are_there", _never_again),
    "never puts back labels that somebody removed": patched(NodeLabels, "_see_node"),
    "keeps labels that are switched off": patched(NodeLabels, "settle", _labels_stay),
}
"""What they are known to do, or did."""
