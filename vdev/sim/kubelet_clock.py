"""The embedded kubelet's clock, and how long it waits.

Its start, the node-status tick and the grace of a lost plugin follow the clock.

`SystemClock` is the machine's clock. `ManualClock` stands still until a test advances it, and then runs what is due, in
order. `LeapClock` runs like the machine's clock and can be advanced. Time-outs of RPCs are real time.
"""

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """What the kubelet asks of a clock."""

    def now(self) -> float:
        """Seconds since some fixed moment; never goes back."""

    def every(self, period: float, action: Callable[[], None]) -> Callable[[], None]:
        """Call `action` each `period` seconds from now on; returns what stops it."""

    def after(self, seconds: float, action: Callable[[], None]) -> Callable[[], None]:
        """Call `action` once, `seconds` from now; returns what cancels it."""


class SystemClock:
    """The machine's monotonic clock and the running event loop's timers."""

    def now(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    def every(self, period: float, action: Callable[[], None]) -> Callable[[], None]:
        """Call `action` each `period` seconds on the running loop; returns what stops it."""
        loop = asyncio.get_running_loop()

        def fire() -> None:
            timers[0] = loop.call_later(period, fire)
            action()

        timers = [loop.call_later(period, fire)]

        def end() -> None:
            timers[0].cancel()

        return end

    def after(self, seconds: float, action: Callable[[], None]) -> Callable[[], None]:
        """Call `action` once on the running loop; returns what cancels it."""
        return asyncio.get_running_loop().call_later(seconds, action).cancel


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self._serial = itertools.count()
        self._due: list[tuple[float, int, float | None, Callable[[], None]]] = []
        self._ended: set[int] = set()

    def now(self) -> float:
        """Seconds as set by `advance`."""
        return self._now

    def every(self, period: float, action: Callable[[], None]) -> Callable[[], None]:
        """Call `action` each `period` seconds of advanced time; returns what stops it."""
        return self._add(period, period, action)

    def after(self, seconds: float, action: Callable[[], None]) -> Callable[[], None]:
        """Call `action` once, when the time was advanced by `seconds`; returns what cancels it."""
        return self._add(seconds, None, action)

    def advance(self, seconds: float) -> None:
        """Move on by `seconds`; every action due on the way runs at its own moment."""
        self._run_until(self._now + seconds)

    def _add(self, seconds: float, period: float | None, action: Callable[[], None]) -> Callable[[], None]:
        serial = next(self._serial)
        heapq.heappush(self._due, (self.now() + seconds, serial, period, action))
        return lambda: self._ended.add(serial)

    def _run_until(self, end: float) -> None:
        while self._due and self._due[0][0] <= end:
            moment, serial, period, action = heapq.heappop(self._due)
            if serial in self._ended:
                self._ended.discard(serial)
                continue
            self._now = moment
            if period is not None:
                heapq.heappush(self._due, (moment + period, serial, period, action))
            action()
        self._now = end


class LeapClock(ManualClock):
    """The machine's clock, which a test can advance; actions that become due then run at once."""

    def __init__(self) -> None:
        super().__init__(time.monotonic())
        self._ahead = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def now(self) -> float:
        """Seconds of the monotonic clock and of all that it was advanced by."""
        return max(self._now, time.monotonic() + self._ahead)

    def advance(self, seconds: float) -> None:
        """Put the clock forward by `seconds`."""
        self._ahead += seconds
        self._catch_up()

    def _add(self, seconds: float, period: float | None, action: Callable[[], None]) -> Callable[[], None]:
        end = super()._add(seconds, period, action)
        self._set_timer()
        return end

    def _catch_up(self) -> None:
        self._run_until(time.monotonic() + self._ahead)
        self._set_timer()

    def _set_timer(self) -> None:
        """Wake up on the running loop when the next action is due."""
        if self._timer is not None:
            self._timer.cancel()
        wait = self._due[0][0] - self.now() if self._due else None
        self._timer = None if wait is None else asyncio.get_running_loop().call_later(max(0.0, wait), self._catch_up)


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
