"""What the parts of one kubelet process work with: its time, connections, record, and tasks that end with it."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from ..aio.clock import Clock
from .journal import Journal


@dataclass(frozen=True, slots=True)
class Timings:
    """How long the kubelet waits, in seconds. All but `slow`, `bound` and `retry` are the real kubelet's; `dial`,
    `pre_start`, `get_info`, `notify` and `prepare` (Unprepare too) end a call, `slow` reports one that takes longer,
    `bound` ends one for which the real kubelet would wait forever.

    `retry` passes before a container is tried again that could not be started, and a pod whose claims could not be
    prepared or unprepared. The real kubelet waits so long (or half as long again) for a container and after a failed
    Unprepare; after a failed Prepare it waits until it looks at all pods anyway, a minute to a minute and a half.

    `boot`, `lead` and `sources` are a start where there was one before, as measured on 1.36.2: PodResources answers
    `boot` after it (about), plugins can register `lead` later, and `sources` after that the kubelet hears of its pods;
    until then it names none and admits none.

    `look` passes between looks for sockets of DRA drivers below `plugins_registry`.
    """

    dial: float = 10.0
    pre_start: float = 30.0
    tick: float = 10.0
    boot: float = 1.0
    lead: float = 0.06
    sources: float = 0.9
    slow: float = 1.0
    bound: float = 120.0
    get_info: float = 1.0
    notify: float = 5.0
    prepare: float = 45.0
    retry: float = 10.0
    look: float = 1.0


@dataclass(frozen=True, slots=True)
class Life:
    """One life of the process. `spawn` runs a task until it is done or the process ends."""

    clock: Clock
    timings: Timings
    journal: Journal
    spawn: Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"]


class Ticker:
    """Calls `action` each `period` seconds, until `stop`; once for all of the time over which a clock leaps."""

    def __init__(self, clock: Clock, period: float, action: Callable[[], None]) -> None:
        self._clock = clock
        self._period = period
        self._action = action
        self._cancel = clock.call_later(period, self._fire)

    def _fire(self) -> None:
        self._cancel = self._clock.call_later(self._period, self._fire)
        self._action()

    def stop(self) -> None:
        self._cancel()
