"""The work that the next reconciliation has to do."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field

from ..aio.clock import Clock


@dataclass(slots=True)
class Work:
    """The reading and scanning before the next plan. Work that fails is added again."""

    reload: bool = False  # read the configuration
    scan: set[str] = field(default_factory=set)  # the entries whose devices are looked for
    faults: bool = True  # look at the files of fault rules


class PendingWork:
    """Collects work until the next reconciliation."""

    def __init__(self, clock: Clock) -> None:
        self.work = Work()
        self._clock = clock
        self._wake = asyncio.Event()

    def add(self, *, reload: bool = False, scan: Collection[str] = (), faults: bool = False) -> None:
        """Ask for a reconciliation with this work; without arguments it only plans and applies again."""
        self.work.reload |= reload
        self.work.scan.update(scan)
        self.work.faults |= faults
        self._wake.set()

    @property
    def is_waiting(self) -> bool:
        """Whether a reconciliation was asked for that has not begun."""
        return self._wake.is_set()

    def take(self) -> Work:
        """Return the work that is pending, and forget it."""
        work, self.work = self.work, Work(faults=False)
        return work

    async def wait(self, until: float | None) -> None:
        """Wait until a reconciliation is asked for, or until this (monotonic) time."""
        await self._clock.wait(self._wake, None if until is None else until - self._clock.now())
        self._wake.clear()
