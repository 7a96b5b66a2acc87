"""The status of the Node: extended resources where no device plugin serves them, and conditions; in one apply.

The apply is forced: a kubelet that starts without a checkpoint sets every extended resource to 0, and owns what it set.
`allocatable` is what is healthy. A kubelet computes it anew from the capacity, every ten seconds; where one does, it is
left to it (reference: pkg/kubelet/nodestatus, Kubernetes 1.36).
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import structlog

from ..kube.ownership import owned
from ..model.quantity import amount_of
from ..planning.plan import DesiredState
from .api_applier import ApiApplier, NodeAccess
from .cleaning import cleared
from .conditions import NodeCondition, SlotCounts, condition_document

log = structlog.get_logger(__name__)

_STATUS = "status"


class NodeStatus(ApiApplier):
    """Keeps the resources and conditions that a plan has. `written` says whether the API server has them from here."""

    name = "noting the node's status"

    def __init__(self, access: NodeAccess) -> None:
        super().__init__(access)
        self.written = False
        self.kubelet_decides = False  # what is allocatable
        self._may_have_kubelet = access.may_have_kubelet
        self._capacity: Mapping[str, SlotCounts] = {}
        self._conditions: tuple[NodeCondition, ...] = ()
        self._since: dict[str, tuple[bool, str]] = {}  # when each condition became what it is
        self._offered: Mapping[str, str] = {}  # the last allocatable that was written

    async def apply(self, plan: DesiredState) -> None:
        """Note the plan's resources and conditions, at first also that there are none: an earlier process left some."""
        wanted = (plan.capacity, plan.conditions)
        first = not self._follows and (plan.observed.spec.node.status or plan.observed.spec.node.conditions)
        if first or wanted != (self._capacity, self._conditions):
            self._capacity, self._conditions = wanted
            self.written = False
            self._note()

    def _is_undone(self, document: Mapping[str, Any]) -> bool:
        status = document.get(_STATUS) or {}
        self._learn(status)
        return self.written and not self._is_there(document, status)

    async def _write(self, document: Mapping[str, Any]) -> None:
        status = document.get(_STATUS) or {}
        if self._is_there(document, status):
            self.written = True
            return
        wanted, written = (self._capacity, self._conditions), self._document(status)
        rest = await cleared(self._api, document, written)
        if rest is not document:
            self._view.note(rest)
        if rest is document or not self._is_there(rest, rest.get(_STATUS) or {}):
            await self._apply(rest, {_STATUS: written}, status=True)
        self._offered = written.get("allocatable", {})
        self.written = wanted == (self._capacity, self._conditions)  # or something else is wanted by now
        log.log(self._level, "node status written", resources=len(self._capacity), conditions=len(self._conditions))

    def document(self) -> dict[str, Any]:
        """For the status: what is wanted, and whether the Node has it."""
        return {
            "capacity": {name: each.capacity for name, each in self._capacity.items()},
            "allocatable": {name: each.allocatable for name, each in self._capacity.items()},
            "conditions": [condition_document(each) for each in self._conditions],
            "written": self.written,
            "kubeletDecidesAllocatable": self.kubelet_decides,
        }

    def _learn(self, status: Mapping[str, Any]) -> None:
        """See whether a kubelet computes what is allocatable."""
        if self._may_have_kubelet and not self.kubelet_decides and self._offered == self._allocatable():
            capacity, allocatable = status.get("capacity") or {}, status.get("allocatable") or {}
            self.kubelet_decides = any(
                amount_of(capacity.get(name)) == count.capacity == amount_of(allocatable.get(name)) != count.allocatable
                for name, count in self._capacity.items()
            )
            if self.kubelet_decides:
                log.info("the kubelet computes what is allocatable; unhealthy devices stay in it")

    def _allocatable(self) -> dict[str, str]:
        return {name: str(amount.allocatable) for name, amount in self._capacity.items()}

    def _is_there(self, document: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
        """Whether the Node says what is wanted, and nothing else from here."""
        wanted = {"capacity": {name: count.capacity for name, count in self._capacity.items()}}
        if not self.kubelet_decides:
            wanted["allocatable"] = {name: count.allocatable for name, count in self._capacity.items()}
        for part, amounts in wanted.items():
            there = status.get(part) or {}
            if any(amount_of(there.get(name)) != amount for name, amount in amounts.items()):
                return False
            if not owned(document, _STATUS, part, subresource=_STATUS) <= amounts.keys():
                return False
        if owned(document, _STATUS, "conditions", subresource=_STATUS) != {each.type for each in self._conditions}:
            return False
        found = {each.get("type"): each for each in status.get("conditions") or ()}
        return all(_says(found.get(each.type), each) for each in self._conditions)

    def _document(self, status: Mapping[str, Any]) -> dict[str, Any]:
        document: dict[str, Any] = {}
        if self._capacity:
            document["capacity"] = {name: str(amount.capacity) for name, amount in self._capacity.items()}
            if not self.kubelet_decides:
                document["allocatable"] = self._allocatable()
        if self._conditions:
            found = {each.get("type"): each for each in status.get("conditions") or ()}
            document["conditions"] = [self._condition(each, found.get(each.type)) for each in self._conditions]
        return document

    def _condition(self, wanted: NodeCondition, found: Mapping[str, Any] | None) -> dict[str, str]:
        """The condition with its times: it changed now, unless the Node or the last write says so already."""
        now = datetime.fromtimestamp(self._clock.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = wanted.word
        known = self._since.get(wanted.type)
        if found is not None and found.get("status") == status and found.get("lastTransitionTime"):
            since = str(found["lastTransitionTime"])
        else:
            since = known[1] if known is not None and known[0] == wanted.status else now
        self._since[wanted.type] = (wanted.status, since)
        return {
            **condition_document(wanted),
            "lastHeartbeatTime": now,
            "lastTransitionTime": since,
        }


def _says(found: Mapping[str, Any] | None, wanted: NodeCondition) -> bool:
    return found is not None and condition_document(wanted).items() <= found.items()
