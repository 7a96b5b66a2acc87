"""What is done when devices change hands: `onAllocate` and `onRelease` once per change, `preStart` before a container.

    readings of PodResources ─► core.retention.handovers ─► a queue per device ─► actions, one after the other
    PreStartContainer ─────────────────────────────────────────────────────────► actions, within its time

A holder is learnt from the kubelet's PodResources alone, never from Allocate, which may be for a pod that is refused
later. What was so when this process began is no change. A failure is logged, counted and shown, and stops nothing; only
that of a `preStart` keeps its container from starting.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import structlog

from ..aio.clock import Clock
from ..core.allocation import edits
from ..core.inventory.resources import Inventory, Resource
from ..core.model.device import Device, Key
from ..core.retention import handovers
from ..core.spec import PRE_START_LIMIT, ActionSpec, EntrySpec, Spec
from ..errors import ActionFailed
from ..hostfs import HostRoot
from ..observe.metrics import Metrics
from .actions import ActionRunner, named

log = structlog.get_logger(__name__)

_REMEMBERED = 20  # failures


class Occasion(StrEnum):
    """When an action is done; the configuration's names."""

    ALLOCATE = "onAllocate"
    RELEASE = "onRelease"
    PRE_START = "preStart"


@dataclass(frozen=True, slots=True)
class Failure:
    """An action that failed, at a time in seconds since the epoch."""

    at: float
    occasion: Occasion
    resource: str
    device: str
    pod: str
    reason: str


@dataclass(frozen=True, slots=True)
class _Work:
    occasion: Occasion
    resource: str
    device: Device
    pod: str
    values: Mapping[str, str]
    actions: tuple[ActionSpec, ...]


class HandoverActions:
    """What is done when devices change hands."""

    def __init__(self, host: HostRoot, metrics: Metrics, clock: Clock) -> None:
        self.done = 0
        self.failed = 0
        self.failures: deque[Failure] = deque(maxlen=_REMEMBERED)  # the newest first
        self._clock = clock
        self._doer = ActionRunner(host, clock)
        self._metrics = metrics
        self._known: Mapping[Key, str] | None = None
        self._group: asyncio.TaskGroup | None = None
        self._last: dict[str, asyncio.Task[None]] = {}  # the last task of each device

    async def run(self) -> None:
        """Do what falls due until cancelled; actions that run are then ended."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                await asyncio.Event().wait()
        finally:
            self._group = None

    def read(self, holders: Mapping[Key, str], granted: Sequence[Key], served: Inventory) -> None:
        """Take in a reading; `granted` are the slots of Allocates since the last one."""
        changes = handovers.handovers(self._known, holders, frozenset(granted))
        self._known = holders
        for change in changes:
            work = _work(change, served)
            if work is not None:
                self._queue(work)

    def _queue(self, work: _Work) -> None:
        """After what is still being done to the same device."""
        assert self._group is not None
        previous = self._last.get(work.device.id)

        async def turn() -> None:
            if previous is not None:
                await asyncio.wait([previous])
            await self._all(work)
            if self._last.get(work.device.id) is asyncio.current_task():
                del self._last[work.device.id]

        name = f"{work.occasion} {work.device.id}"
        self._last[work.device.id] = self._group.create_task(turn(), name=name)

    async def _all(self, work: _Work) -> None:
        for action in work.actions:
            await self._one(work, action, within=action.timeout)

    async def _one(self, work: _Work, action: ActionSpec, *, within: float) -> str:
        try:
            reason = await self._doer.do(action, work.values, within=within)
        except Exception as failed:  # noqa: BLE001 - an action's bug is that action's failure, not everybody's end
            reason = f"{named(action)} failed: {failed!r}"
        result = "failed" if reason else "done"
        self._metrics.actions.labels(work.resource, work.occasion, result).inc()
        where = {"occasion": work.occasion, "resource": work.resource, "device": work.device.id, "pod": work.pod}
        if reason:
            self.failed += 1
            failure = Failure(self._clock.wall(), work.occasion, work.resource, work.device.id, work.pod, reason)
            self.failures.appendleft(failure)
            log.error("action failed", action=named(action), reason=reason, **where)
        else:
            self.done += 1
            log.info("action done", action=named(action), **where)
        return reason

    async def pre_start(self, resource: Resource, ids: Sequence[str]) -> None:
        """Do what must be done before a container with these slots starts. Raises ActionFailed at the first failure."""
        deadline = self._clock.now() + PRE_START_LIMIT
        devices = {slot.device.id: slot.device for each in ids if (slot := resource.by_id.get(each)) is not None}
        for device in devices.values():
            entry = resource.entries.get(device.raw.entry)
            if entry is None:
                continue  # a device that an earlier configuration had
            work = _Work(
                Occasion.PRE_START, resource.name, device, "", _values(resource, entry, device), entry.pre_start
            )
            for action in work.actions:
                reason = await self._one(work, action, within=max(0.0, deadline - self._clock.now()))
                if reason:
                    raise ActionFailed(f"preStart of device {device.id} ({resource.name}) failed: {reason}")

    def status(self) -> dict[str, Any]:
        """The counts and the last failures, the newest first."""
        return {
            "done": self.done,
            "failed": self.failed,
            "failures": [
                {
                    "at": each.at,
                    "occasion": each.occasion,
                    "resource": each.resource,
                    "device": each.device,
                    "pod": each.pod,
                    "reason": each.reason,
                }
                for each in self.failures
            ],
        }


def concerns(spec: Spec) -> bool:
    """Whether anything is done when a device changes hands."""
    return any(entry.on_allocate or entry.on_release for entry in spec.entries)


def _work(change: handovers.Handover, served: Inventory) -> _Work | None:
    """What a change of hands asks for, or None."""
    owner = change.owner
    resource = served.resources.get(owner.resource)
    devices = (slot.device for slot in resource.slots if slot.device.id == owner.device) if resource else ()
    device = next(iter(devices), None)
    entry = resource.entries.get(device.raw.entry) if resource and device else None
    if resource is None or device is None or entry is None:
        return None
    actions = entry.on_allocate if change.gained else entry.on_release
    occasion = Occasion.ALLOCATE if change.gained else Occasion.RELEASE
    if not actions:
        return None
    return _Work(occasion, resource.name, device, owner.pod, _values(resource, entry, device), actions)


def _values(resource: Resource, entry: EntrySpec, device: Device) -> Mapping[str, str]:
    return edits.placeholders(resource.name, entry, device)
