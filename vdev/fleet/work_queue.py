"""A work queue of node names, as in client-go: each name is queued once, and one worker at a time has it."""

import asyncio
import math
from collections.abc import Iterable

from ..aio.clock import Clock


class WorkQueue:
    """A worker takes a name with `next` and returns it with `done`. If it was added in between, it is queued again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: dict[str, None] = {}
        self._taken: set[str] = set()
        self._again: set[str] = set()
        self._later: dict[str, float] = {}  # when it is added
        self._any = asyncio.Event()

    @property
    def names(self) -> tuple[str, ...]:
        """The names that are queued or with a worker, without those that are due later."""
        return (*self._due, *self._taken)

    def add(self, name: str) -> None:
        if name in self._taken:
            self._again.add(name)
        else:
            self._due.setdefault(name)
            self._any.set()

    def add_all(self, names: Iterable[str]) -> None:
        for name in names:
            self.add(name)

    def add_later(self, name: str, seconds: float) -> None:
        """Add it after so many seconds; of several times the earliest counts."""
        at = self._clock.now() + seconds
        if at < self._later.get(name, math.inf):
            self._later[name] = at
            self._clock.call_at(at, lambda: self._fall_due(name, at))

    def _fall_due(self, name: str, at: float) -> None:
        if self._later.get(name) == at:
            del self._later[name]
            self.add(name)

    async def next(self) -> str:
        while not self._due:
            self._any.clear()
            await self._any.wait()
        name = next(iter(self._due))
        del self._due[name]
        self._taken.add(name)
        return name

    def done(self, name: str) -> None:
        self._taken.discard(name)
        if name in self._again:
            self._again.discard(name)
            self.add(name)
