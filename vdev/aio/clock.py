"""The clock of the fault rules: the machine's, or one that a test moves by hand."""

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """What fault rules need of a clock."""

    def now(self) -> float:
        """Seconds since some fixed moment; never goes back."""

    def call_at(self, moment: float, action: Callable[[], None]) -> Callable[[], None]:
        """Call `action` at that moment; returns what cancels it."""


class SystemClock:
    """The monotonic clock and the running event loop's timers."""

    def now(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    def call_at(self, moment: float, action: Callable[[], None]) -> Callable[[], None]:
        """Call `action` on the running loop, at once when the moment is past."""
        return asyncio.get_running_loop().call_later(max(0.0, moment - time.monotonic()), action).cancel


class ManualClock:
    """A clock that moves only when it is told to."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self._serial = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._cancelled: set[int] = set()

    def now(self) -> float:
        """Seconds as set by `advance`."""
        return self._now

    def call_at(self, moment: float, action: Callable[[], None]) -> Callable[[], None]:
        """Call `action` when the clock is advanced to or beyond the moment; at once when it is past."""
        if moment <= self._now:
            action()
            return lambda: None
        number = next(self._serial)
        heapq.heappush(self._due, (moment, number, action))
        return lambda: self._cancelled.add(number)

    def advance(self, seconds: float) -> None:
        """Move on; every action due on the way is called at its own moment, in order."""
        end = self._now + seconds
        while self._due and self._due[0][0] <= end:
            moment, number, action = heapq.heappop(self._due)
            if number not in self._cancelled:
                self._now = max(self._now, moment)
                action()
            self._cancelled.discard(number)
        self._now = end


async def sleep(clock: Clock, seconds: float) -> None:
    """Wait by that clock."""
    over = asyncio.Event()
    cancel = clock.call_at(clock.now() + seconds, over.set)
    try:
        await over.wait()
    finally:
        cancel()
