"""What DRA drivers are known to do wrong, or did: each a patch of our own code, by name, for worlds with claims."""

import contextlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any
from unittest import mock

from ...agent.optional.dra_side import DraSide
from ...agent.outputs.dra import resource_slices
from ...agent.outputs.dra.resource_slices import ResourceSlices
from ...agent.outputs.node.node_labels import NodeLabels
from ...core.claims.prepared import PreparedClaim
from ...core.slices.objects import publishing
from ...dra.checkpoint import Checkpoint
from ...dra.claim_files import ClaimFiles
from ...dra.driver import DraDriver

Patch = Callable[[], contextlib.AbstractContextManager[object]]


def _no_claim_files() -> contextlib.AbstractContextManager[object]:
    return mock.patch.object(ClaimFiles, "write")


def _files_stay() -> contextlib.AbstractContextManager[object]:
    return mock.patch.object(ClaimFiles, "remove")


def _remember_in_memory() -> contextlib.AbstractContextManager[object]:
    def write(self: Any, claims: Mapping[str, PreparedClaim]) -> None:
        self._known, self.exists = dict(claims), True

    return mock.patch.object(Checkpoint, "write", write)


def _unprepare_nothing() -> contextlib.AbstractContextManager[object]:
    write = Checkpoint.write

    def only_more(self: Any, claims: Mapping[str, PreparedClaim]) -> None:
        write(self, {**self.read(), **claims})

    return mock.patch.object(Checkpoint, "write", only_more)


def _give_twice() -> contextlib.AbstractContextManager[object]:
    return mock.patch.object(PreparedClaim, "conflict", return_value="")


def _forget_claimed() -> contextlib.AbstractContextManager[object]:
    return mock.patch.object(DraSide, "claimed", MappingProxyType({}))


def _old_generation() -> contextlib.AbstractContextManager[object]:
    changes = publishing.changes

    def of_the_first(*arguments: Any, **named: Any) -> Any:
        found = changes(*arguments, **named)
        for each in (*found.create, *found.update):
            each["spec"]["pool"]["generation"] = 1
        return found

    return mock.patch.object(resource_slices, "changes", of_the_first)


def _publish_once() -> contextlib.AbstractContextManager[object]:
    publish = ResourceSlices._publish  # noqa: SLF001 - a mutant

    async def once(self: Any, driver: str, uid: str) -> None:
        if driver not in self.published:
            await publish(self, driver, uid)

    return mock.patch.object(ResourceSlices, "_publish", once)


def _never_again() -> contextlib.AbstractContextManager[object]:
    are_there = DraDriver._are_there  # noqa: SLF001 - a mutant

    def believed(self: Any) -> bool:
        return bool(self._serves) or are_there(self)

    return mock.patch.object(DraDriver, "_are_there", believed)


def _labels_once() -> contextlib.AbstractContextManager[object]:
    return mock.patch.object(NodeLabels, "_see_node")


def _labels_stay() -> contextlib.AbstractContextManager[object]:
    settle = NodeLabels.settle

    async def kept(self: Any, plan: Any) -> None:
        if plan.labels:
            await settle(self, plan)

    return mock.patch.object(NodeLabels, "settle", kept)


BAD_DRIVERS: dict[str, Patch] = {
    "prepares claims without their CDI files": _no_claim_files,
    "unprepares claims and leaves their CDI files": _files_stay,
    "remembers prepared claims in memory alone": _remember_in_memory,
    "answers unprepare and forgets nothing": _unprepare_nothing,
    "prepares what another claim has": _give_twice,
    "takes what claims have from the slices": _forget_claimed,
    "publishes slices of an old generation": _old_generation,
    "publishes slices once, whatever becomes of them": _publish_once,
    "never serves again what a kubelet removed": _never_again,
    "never puts back labels that somebody removed": _labels_once,
    "keeps labels that are switched off": _labels_stay,
}
"""What they are known to do, or did."""
