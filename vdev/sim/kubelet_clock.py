"""The embedded kubelet's clock: its start, the node-status tick and the grace of a lost plugin follow it.

`SystemClock` is the machine's clock. `ManualClock` stands still until a test advances it, and then runs what is due, in
order. `LeapClock` runs like the machine's clock and can be advanced. Time-outs of RPCs are real time (`timings`).
"""

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
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
