"""The rounds of an event loop in which time passes only when nothing can be done.

What asyncio's own loop does in a round, for a loop that never waits: a world takes hundreds of thousands of rounds an
hour, so they are made as short as they can be. Timers of one moment come in the order in which they were set.
"""

import asyncio
import contextvars
import heapq
import itertools
import selectors
from collections import deque
from collections.abc import Callable
from typing import Any

from .memory_tcp import MemoryTcp

_RESOLUTION = 1e-9  # seconds: what is due so soon is due
_MANY = 200  # timers, of which those that were cancelled are thrown away


class StandsStillError(Exception):
    """Everybody waits, and for nothing that could ever come."""


class _Handle(asyncio.Handle):
    """Something to be done, made with as little ado as possible."""

    __slots__ = ()

    def __init__(
        self, callback: Callable[..., Any], args: tuple[Any, ...], loop: "Rounds", context: contextvars.Context
    ) -> None:
        self._context = context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None

    def cancel(self) -> None:
        """Do it not."""
        self._cancelled = True
        self._callback = self._args = None  # type: ignore[assignment]  # as asyncio does


class _Timer(asyncio.TimerHandle):
    """Something to be done later."""

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        loop: "Rounds",
        context: contextvars.Context,
    ) -> None:
        _Handle.__init__(self, callback, args, loop, context)  # type: ignore[arg-type]  # the same members
        self._when = when
        self._scheduled = False  # in none of asyncio's lists

    cancel = _Handle.cancel


class _Files(selectors.EpollSelector):
    """Looks at files without waiting."""

    def ready(self) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready now, in the order of descriptors: the kernel's follows from where in memory it has them."""
        polled: Any = self._selector  # type: ignore[attr-defined]  # the kernel's own list
        return sorted(super().select(0), key=lambda each: each[0].fd) if polled.poll(0, 1) else []


class Rounds(MemoryTcp):
    """A loop whose time is `now`, and goes on from timer to timer."""

    def __init__(self, now: float) -> None:
        self.now = now
        self._files = _Files()
        self._timers: list[tuple[float, int, _Timer]] = []  # a heap
        self._numbers = itertools.count()
        self._many = _MANY
        super().__init__(self._files)
        self._due: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]  # what the next round does

    def time(self) -> float:
        """Seconds since some moment before the start of the world."""
        return self.now

    def soon(self, callback: Callable[..., Any], args: tuple[Any, ...], context: contextvars.Context) -> asyncio.Handle:
        """Do it in the next round."""
        handle = _Handle(callback, args, self, context)
        self._due.append(handle)
        return handle

    def at(
        self, when: float, callback: Callable[..., Any], args: tuple[Any, ...], context: contextvars.Context
    ) -> asyncio.TimerHandle:
        """Do it then."""
        timer = _Timer(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    @property
    def handles(self) -> list[asyncio.Handle]:
        """All that is to be done, now or later."""
        return [*self._due, *(timer for _, _, timer in self._timers)]

    def _run_once(self) -> None:
        """Take a round; asyncio's loop calls this for ever."""
        due = self._due
        self._look_at_timers()
        for _ in range(len(due)):
            handle: Any = due.popleft()
            if handle._cancelled:  # noqa: SLF001 - as asyncio does
                continue
            try:
                handle._context.run(handle._callback, *handle._args)  # noqa: SLF001 - as above
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as failed:  # noqa: BLE001 - as above
                self.call_exception_handler({"message": f"{handle} fails", "exception": failed})

    def _look_at_timers(self) -> None:
        """Have in `_due` what the next round does; where nothing is to be done, time goes on."""
        timers, due = self._timers, self._due
        if len(timers) > self._many:
            timers[:] = [each for each in timers if not each[2]._cancelled]  # noqa: SLF001 - as asyncio does
            heapq.heapify(timers)
            self._many = max(_MANY, 2 * len(timers))
        while timers and timers[0][2]._cancelled:  # noqa: SLF001 - as above
            heapq.heappop(timers)
        if not due and not (timers and timers[0][0] <= self.now):
            if ready := self._files.ready():
                self._process_events(ready)  # type: ignore[attr-defined]  # of the loop that it is
            elif timers:
                self.now = timers[0][0]
            else:
                raise StandsStillError
        end = self.now + _RESOLUTION
        while timers and timers[0][0] < end:
            due.append(heapq.heappop(timers)[2])
