"""What is done to devices: one action after the other to each device, those of different devices side by side.

A failure is logged, counted and shown. What is to be tried until it succeeds is tried again with growing pauses, and
holds up what comes after it for the same device.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Protocol

import structlog

from ...aio.timing import Timing
from ...core.model.device import Device
from ...core.spec import ActionSpec
from ...hostfs import HostRoot
from ...observe.metrics import Metrics
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
class ActionWork:
    """Actions to be done to a device."""

    occasion: Occasion
    resource: str
    device: Device
    pod: str
    values: Mapping[str, str]
    actions: tuple[ActionSpec, ...]


class Retry(Protocol):
    """What happens to work that failed."""

    def failed(self, reason: str) -> None:
        """An attempt failed; after a pause there may be another one."""

    def next(self) -> ActionWork | None:
        """The work to try again, or None to give it up; that may have changed meanwhile."""


class DeviceActions:
    """Does work for devices, and remembers what failed."""

    def __init__(self, host: HostRoot, metrics: Metrics, timing: Timing, renew: Callable[[str], None]) -> None:
        self.done = 0
        self.failed = 0
        self.failures: deque[Failure] = deque(maxlen=_REMEMBERED)  # the newest first
        self._runner = ActionRunner(host, timing.clock, renew)
        self._metrics = metrics
        self._clock = timing.clock
        self._first, self._most = timing.intervals.retry_step_first, timing.intervals.retry_step_most
        self._group: asyncio.TaskGroup | None = None
        self._last: dict[str, asyncio.Task[None]] = {}  # the last task of each device

    @property
    def running(self) -> bool:
        """Whether work can be queued."""
        return self._group is not None

    async def run(self, begin: Callable[[], None]) -> None:
        """Do what is queued until cancelled; `begin` is called once that is possible. What runs is then ended."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                begin()
                await asyncio.Event().wait()
        finally:
            self._group = None
            self._last.clear()

    def queue(self, work: ActionWork, after: Callable[[], Awaitable[None]], retry: Retry | None = None) -> None:
        """Do it after what is still being done to the same device, and then `after`; without `retry` try once."""
        assert self._group is not None
        previous = self._last.get(work.device.id)

        async def turn() -> None:
            if previous is not None:
                await asyncio.wait([previous])
            await self._all(work, retry)
            await after()
            if self._last.get(work.device.id) is asyncio.current_task():
                del self._last[work.device.id]

        name = f"{work.occasion} {work.device.id}"
        self._last[work.device.id] = self._group.create_task(turn(), name=name)

    async def _all(self, work: ActionWork, retry: Retry | None) -> None:
        left, pause = list(work.actions), self._first
        while True:
            reasons = [(action, await self.one(work, action, within=action.timeout)) for action in left]
            left = [action for action, reason in reasons if reason]
            if not left or retry is None:
                return
            if retry.next() is None:
                return
            retry.failed(next(reason for _, reason in reasons if reason))
            await self._clock.sleep(pause)
            pause = min(self._most, pause * 2)
            again = retry.next()
            if again is None:
                return
            if again.actions != work.actions:
                left = list(again.actions)
            work = again

    async def one(self, work: ActionWork, action: ActionSpec, *, within: float) -> str:
        """Do one action now; why it failed, or the empty string."""
        try:
            reason = await self._runner.do(action, work.device.raw.id, work.values, within=within)
        except Exception as failed:  # an action's bug is that action's failure, not everybody's end
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

    def status(self) -> dict[str, Any]:
        return {
            "done": self.done,
            "failed": self.failed,
            "failures": [asdict(each) for each in self.failures],
        }
