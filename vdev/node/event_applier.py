"""Writes Events about the Node: lost and repaired devices, partitions, configuration, registrations, fault rules.

Events with the same reason and message are one Event with a count. `kubectl describe node` finds Events by the Node's
real uid, in the namespace `default` (source: Kubernetes 1.36, pkg/kubelet and kubectl).
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import structlog

from ..aio.tasks import TokenBucket
from ..faults.effects import EventFault
from ..kube.objects import EVENTS, NODES, ObjectKind, metadata_of, timestamp
from ..planning.plan import DesiredState
from .api_applier import ApiApplier, NodeAccess
from .conditions import shortened
from .events import NOTHING, EventText, Situation, of_plans, of_situation

log = structlog.get_logger(__name__)

_NAMESPACE = "default"
_WHO = "vdev"
_REMEMBERED = 256
_BURST = 25  # Events at once, as client-go's spam filter has it
_WAITING = 64  # Events that wait for the API server; beyond that, new ones are dropped


class NodeEvents(ApiApplier):
    """Writes Events for changes between plans. `situation` returns the state of the agent that is not in the plan.

    `written` and `dropped` count occurrences.
    """

    name = "recording events"

    def __init__(self, access: NodeAccess, situation: Callable[[], Situation] = lambda: NOTHING) -> None:
        super().__init__(access)
        self._tokens = access.events or TokenBucket(
            access.timing.clock, burst=_BURST, every=access.timing.intervals.write_event
        )
        self.written = 0
        self.dropped = 0
        self._situation = situation
        self._seen = NOTHING
        self._unregistered: Mapping[str, float] = {}  # by resource, since when it is not registered
        self._before: DesiredState | None = None  # the last plan, if Events were on
        self._waiting: OrderedDict[EventText, int] = OrderedDict()  # with the number of new occurrences
        self._sent: OrderedDict[EventText, tuple[str, int]] = OrderedDict()  # the time of the first one, and the count
        self._uid = ""  # of the Node that the Events are about

    async def apply(self, plan: DesiredState) -> None:
        before, self._before = self._before, plan if plan.observed.spec.node.events else None
        if self._before is None:
            self._seen, self._unregistered, self.retry_at, self._wants = NOTHING, {}, None, False
            return
        now = self._lasting(self._situation())
        self._add((*of_situation(self._seen, now), *of_plans(before, plan)))
        # When a resource will have been unregistered for too long.
        soon = [at for name, at in self._unregistered.items() if name not in now.unregistered]
        self.retry_at = min(soon) + self._intervals.unregistered if soon else None
        self._seen = now

    def announce(self, event: EventFault) -> None:
        if self._before:
            self._add([EventText(event.reason, event.message, warning=event.type == "Warning")])

    def _see_node(self) -> None:
        """Try again to write the Events that wait."""
        if self._waiting:
            self._is_due.set()

    def _lasting(self, situation: Situation) -> Situation:
        """The situation without resources that have been unregistered only briefly, as after a kubelet's restart."""
        now = self._clock.now()
        since = {name: self._unregistered.get(name, now) for name in situation.unregistered}
        self._unregistered = since
        due = self._intervals.unregistered
        lasting = {name: why for name, why in situation.unregistered.items() if now - since[name] >= due}
        return replace(situation, unregistered=lasting)

    def _add(self, texts: Iterable[EventText]) -> None:
        for each in texts:
            text = replace(each, message=shortened(each.message))
            self._waiting[text] = self._waiting.get(text, 0) + 1
            self._note(wants=True)
        while len(self._waiting) > _WAITING:
            self._waiting.popitem(last=False)
            self.dropped += 1

    async def _write(self, document: Mapping[str, Any]) -> None:
        uid = str(metadata_of(document).get("uid") or self._access.node)
        if uid != self._uid:  # another Node of the same name, which has no Events yet
            self._uid = uid
            self._sent.clear()
        while self._waiting:
            text, times = next(iter(self._waiting.items()))
            self._tokens.take()
            await self._send(text, times, uid)
            self.written += times
            if more := self._waiting.pop(text, times) - times:
                self._waiting[text] = more  # after the others
            await self._tokens.wait()

    async def _send(self, text: EventText, times: int, uid: str) -> None:
        """Create the Event, or increase its count. Its name follows from its text, so a repeated write is harmless."""
        now = timestamp(self._clock.wall())
        first, count = self._sent.get(text, (now, 0))
        node = self._access.node
        what = hashlib.sha256(f"{uid} {text.reason} {text.message}".encode()).hexdigest()[:16]
        document = event(
            NODES,
            {"name": node, "uid": uid},
            text,
            name=f"{node[:220].rstrip('-.')}.{what}",
            by=_WHO,
            node=node,
            at=now,
            count=count + times,
        )
        document["firstTimestamp"] = first
        name = document["metadata"]["name"]
        await self._access.api.apply(EVENTS, name, document, force=True, namespace=_NAMESPACE)
        self._sent[text] = (first, count + times)
        self._sent.move_to_end(text)
        while len(self._sent) > _REMEMBERED:
            self._sent.popitem(last=False)


def event(
    kind: ObjectKind,
    about: Mapping[str, str],
    text: EventText,
    *,
    name: str,
    by: str,
    node: str,
    at: str,
    count: int = 1,
) -> dict[str, Any]:
    """An Event about an object of this kind: `about` has its name, uid and namespace, `by` is the reporting program."""
    return {
        "metadata": {"name": name, "namespace": about.get("namespace", "default")},
        "involvedObject": {"apiVersion": kind.api_version, "kind": kind.name, **about},
        "type": "Warning" if text.warning else "Normal",
        "reason": text.reason,
        "message": text.message,
        "source": {"component": by, "host": node},
        "reportingComponent": by,
        "reportingInstance": node,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": count,
    }
