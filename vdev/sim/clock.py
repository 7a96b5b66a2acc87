"""The kubelet's time: the node-status tick and the grace of a lost plugin are measured with it.

Owns the two clocks. `SystemClock` is the machine's; `ManualClock` stands still until a test advances it, and runs
what falls due on the way, in order and at once. Timeouts of RPCs are not here: they bound real sockets in real time.
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
        """Call `action` each `period` seconds from now on; returns what ends it."""


class SystemClock:
    """The machine's monotonic clock and the running event loop's timers."""

    def now(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    def every(self, period: float, action: Callable[[], None]) -> Callable[[], None]:
        """Call `action` each `period` seconds on the running loop; returns what ends it."""
        loop = asyncio.get_running_loop()

        def fire() -> None:
            timers[0] = loop.call_later(period, fire)
            action()

        timers = [loop.call_later(period, fire)]

        def end() -> None:
            timers[0].cancel()

        return end


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self._serial = itertools.count()
        self._due: list[tuple[float, int, float, Callable[[], None]]] = []
        self._ended: set[int] = set()

    def now(self) -> float:
        """Seconds as set by `advance`."""
        return self._now

    def every(self, period: float, action: Callable[[], None]) -> Callable[[], None]:
        """Call `action` each `period` seconds of advanced time; returns what ends it."""
        serial = next(self._serial)
        heapq.heappush(self._due, (self._now + period, serial, period, action))
        return lambda: self._ended.add(serial)

    def advance(self, seconds: float) -> None:
        """Move on by `seconds`; every action due on the way runs at its own moment."""
        end = self._now + seconds
        while self._due and self._due[0][0] <= end:
            moment, serial, period, action = heapq.heappop(self._due)
            if serial in self._ended:
                self._ended.discard(serial)
                continue
            self._now = moment
            heapq.heappush(self._due, (moment + period, serial, period, action))
            action()
        self._now = end
