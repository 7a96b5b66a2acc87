"""The rounds of an event loop in which time passes only when nothing can be done.

What asyncio's own loop does in a round, for a loop that never waits: a world takes hundreds of thousands of rounds an
hour, so they are made as short as they can be. Timers of one moment come in the order in which they were set.
"""

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


class Handle(list[Any]):
    """Something to be done: a callback, its arguments and its context. Without a callback it was cancelled.

    A list, for that is what the interpreter makes and compares fastest. A timer has its moment and its number before
    these, by which timers are in order.
    """

    __slots__ = ()

    def cancel(self) -> None:
        """Do it not."""
        self[-3] = self[-2] = None

    def cancelled(self) -> bool:
        """Whether it shall not be done."""
        return self[-3] is None

    def when(self) -> float:
        """The moment of a timer."""
        moment: float = self[0]
        return moment


class _Files(selectors.EpollSelector):
    """Looks at files without waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.any: Callable[[float, int], list[Any]] = self._selector.poll  # type: ignore[attr-defined]  # the kernel's own

    def ready(self) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready now, in the order of descriptors: the kernel's follows from where in memory it has them."""
        return sorted(super().select(0), key=lambda each: each[0].fd)


class Rounds(MemoryTcp):
    """A loop whose time is `now`, and goes on from timer to timer."""

    def __init__(self, now: float) -> None:
        self.now = now
        self._files = _Files()
        self._timers: list[Handle] = []  # a heap
        self._numbers = itertools.count()
        self._many = _MANY
        super().__init__(self._files)
        self._due: deque[Handle] = self._ready  # type: ignore[attr-defined]  # what the next round does

    def time(self) -> float:
        """Seconds since some moment before the start of the world."""
        return self.now

    def soon(self, callback: Callable[..., Any], args: tuple[Any, ...], context: contextvars.Context) -> Handle:
        """Do it in the next round."""
        handle = Handle((callback, args, context))
        self._due.append(handle)
        return handle

    @property
    def handles(self) -> list[Handle]:
        """All that is to be done, now or later."""
        return [*self._due, *self._timers]

    def _add_callback(self, reader: Any) -> None:
        """Read a file that is ready, unless nobody wants to by then; asyncio's loop calls this."""
        self.soon(_read, (reader,), reader._context)

    def _run_once(self) -> None:
        """Take rounds until the loop is stopped; asyncio's loop calls this forever."""
        due, timers, pop = self._due, self._timers, heapq.heappop
        while not self._stopping:  # type: ignore[attr-defined]  # of the loop that it is
            if not due and (not timers or timers[0][0] > self.now):
                self._go_on()
            end = self.now + _RESOLUTION
            while timers and timers[0][0] < end:
                due.append(pop(timers))
            for _ in range(len(due)):
                handle = due.popleft()
                callback = handle[-3]
                if callback is None:
                    continue
                try:
                    handle[-1].run(callback, *handle[-2])
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as failed:
                    self.call_exception_handler({"message": f"{callback} fails", "exception": failed})

    def _go_on(self) -> None:
        """Nothing is to be done at this moment: read files that are ready, or else let time go on."""
        timers = self._timers
        if len(timers) > self._many:
            timers[:] = [each for each in timers if each[-3] is not None]
            heapq.heapify(timers)
            self._many = max(_MANY, 2 * len(timers))
        while timers and timers[0][-3] is None:
            heapq.heappop(timers)
        if self._files.any(0, 1):
            self._process_events(self._files.ready())  # type: ignore[attr-defined]  # of the loop that it is
        elif timers:
            self.now = timers[0][0]
        else:
            raise StandsStillError


def _read(reader: Any) -> None:
    if not reader.cancelled():
        reader._callback(*reader._args)
