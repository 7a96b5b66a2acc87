"""Publishes the ResourceSlices of a node, like Kubernetes' helper for DRA drivers (resourceslice controller).

A kubelet that starts deletes all slices of its node. They are created again as soon as the watch reports that. If
another program publishes slices for the same driver and node, these stay, and a problem names the program.
"""

import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from ..faults.engine import Engine
from ..kube.errors import Missing, NotServed
from ..kube.informer import Informer
from ..kube.objects import RESOURCE_SLICES
from ..model.problem import Problem, error, warning
from ..node.api_applier import ApiApplier, NodeAccess
from ..node.ownership import owned, owned_by_others
from ..planning.plan import DesiredState
from .published_devices import Pools, PublishedPool
from .slices import Changes, changes, specifications, spoilt, without

log = structlog.get_logger(__name__)

Document = Mapping[str, Any]
_GATES = {
    "taints": "DRADeviceTaints",
    "consumesCounters": "DRAPartitionableDevices",
    "sharedCounters": "DRAPartitionableDevices",
    "allowMultipleAllocations": "DRAConsumableCapacity",
    "requestPolicy": "DRAConsumableCapacity",
}


@dataclass(slots=True)
class _Driver:
    published: int = 0  # how many vdev published
    taken_by: str = ""  # another program, which publishes slices for this driver
    written: PublishedPool | None = None  # the last pool that was written completely
    fault: str | None = None  # the fault that was injected into it
    dropped: frozenset[str] = frozenset()  # fields that the server does not store
    must_delete: bool = False  # a fault must delete the slices once


class ResourceSlices(ApiApplier):
    """Keeps the slices of the plan's pools.

    `slices` has a copy of the slices, of which `seen` returns those of the node by name; it waits for the first list.
    """

    name = "publishing ResourceSlices"

    def __init__(
        self,
        access: NodeAccess,
        slices: Informer[Any],
        seen: Callable[[], Awaitable[Mapping[str, Document]]],
        faults: Engine,
    ) -> None:
        super().__init__(access)
        self._faults = faults
        self._uid = ""  # of the Node that owns the slices
        self._slices = slices
        self._seen = seen
        self._pools: Pools = {}
        self._drivers = defaultdict[str, _Driver](_Driver)  # those of the pools, and those that still have slices

    @property
    def published(self) -> dict[str, int]:
        """The number of published slices of each driver that has any."""
        return {name: driver.published for name, driver in self._drivers.items() if driver.published}

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
        for name in filter(concerns, self._pools):
            self._drivers[name].must_delete = True
        self.look()

    async def apply(self, plan: DesiredState) -> None:
        # At the first call even without pools, because an earlier process may have left slices.
        if plan.pools != self._pools or not self._follows:
            self._pools = plan.pools
            self._note(wants=bool(plan.pools))

    async def _write(self, document: Document) -> None:
        self._uid = str((document.get("metadata") or {}).get("uid") or "")
        present = (await self._seen()).values()
        ours = {each["spec"]["driver"] for each in present if _is_ours(each)}
        foreign = {each["spec"]["driver"]: each for each in present if not _is_ours(each)}
        for name in self._drivers.keys() - self._pools.keys() - ours:
            del self._drivers[name]
        for name in sorted(self._pools.keys() | ours):
            driver = self._drivers[name]
            if name in foreign and name in self._pools:
                manager = next(iter(owned_by_others(foreign[name], "spec").values()), "another program")
                if driver.taken_by != manager:
                    log.error("another driver publishes ResourceSlices of this name", driver=name, manager=manager)
                driver.taken_by, driver.published = manager, 0
            else:
                driver.taken_by = ""
                await self._publish(name, driver)

    async def _publish(self, name: str, driver: _Driver) -> None:
        """Write the slices of one driver for its pool, or with the error that a fault injects."""
        present = await self._ours(name)
        if driver.must_delete:
            await self._carry_out(name, Changes(delete=tuple(present)))
            driver.must_delete = False
            present = await self._ours(name)
        if len(present) < driver.published:
            await self._clock.sleep(self._intervals.republish)  # until a starting kubelet has deleted all slices
            present = await self._ours(name)
        if not present:
            driver.published = 0
        pool = self._pools.get(name)
        wanted = specifications(pool, self._access.node) if pool else ()
        if driver.dropped and driver.written == pool:  # a changed pool is written once with all fields
            wanted = tuple(without(spec, driver.dropped) for spec in wanted)
        found = changes(wanted, present)
        fault = self._faults.on_slices(name, changed=bool(found))
        if fault is not None:
            found = spoilt(fault, wanted, present)
        if found.update and (driver.written, driver.fault) == (pool, fault) and not await self._may_repair():
            return
        await self._carry_out(name, found)
        driver.published = len(wanted)
        if wanted:
            driver.written, driver.fault = pool, fault

    async def _ours(self, driver: str) -> Sequence[Document]:
        present = (await self._seen()).values()
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
                self._wrote(driver, each["spec"], await self._access.api.update(RESOURCE_SLICES, each))
            except NotServed:
                raise
            except Missing:
                self._slices.removed(str(each["metadata"]["name"]))
                self._is_due.set()  # create it again at once
                return
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._access.node, "uid": self._uid, "controller": True}
        for each in found.create:
            metadata = {**each["metadata"], "ownerReferences": [owner]}
            stored = await self._access.api.create(RESOURCE_SLICES, {**each, "metadata": metadata})
            self._wrote(driver, each["spec"], stored)
        log.log(
            self._access.level,
            "ResourceSlices published",
            driver=driver,
            created=len(found.create),
            updated=len(found.update),
            deleted=len(found.delete),
        )

    async def _delete(self, document: Document) -> None:
        name = str(document["metadata"]["name"])
        with contextlib.suppress(Missing):
            await self._access.api.delete(RESOURCE_SLICES, name)
        self._slices.removed(name)

    def _wrote(self, driver: str, sent: Document, stored: Document) -> None:
        was_due = self._is_due.is_set()
        self._slices.wrote(stored)
        if not was_due and stored["spec"] == sent:
            self._is_due.clear()  # a slice that was stored unchanged need not be compared again
        asked, has = _gated(sent), _gated(stored["spec"])
        before = self._drivers[driver].dropped
        dropped = self._drivers[driver].dropped = (before | asked) - has
        if dropped - before:
            log.warning("the API server drops fields of ResourceSlices", driver=driver, fields=sorted(dropped))

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Drivers that another program publishes, and fields that the server does not store."""
        found: list[Problem] = []
        for name, driver in self._drivers.items():
            if driver.taken_by:
                message = (
                    f"{driver.taken_by} publishes ResourceSlices of this name on this node, so vdev publishes none"
                )
                hint = "remove the other driver from the node, or give the entry another dra.driver"
                found.append(error(f"dra driver {name}", message, hint))
            if driver.dropped:
                gates = " and ".join(sorted({_GATES[field] for field in driver.dropped}))
                message = f"the API server does not store {', '.join(sorted(driver.dropped))}"
                found.append(warning(f"dra driver {name}", message, f"enable the feature gate {gates}, or do without"))
        return tuple(found)


def _is_ours(document: Document) -> bool:
    """Whether vdev published it, even if another client changed it later."""
    return bool(owned(document, "spec"))


def _gated(spec: Document) -> frozenset[str]:
    """The fields of a specification that depend on feature gates."""
    devices = spec.get("devices") or ()
    capacities = [capacity for each in devices for capacity in (each.get("capacity") or {}).values()]
    return frozenset(key for fields in (spec, *devices, *capacities) for key in fields if key in _GATES)
