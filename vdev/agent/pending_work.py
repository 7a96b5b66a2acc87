"""The work that the next turn of the loop has to do."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from ..aio.clock import Timing


@dataclass(slots=True)
class Work:
    """What a turn does before it plans. Work that fails is added again."""

    reload: bool = False  # read the configuration
    scan: set[str] = field(default_factory=set)  # the entries whose devices are looked for
    faults: bool = True  # look at the files of fault rules


class PendingWork:
    """Collects work until the next turn, and requests to ask the kubelet which pods hold devices."""

    def __init__(self, timing: Timing) -> None:
        self.work = Work()
        self.asked = asyncio.Event()  # somebody wants to know which pods hold devices
        self._intervals, self._clock = timing
        self._wake = asyncio.Event()
        self._timers: list[Callable[[], object]] = []  # each cancels one
        self._asking = False

    def add(self, *, reload: bool = False, scan: Collection[str] = (), faults: bool = False) -> None:
        """Ask for a turn with this work; without arguments it only plans and applies again."""
        self.work.reload |= reload
        self.work.scan.update(scan)
        self.work.faults |= faults
        self._wake.set()

    @property
    def is_waiting(self) -> bool:
        """Whether a turn was asked for that has not begun."""
        return self._wake.is_set()

    def take(self) -> Work:
        """Return the work that is pending, and forget it."""
        work, self.work = self.work, Work(faults=False)
        return work

    async def wait(self) -> None:
        await self._wake.wait()
        self._wake.clear()

    def ask_holders(self) -> None:
        self._asking = False
        self.asked.set()

    def ask_holders_soon(self) -> None:
        """Ask which pods hold devices once the kubelet has admitted the pods of the current calls, for all at once."""
        if not self._asking:
            self._asking = True
            self._clock.call_later(self._intervals.admission, self.ask_holders)

    def wake_at(self, plan_at: float | None, retry_at: float | None) -> None:
        """Take a turn at `retry_at`; at `plan_at` (both monotonic) also ask which pods hold devices."""
        for cancel in self._timers:
            cancel()
        self._timers = []
        if plan_at is not None:
            self._timers.append(self._clock.call_at(plan_at, self._plan))
        if retry_at is not None:
            self._timers.append(self._clock.call_at(retry_at, self.add))

    def _plan(self) -> None:
        self.asked.set()
        self.add()  # the kubelet may take its time to answer
