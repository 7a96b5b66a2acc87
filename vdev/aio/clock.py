"""The clock of the agent: it is passed to everything that waits.

`SystemClock` is the machine's clock. `ManualClock` stands still until a test moves it, and calls due actions in order:
a test lets ten minutes pass at once. `LeapClock` runs like the machine's clock and can be moved forward as well, for a
test in which something else takes real time, such as a kubelet behind a socket.

File events, deadlines of gRPC calls, and clients of sockets always go by the machine's time.
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
    """Time, and ways to wait for it. All but `wall` is in seconds since some fixed moment, and never goes back."""

    @abstractmethod
    def now(self) -> float:
        """The time to measure and to wait by."""

    @abstractmethod
    def wall(self) -> float:
        """The time to show to people: seconds since 1970. It may jump, so nothing is measured with it."""

    @abstractmethod
    def call_at(self, moment: float, action: Callable[[], object]) -> Callable[[], object]:
        """Call `action` at that moment, or soon if it is past; return a function that cancels it."""

    def call_later(self, seconds: float, action: Callable[[], object]) -> Callable[[], object]:
        """Call `action` after so many seconds; return a function that cancels it."""
        return self.call_at(self.now() + seconds, action)

    async def sleep(self, seconds: float) -> None:
        """Wait for so many seconds; with 0, let other tasks run."""
        if seconds <= 0:
            await asyncio.sleep(0)
        else:
            await self.wait(asyncio.Event(), seconds)

    async def wait(self, event: asyncio.Event, seconds: float | None) -> None:
        """Wait for the event, and set it after so many seconds; None: wait forever.

        For callers that clear the event and then check what to do.
        """
        cancel = None if seconds is None else self.call_later(seconds, event.set)
        try:
            await event.wait()
        finally:
            if cancel is not None:
                cancel()

    @contextlib.asynccontextmanager
    async def timeout(self, seconds: float | None) -> AsyncIterator[None]:
        """Like `asyncio.timeout`: the code inside raises TimeoutError if it takes longer. None: no limit."""
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
        """Seconds since 1970."""
        return time.time()

    def call_at(self, moment: float, action: Callable[[], object]) -> Callable[[], object]:
        return asyncio.get_running_loop().call_later(max(0.0, moment - time.monotonic()), action).cancel


SYSTEM = SystemClock()


class ManualClock(Clock):
    """A clock that moves only by `advance`. `wall` is the time that it shows to people at first."""

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
        """The moment of the next action; None if there is none."""
        while self._due and self._due[0][1] not in self._actions:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def call_at(self, moment: float, action: Callable[[], object]) -> Callable[[], object]:
        """Call `action` when the clock reaches the moment; return a function that cancels it."""
        if moment <= self.now():
            return asyncio.get_running_loop().call_soon(action).cancel
        number = next(self._serial)
        heapq.heappush(self._due, (moment, number))
        self._actions[number] = action
        return lambda: self._actions.pop(number, None)

    def advance(self, seconds: float) -> None:
        """Move forward; every due action is called at its own moment, in order."""
        self._move(self.now() + seconds)

    def _move(self, end: float) -> None:
        while (moment := self.next_due) is not None and moment <= end:
            _, number = heapq.heappop(self._due)
            self._now = max(self._now, moment)
            self._actions.pop(number)()
        self._now = max(self._now, end)


class LeapClock(ManualClock):
    """The machine's clock, which can be moved forward: actions that are due by then are called at once."""

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
    """The two as a pair: `self._intervals, self._clock = timing`."""

    intervals: Intervals = PRODUCTION
    clock: Clock = SYSTEM


PRODUCTION_TIMING = Timing()
