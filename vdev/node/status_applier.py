"""Writes extended resources, if no device plugin serves them, and conditions into the Node's status, in one apply.

The apply is forced, because a kubelet that starts without a checkpoint sets every extended resource to 0 and then owns
it. `allocatable` counts healthy devices. A kubelet computes it from the capacity every ten seconds, so on its nodes it
is left to the kubelet (source: pkg/kubelet/nodestatus, Kubernetes 1.36).
"""

from collections.abc import Mapping
from typing import Any

import structlog

from ..kube.objects import timestamp
from ..model.quantity import amount_of
from ..planning.plan import DesiredState
from .api_applier import ApiApplier, NodeAccess
from .conditions import NodeCondition
from .ownership import cleared, owned

log = structlog.get_logger(__name__)

_STATUS = "status"
_FAKE_VERSIONS = ("fake", "kwok")
"""Prefixes of the kubelet versions that KWOK, and programs that create Nodes for it, write."""


def has_kubelet(document: Mapping[str, Any] | None) -> bool:
    """Whether the status of a Node has the version of a real kubelet."""
    version = ((document or {}).get(_STATUS) or {}).get("nodeInfo", {}).get("kubeletVersion")
    return bool(version) and not str(version).startswith(_FAKE_VERSIONS)


class NodeStatus(ApiApplier):
    """Keeps the resources and conditions of the plan. `written` says whether the Node has them."""

    name = "updating the node's status"

    def __init__(self, access: NodeAccess) -> None:
        super().__init__(access)
        self.written = False
        self._capacity: Mapping[str, Mapping[str, int]] = {}
        self._conditions: tuple[NodeCondition, ...] = ()

    async def apply(self, plan: DesiredState) -> None:
        """Take the plan's resources and conditions; at first even if empty: an earlier process may have left some."""
        wanted = (plan.capacity, plan.conditions)
        is_asked = plan.observed.spec.node.status or plan.observed.spec.node.conditions
        if wanted != (self._capacity, self._conditions) or (is_asked and not self._follows):
            self._capacity, self._conditions = wanted
            self.written = False
            self._note(wants=any(wanted))

    def _is_undone(self, document: Mapping[str, Any]) -> bool:
        return self.written and not self._is_up_to_date(document)

    async def _write(self, document: Mapping[str, Any]) -> None:
        if self._is_up_to_date(document):
            self.written = True
            return
        wanted, written = (self._capacity, self._conditions), self._document(document.get(_STATUS) or {})
        rest = await cleared(self._access.api, document, written)
        if rest is not document:
            self._access.view.note(rest)
        if rest is document or not self._is_up_to_date(rest):
            await self._apply(rest, {_STATUS: written}, status=True)
        self.written = wanted == (self._capacity, self._conditions)  # else the plan changed in between
        log.log(
            self._access.level, "node status written", resources=len(self._capacity), conditions=len(self._conditions)
        )

    def document(self) -> dict[str, Any]:
        """For the status: what the plan wants, and whether the Node has it."""
        return {
            "capacity": self._of("capacity"),
            "allocatable": self._of("allocatable"),
            "conditions": [dict(each) for each in self._conditions],
            "written": self.written,
            "kubeletDecidesAllocatable": has_kubelet(self._access.view.document),
        }

    @property
    def _amounts(self) -> dict[str, dict[str, int]]:
        """The amounts that vdev writes: what is allocatable only if there is no kubelet."""
        parts = ("capacity",) if has_kubelet(self._access.view.document) else ("capacity", "allocatable")
        return {part: self._of(part) for part in parts}

    def _of(self, part: str) -> dict[str, int]:
        return {name: each[part] for name, each in self._capacity.items()}

    def _is_up_to_date(self, document: Mapping[str, Any]) -> bool:
        """Whether the Node has what the plan wants, and nothing else from vdev."""
        status = document.get(_STATUS) or {}
        for part, amounts in self._amounts.items():
            present = status.get(part) or {}
            if any(amount_of(present.get(name)) != amount for name, amount in amounts.items()):
                return False
            if not owned(document, _STATUS, part) <= amounts.keys():
                return False
        if owned(document, _STATUS, "conditions") != {each["type"] for each in self._conditions}:
            return False
        present = {each.get("type"): each for each in status.get("conditions") or ()}
        return all(each.items() <= present.get(each["type"], {}).items() for each in self._conditions)

    def _document(self, status: Mapping[str, Any]) -> dict[str, Any]:
        document: dict[str, Any] = {
            part: {name: str(amount) for name, amount in amounts.items()}
            for part, amounts in self._amounts.items()
            if amounts
        }
        if self._conditions:
            found = {each.get("type"): each for each in status.get("conditions") or ()}
            document["conditions"] = [self._condition(each, found.get(each["type"], {})) for each in self._conditions]
        return document

    def _condition(self, wanted: NodeCondition, found: Mapping[str, Any]) -> dict[str, str]:
        """The condition with its times. It changed now, unless the Node already has this status."""
        now = timestamp(self._clock.wall())
        since = found.get("lastTransitionTime") if found.get("status") == wanted["status"] else None
        return {**wanted, "lastHeartbeatTime": now, "lastTransitionTime": str(since or now)}
