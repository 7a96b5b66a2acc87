"""Publishes the ResourceSlices of a node, like Kubernetes' helper for DRA drivers (resourceslice controller).

A kubelet that starts deletes all slices of its node. They are created again as soon as the watch reports that. If
another program publishes slices for the same driver and node, these stay, and a problem names the program.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import structlog

from ..faults.engine import Engine
from ..kube import MANAGER, RESOURCE_SLICES, Conflict, Missing
from ..kube.ownership import owned, owned_by_others
from ..model.problem import Problem, error, warning
from ..node.api_applier import ApiApplier, NodeAccess
from ..planning.plan import DesiredState
from .published_devices import Pools, PublishedPool
from .slices import Changes, changes, generate_name, specifications, spoilt

log = structlog.get_logger(__name__)

Document = Mapping[str, Any]
_GATES = {
    "taints": "DRADeviceTaints",
    "consumesCounters": "DRAPartitionableDevices",
    "sharedCounters": "DRAPartitionableDevices",
    "allowMultipleAllocations": "DRAConsumableCapacity",
    "requestPolicy": "DRAConsumableCapacity",
}


class SlicesView(Protocol):
    """The slices of a node in the API server."""

    async def seen(self) -> Mapping[str, Document]:
        """Return all slices by name; waits for the first list. Raises ApiServerError if they cannot be listed."""

    def wrote(self, document: Document) -> None:
        """Put the object that the server returned for a write into the view."""

    def removed(self, name: str) -> None:
        """Remove a slice from the view, because the server answered that it does not exist."""


class ResourceSlices(ApiApplier):
    """Keeps the slices of the plan's pools. `published` is their number by driver."""

    name = "publishing ResourceSlices"

    def __init__(self, access: NodeAccess, slices: SlicesView, faults: Engine) -> None:
        super().__init__(access)
        self._faults = faults
        self._uid = ""  # of the Node that owns the slices
        self._wiped: set[str] = set()  # drivers whose slices a fault must delete once
        self.published: dict[str, int] = {}
        self._slices = slices
        self._pools: Pools = {}
        self._taken: dict[str, str] = {}  # by driver: another program that publishes slices for it
        self._dropped: dict[str, frozenset[str]] = {}  # by driver: fields that the server does not store
        # By driver: the last pool that was written completely, and the fault that was injected into it.
        self._written: dict[str, tuple[PublishedPool | None, str | None]] = {}

    def _see_node(self) -> None:
        """Slices depend only on the uid of the Node, so other changes do not matter."""
        metadata = (self._access.view.document or {}).get("metadata") or {}
        if str(metadata.get("uid") or "") != self._uid:
            self._is_due.set()

    def look(self) -> None:
        """Compare again, because slices have changed."""
        if self._follows:
            self._is_due.set()

    def wipe(self, concerns: Callable[[str], bool]) -> None:
        """Delete the slices of drivers for which `concerns` is true, because of a fault."""
        self._wiped |= set(filter(concerns, self._pools))
        self.look()

    async def apply(self, plan: DesiredState) -> None:
        # At the first call even without pools, because an earlier process may have left slices.
        if plan.pools != self._pools or not self._follows:
            self._pools = plan.pools
            self._note(wants=bool(plan.pools))

    async def withdraw(self) -> None:
        """Delete all slices at a clean shutdown. Raises ApiServerError."""
        for each in (await self._slices.seen()).values() if self._follows else ():
            if _is_ours(each):
                await self._delete(each)
        self.published.clear()

    async def _write(self, document: Document) -> None:
        self._uid = str((document.get("metadata") or {}).get("uid") or "")
        present = (await self._slices.seen()).values()
        ours = {each["spec"]["driver"] for each in present if _is_ours(each)}
        foreign = {each["spec"]["driver"]: each for each in present if not _is_ours(each)}
        for driver in sorted(self._pools.keys() | ours):
            if driver in foreign and driver in self._pools:
                manager = next(iter(owned_by_others(foreign[driver], "spec").values()), "somebody")
                if self._taken.get(driver) != manager:
                    log.error("another driver publishes ResourceSlices of this name", driver=driver, manager=manager)
                self._taken[driver] = manager
                self.published.pop(driver, None)
            else:
                self._taken.pop(driver, None)
                await self._publish(driver)

    async def _publish(self, driver: str) -> None:
        """Write the slices of one driver for its pool, or with the error that a fault injects."""
        present = await self._ours(driver)
        if driver in self._wiped:
            await self._carry_out(driver, Changes(delete=tuple(present)))
            self._wiped.discard(driver)
            present = await self._ours(driver)
        if len(present) < self.published.get(driver, 0):
            await self._clock.sleep(self._intervals.republish)  # until a starting kubelet has deleted all slices
            present = await self._ours(driver)
        if not present:
            self.published.pop(driver, None)
        pool = self._pools.get(driver)
        before, spoilt_by = self._written.get(driver, (None, None))
        # A changed pool is written even if it differs only in fields that the server did not store before.
        dropped = self._dropped.get(driver, frozenset()) if before == pool else frozenset[str]()
        wanted = specifications(pool, self._access.node) if pool else ()
        found = changes(wanted, present, ignored=dropped)
        fault = self._faults.on_slices(driver, changed=bool(found))
        if fault is not None:
            found = spoilt(fault, wanted, present, ignored=dropped)
        if found.update and (before, spoilt_by) == (pool, fault) and not await self._may_repair():
            return
        await self._carry_out(driver, found)
        if wanted:
            self.published[driver] = len(wanted)
            self._written[driver] = pool, fault
        else:
            self.published.pop(driver, None)

    async def _ours(self, driver: str) -> Sequence[Document]:
        """The slices of the driver that vdev published."""
        present = (await self._slices.seen()).values()
        return [each for each in present if each["spec"]["driver"] == driver and _is_ours(each)]

    async def _carry_out(self, driver: str, found: Changes) -> None:
        """Delete, update and create slices, in this order as in Kubernetes' helper."""
        if not found:
            return
        self._tokens.take()
        for each in found.delete:
            await self._delete(each)
        for each in found.update:
            try:
                self._wrote(driver, each["spec"], await self._api.update(RESOURCE_SLICES, each))
            except Missing as gone:
                if not gone.served:
                    raise
                self._slices.removed(str(each["metadata"]["name"]))
                self._is_due.set()  # create it again at once
                return
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._access.node, "uid": self._uid, "controller": True}
        for number, spec in found.create:
            metadata = {"generateName": generate_name(driver, self._access.node, number), "ownerReferences": [owner]}
            stored = await self._api.create(RESOURCE_SLICES, {"metadata": metadata, "spec": spec})
            self._wrote(driver, spec, stored)
        log.log(
            self._access.level,
            "ResourceSlices published",
            driver=driver,
            created=len(found.create),
            updated=len(found.update),
            deleted=len(found.delete),
        )

    async def _delete(self, document: Document) -> None:
        metadata = document["metadata"]
        with contextlib.suppress(Missing, Conflict):  # already deleted, or a new slice has the name
            await self._api.delete(RESOURCE_SLICES, str(metadata["name"]), uid=str(metadata.get("uid") or ""))
        self._slices.removed(str(metadata["name"]))

    def _wrote(self, driver: str, sent: Document, stored: Document) -> None:
        self._slices.wrote(stored)
        asked, has = _gated(sent), _gated(stored["spec"])
        before = self._dropped.pop(driver, frozenset())
        if dropped := (before | asked) - has:
            self._dropped[driver] = dropped
        if dropped - before:
            log.warning("the API server drops fields of ResourceSlices", driver=driver, fields=sorted(dropped))

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Drivers that another program publishes, fields that the server does not store, and problems of pools."""
        taken = (
            error(
                f"dra driver {driver}",
                f"{manager} publishes ResourceSlices of this name on this node, so vdev publishes none",
                "remove the other driver from the node, or give the entry another dra.driver",
            )
            for driver, manager in self._taken.items()
        )
        dropped = (
            warning(
                f"dra driver {driver}",
                f"the API server does not store {', '.join(sorted(fields))}",
                f"turn on the feature gate {' and '.join(sorted({_GATES[field] for field in fields}))}, or do without",
            )
            for driver, fields in self._dropped.items()
        )
        pools = (each for pool in self._pools.values() for each in pool.problems)
        return (*taken, *dropped, *pools)


def _is_ours(document: Document) -> bool:
    """Whether vdev published it, even if another client changed it later."""
    return bool(owned(document, "spec", manager=MANAGER, by_apply=False))


def _gated(spec: Document) -> frozenset[str]:
    """The fields of a specification that depend on feature gates."""
    devices = spec.get("devices") or ()
    capacities = [capacity for each in devices for capacity in (each.get("capacity") or {}).values()]
    return frozenset(key for fields in (spec, *devices, *capacities) for key in fields if key in _GATES)
