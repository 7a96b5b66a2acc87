"""What there is to do next: everything that happens only marks it here and wakes the one task that takes the turns."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from ..aio.timing import Timing


@dataclass(slots=True)
class DueWork:
    """What a turn has to do before it decides; what fails stays due."""

    reload: bool = False
    scan: set[str] = field(default_factory=set)  # entries whose devices are looked for again
    faults: bool = True  # the files that faults come from or wait for


class Due:
    """The work that is due, and whether somebody wants to know who holds what."""

    def __init__(self, timing: Timing) -> None:
        self.work = DueWork()
        self.asked = asyncio.Event()
        self._intervals, self._clock = timing
        self._wake = asyncio.Event()
        self._timers: list[Callable[[], object]] = []  # each cancels one
        self._asking = False

    def mark(self, *, reload: bool = False, scan: frozenset[str] = frozenset(), faults: bool = False) -> None:
        """There is something to do; without arguments, to decide anew."""
        self.work.faults |= faults
        self.work.reload |= reload
        self.work.scan |= scan
        self._wake.set()

    @property
    def is_marked(self) -> bool:
        """Whether a turn is due that has not begun."""
        return self._wake.is_set()

    def take(self) -> DueWork:
        """The work that is due, which then is no more."""
        work, self.work = self.work, DueWork(faults=False)
        return work

    async def wait(self) -> None:
        await self._wake.wait()
        self._wake.clear()

    def ask_holders(self) -> None:
        self._asking = False
        self.asked.set()

    def ask_holders_soon(self) -> None:
        """Ask who holds what once the pods of this moment's requests are admitted: one question for all of them."""
        if not self._asking:
            self._asking = True
            self._clock.call_later(self._intervals.admission, self.ask_holders)

    def wake_at(self, decide: float | None, retry: float | None) -> None:
        """At the (monotonic) time `decide` ask who holds what, since something may have become free, and take a turn.

        At `retry` take a turn, since the pause of something that failed is over.
        """
        for cancel in self._timers:
            cancel()
        times: tuple[tuple[float | None, Callable[[], None]], ...] = ((decide, self._decide), (retry, self.mark))
        self._timers = [self._clock.call_at(at, then) for at, then in times if at is not None]

    def _decide(self) -> None:
        self.asked.set()
        self.mark()  # the kubelet may take its time to answer
