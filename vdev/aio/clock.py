"""Clocks, which are passed to all code that waits.

`SystemClock` is the machine's clock. `ManualClock` moves only when a test advances it, and calls due actions in order,
so ten minutes pass at once. `LeapClock` runs like the machine's clock and can also be advanced, for tests in which
something else takes real time, such as a kubelet behind a socket.

File events, gRPC deadlines and socket clients always use the machine's time.
"""

import asyncio
import contextlib
import heapq
import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from ..intervals import PRODUCTION, Intervals


class Clock(ABC):
    """Tells the time and waits. All times except `wall` are monotonic, in seconds since an arbitrary moment."""

    @abstractmethod
    def now(self) -> float:
        """Return the monotonic time, for measuring and waiting."""

    @abstractmethod
    def wall(self) -> float:
        """Return the time of day, for people: seconds since 1970. It may jump, so do not measure with it."""

    @abstractmethod
    def call_at(self, moment: float, action: Callable[[], object]) -> Callable[[], object]:
        """Call `action` at this moment, or soon if it has passed. Returns a function that cancels the call."""

    def call_later(self, seconds: float, action: Callable[[], object]) -> Callable[[], object]:
        """Call `action` after a delay. Returns a function that cancels the call."""
        return self.call_at(self.now() + seconds, action)

    async def sleep(self, seconds: float) -> None:
        """Sleep; with 0, let other tasks run."""
        if seconds <= 0:
            await asyncio.sleep(0)
        else:
            await self.wait(asyncio.Event(), seconds)

    async def wait(self, event: asyncio.Event, seconds: float | None) -> None:
        """Wait for the event, and set it after a timeout. None means no timeout.

        Callers clear the event afterwards and check what to do.
        """
        cancel = None if seconds is None else self.call_later(seconds, event.set)
        try:
            await event.wait()
        finally:
            if cancel is not None:
                cancel()

    @contextlib.asynccontextmanager
    async def timeout(self, seconds: float | None) -> AsyncIterator[None]:
        """Raise TimeoutError if the block takes longer, like `asyncio.timeout`. None means no limit."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(None) as scope:
            cancel = None if seconds is None else self.call_later(seconds, lambda: scope.reschedule(loop.time()))
            try:
                yield
            finally:
                if cancel is not None:
                    cancel()


class SystemClock(Clock):
    """The machine's clocks and the running event loop's timers."""

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    def call_at(self, moment: float, action: Callable[[], object]) -> Callable[[], object]:
        return asyncio.get_running_loop().call_later(max(0.0, moment - time.monotonic()), action).cancel


SYSTEM = SystemClock()


class ManualClock(Clock):
    """A clock that only `advance` moves. `wall` is its initial time of day."""

    def __init__(self, start: float = 0.0, *, wall: float = 1_767_225_600.0) -> None:
        self._now = start
        self._ahead_of_now = wall - start
        self._serial = itertools.count()
        self._due: list[tuple[float, int]] = []
        self._actions: dict[int, Callable[[], object]] = {}

    def now(self) -> float:
        return self._now

    def wall(self) -> float:
        return self.now() + self._ahead_of_now

    @property
    def next_due(self) -> float | None:
        while self._due and self._due[0][1] not in self._actions:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def call_at(self, moment: float, action: Callable[[], object]) -> Callable[[], object]:
        """Call `action` when the clock reaches this moment. Returns a function that cancels the call."""
        if moment <= self.now():
            return asyncio.get_running_loop().call_soon(action).cancel
        number = next(self._serial)
        heapq.heappush(self._due, (moment, number))
        self._actions[number] = action
        return lambda: self._actions.pop(number, None)

    def advance(self, seconds: float) -> None:
        """Advance the clock and call each due action at its own moment, in order."""
        self._move(self.now() + seconds)

    def _move(self, end: float) -> None:
        while (moment := self.next_due) is not None and moment <= end:
            _, number = heapq.heappop(self._due)
            self._now = max(self._now, moment)
            self._actions.pop(number)()
        self._now = max(self._now, end)


class LeapClock(ManualClock):
    """The machine's clock, which can also be advanced. Actions that are then due are called at once."""

    def __init__(self) -> None:
        super().__init__(time.monotonic(), wall=time.time())
        self._leapt = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def now(self) -> float:
        return max(self._now, time.monotonic() + self._leapt)

    def call_at(self, moment: float, action: Callable[[], object]) -> Callable[[], object]:
        cancel = super().call_at(moment, action)
        self._set_timer()
        return cancel

    def advance(self, seconds: float) -> None:
        self._leapt += seconds
        self._catch_up()

    def _catch_up(self) -> None:
        self._move(time.monotonic() + self._leapt)
        self._set_timer()

    def _set_timer(self) -> None:
        """Wake up on the running loop when the next action is due."""
        if self._timer is not None:
            self._timer.cancel()
        due = self.next_due
        wait = None if due is None else max(0.0, due - self.now())
        self._timer = None if wait is None else asyncio.get_running_loop().call_later(wait, self._catch_up)


class Timing(NamedTuple):
    """Intervals and clock in one argument: `self._intervals, self._clock = timing`."""

    intervals: Intervals = PRODUCTION
    clock: Clock = SYSTEM


PRODUCTION_TIMING = Timing()
