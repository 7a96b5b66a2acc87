"""Events on the Node: devices lost and back, cut anew; configuration applied or refused; a resource that is not
registered; drills, and what these say.

One Event for the same reason and message, whose count grows while it is remembered (an hour, as long as the API server
keeps it). `kubectl describe node` finds it by the Node's real uid, in the namespace `default` (source: Kubernetes
1.36, pkg/kubelet and kubectl).
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import structlog

from ..aio.tasks import TokenBucket
from ..kube import EVENTS, Conflict, Missing
from ..planning.plan import DesiredState
from ..planning.repartition import Progresses
from ..planning.resources import EMPTY, Inventory
from .api_applier import ApiApplier, NodeAccess
from .events import NOTHING, EventText, Situation, Xids, of_layouts, of_losses, of_partitions, of_situation, of_xids
from .losses import NONE, Losses

log = structlog.get_logger(__name__)

_NAMESPACE = "default"
_WHO = "vdev"
_LIFE = 3600.0  # seconds: the API server's default for an Event (--event-ttl)
_REMEMBERED = 256
_BURST = 25  # Events at once, as client-go's spam filter has it
_WAITING = 64  # happenings that wait for the API server; older ones are dropped


@dataclass(frozen=True, slots=True)
class _Sent:
    """An Event that exists: its name, how often it happened, and when it was written last (by the clock)."""

    name: str
    count: int
    at: float


class NodeEvents(ApiApplier):
    """Says what happened from one plan to the next. `situation` is what the agent knows beside the plan.

    `said` and `dropped` count happenings.
    """

    name = "noting events"

    def __init__(self, access: NodeAccess, situation: Callable[[], Situation]) -> None:
        super().__init__(access)
        self._tokens = access.events or TokenBucket(
            access.timing.clock, burst=_BURST, every=access.timing.intervals.write_event
        )
        self.said = 0
        self.dropped = 0
        self._situation = situation
        self._seen = NOTHING
        self._unregistered: Mapping[str, float] = {}  # since when each is not
        self._lost: Losses = NONE
        self._xids: Xids = {}
        self._choices: Progresses = {}
        self._base: Inventory = EMPTY
        self._is_on = False
        self._cancel: Callable[[], object] = lambda: None
        self._waiting: OrderedDict[EventText, int] = OrderedDict()  # and how often each happened since
        self._sent: OrderedDict[EventText, _Sent] = OrderedDict()
        self._uid = ""  # of the Node that these are about

    async def apply(self, plan: DesiredState) -> None:
        was_on, self._is_on = self._is_on, plan.observed.spec.node.events
        situation = self._situation()
        now = self._lasting(situation) if self._is_on else replace(NOTHING, announced=situation.announced)
        if self._is_on:
            recut = of_partitions(self._base, plan.observed.inventory) if was_on else ()
            xids = of_xids(self._xids if was_on else {}, plan.xids)
            losses = of_losses(self._lost, plan.lost, plan.devices)
            refused = of_layouts(self._choices if was_on else {}, plan.observed.layouts)
            self._add((*of_situation(self._seen, now), *recut, *refused, *xids, *losses))
        self._choices = plan.observed.layouts
        self._seen, self._lost, self._base, self._xids = now, plan.lost, plan.observed.inventory, plan.xids

    def _see_node(self) -> None:
        """Events wait for what happens, not for the Node."""
        if self._waiting:
            self._stir()

    def _lasting(self, situation: Situation) -> Situation:
        """The situation without what a kubelet's restart explains: a resource that is not registered only lately."""
        now = self._clock.now()
        since = {name: self._unregistered.get(name, now) for name in situation.unregistered}
        self._unregistered = since
        due = self._intervals.unregistered
        lasting = {name: why for name, why in situation.unregistered.items() if now - since[name] >= due}
        return replace(situation, unregistered=lasting)

    @property
    def retry_at(self) -> float | None:
        """When a resource will not have been registered for too long."""
        due = self._intervals.unregistered
        moments = (at + due for name, at in self._unregistered.items() if name not in self._seen.unregistered)
        return min(moments, default=None)

    def _add(self, happenings: Iterable[EventText]) -> None:
        for each in happenings:
            self._waiting[each] = self._waiting.get(each, 0) + 1
            self._note()
        while len(self._waiting) > _WAITING:
            self._waiting.popitem(last=False)
            self.dropped += 1

    async def _write(self, document: Mapping[str, Any]) -> None:
        uid = str((document.get("metadata") or {}).get("uid") or self._node)
        if uid != self._uid:  # another Node of the same name: no Event is about it yet
            self._uid = uid
            self._sent.clear()
        while (happening := self._next()) is not None:
            times = self._waiting[happening]
            self._tokens.take()
            await self._say(happening, times, uid)
            self.said += times
            if left := self._waiting.get(happening, times) - times:
                self._waiting[happening] = left
            else:
                self._waiting.pop(happening, None)
            await self._tokens.wait()

    def _next(self) -> EventText | None:
        """The oldest that may be said now: one that was said lately is counted on for a while first."""
        now, again = self._clock.now(), self._intervals.again_event
        due = {each: self._sent[each].at + again if each in self._sent else now for each in self._waiting}
        happening = next((each for each, at in due.items() if at <= now), None)
        if happening is None and due:
            self._cancel()
            self._cancel = self._clock.call_at(min(due.values()), self._stir)
        return happening

    async def _say(self, happening: EventText, times: int, uid: str) -> None:
        now = self._clock.now()
        sent = self._sent.get(happening)
        if sent is not None and now - sent.at < _LIFE:
            sent = replace(sent, count=sent.count + times, at=now)
            change = {"count": sent.count, "lastTimestamp": self._timestamp(), "message": happening.message}
            try:
                await self._api.patch(EVENTS, sent.name, change, namespace=_NAMESPACE)
            except Missing:
                sent = None  # somebody deleted it
        else:
            sent = None
        if sent is None:
            sent = _Sent(self._name(happening), times, now)
            try:
                await self._api.create(EVENTS, self._event(happening, sent, uid), namespace=_NAMESPACE)
            except Conflict as conflict:
                if not conflict.exists:
                    raise  # an answer to it was lost on the way: it is there
        self._sent[happening] = sent
        self._sent.move_to_end(happening)
        while len(self._sent) > _REMEMBERED:
            self._sent.popitem(last=False)

    def _name(self, happening: EventText) -> str:
        """As client-go names them: the object's name and a time; and what it is, so that two of one instant differ."""
        what = hashlib.sha256(f"{happening.reason} {happening.message}".encode()).hexdigest()[:8]
        return f"{self._node[:220].rstrip('-.')}.{int(self._clock.wall() * 1e6):x}{what}"

    def _timestamp(self) -> str:
        return datetime.fromtimestamp(self._clock.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def _event(self, happening: EventText, sent: _Sent, uid: str) -> Mapping[str, Any]:
        now = self._timestamp()
        return {
            "metadata": {"name": sent.name, "namespace": _NAMESPACE},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": uid},
            "type": "Warning" if happening.warning else "Normal",
            "reason": happening.reason,
            "message": happening.message,
            "source": {"component": _WHO, "host": self._node},
            "reportingComponent": _WHO,
            "reportingInstance": self._node,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": sent.count,
        }
