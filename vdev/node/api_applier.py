"""Appliers that write to the API server, each in a separate task, so that no other work waits for that server.

    apply(plan) ─► wanted state ───┐
    the Node changed ──────────────┴─► due ─► work: write differences ──┬─ done ──► wait until it is due again
                                                                        └─ failed ► a problem, a pause, again

After a burst of writes, at most two follow each second, because an API server serves thousands of nodes. The object
that the server returns for an apply replaces the known Node at once, before a watch reports it.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ..agent.applier import Applier
from ..aio.clock import Timing
from ..aio.tasks import TokenBucket
from ..errors import ApiServerError
from ..faults.effects import ApiFaults
from ..kube.api import Api
from ..kube.errors import ApiCall, error_of
from ..kube.objects import NODES, metadata_of

_BURST = 10  # writes of one applier at once, as for a new partition layout
_REPAIRS = 3  # repairs at once


class TargetNode(Protocol):
    """The Node of an agent, or of a fleet's member, in the API server."""

    @property
    def document(self) -> Mapping[str, Any] | None:
        """The last known version of the object; None if it is unknown or does not exist."""

    async def seen(self) -> Mapping[str, Any]:
        """Return the last known Node; waits for the first attempt. Raises ApiServerError if there is none."""

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Watch the Node from now on, and call this after each change."""

    def note(self, document: Mapping[str, Any]) -> None:
        """Set the object that the server returned for a write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAccess:
    """The dependencies of appliers that write about one Node."""

    node: str  # its name
    api: Api
    view: TargetNode
    timing: Timing
    events: TokenBucket | None = None  # the rate of Events, if several nodes share it
    level: int = logging.INFO  # of log lines about writes
    takes_back: bool = False  # remove labels of an earlier process even if the file configures none


FaultRules = Callable[[str, str], tuple[str, ApiFaults] | None]
"""Returns the fault rule for a request, by verb and resource as in RBAC, and how the request fails."""


def injected(rules: FaultRules, call: ApiCall) -> ApiServerError | None:
    found = rules(call.verb, call.resource)
    if found is None:
        return None
    rule, failure = found
    status = {"message": f"injected by the fault rule {rule!r}", "details": {"name": call.name}}
    return error_of(call, failure.status or 0, status, failure.after)


class Writer(ABC):
    """Writes to the API server when something changed. `work` is repeated (see `agent/retry.py`)."""

    name: str

    def __init__(self) -> None:
        self._is_due = asyncio.Event()  # something may have to be written
        self._is_writing = False

    @property
    def is_pending(self) -> bool:
        """Whether something may have to be written, or is being written."""
        return self._is_due.is_set() or self._is_writing

    async def work(self) -> None:
        """Wait until a write is due, and write the differences. If it raises ApiServerError, the write is still due."""
        await self._is_due.wait()
        self._is_due.clear()
        self._is_writing = True
        try:
            await self._write_due()
        except BaseException:
            self._is_due.set()
            raise
        finally:
            self._is_writing = False

    @abstractmethod
    async def _write_due(self) -> None:
        """Write the differences. Raises ApiServerError."""


class ApiApplier(Applier, Writer):
    def __init__(self, access: NodeAccess) -> None:
        super().__init__()
        self._access = access
        self._intervals, self._clock = access.timing
        self._follows = False
        self._wants = False
        self._tokens = TokenBucket(self._clock, burst=_BURST, every=self._intervals.write_node)
        # Limited, so that vdev does not fight with another controller that reverts its writes.
        self._repairs = TokenBucket(self._clock, burst=_REPAIRS, every=self._intervals.repair_node)

    def _note(self, *, wants: bool) -> None:
        """Record that the wanted state has changed or is set for the first time; `wants` is false if it is empty."""
        self._wants = wants
        if not self._follows:
            self._follows = True
            self._access.view.subscribe(self._see_node)
        self._is_due.set()

    def _see_node(self) -> None:
        self._is_due.set()

    async def _write_due(self) -> None:
        if not (self._wants or self._access.api.connection.server):
            return  # there is nothing to write, and no server with earlier writes to remove
        if self._is_undone(await self._access.view.seen()) and not await self._may_repair():
            return
        await self._tokens.wait()
        await self._write(await self._access.view.seen())

    async def _apply(self, document: Mapping[str, Any], wanted: Mapping[str, Any], *, status: bool = False) -> None:
        """Apply fields to this Node. The uid prevents a write to a newer Node of the same name."""
        uid = metadata_of(document).get("uid")
        metadata = {**wanted.get("metadata", {}), **({"uid": uid} if uid else {})}
        whole = {**wanted, "metadata": metadata}
        self._tokens.take()
        subresource = "status" if status else ""
        self._access.view.note(
            await self._access.api.apply(NODES, self._access.node, whole, force=status, subresource=subresource)
        )

    async def _may_repair(self) -> bool:
        """Whether a reverted write may be repeated now. Otherwise, wait until it may, or until there is a new plan."""
        if self._repairs.try_take():
            return True
        await self._clock.wait(self._is_due, self._repairs.pause)
        return False

    def _is_undone(self, document: Mapping[str, Any]) -> bool:
        """Whether another client reverted a write."""
        del document
        return False

    @abstractmethod
    async def _write(self, document: Mapping[str, Any]) -> None:
        """Compare the plan with the Node, and write the differences."""
