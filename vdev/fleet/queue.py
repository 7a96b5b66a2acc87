"""What is due: names, each once, in the order in which they came; some after a while, and then before the others."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable

from ..aio.clock import Clock


class DueQueue:
    """Names that something is to be done for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: OrderedDict[str, None] = OrderedDict()
        self._later: dict[str, tuple[float, Callable[[], object]]] = {}
        self._any = asyncio.Event()

    def __len__(self) -> int:
        return len(self._due)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._due)

    def add(self, name: str) -> None:
        self._due.setdefault(name)
        self._any.set()

    def add_all(self, names: Iterable[str]) -> None:
        for name in names:
            self.add(name)

    def add_later(self, name: str, seconds: float) -> None:
        """It is due after so many seconds, and comes first then; the earliest time counts."""
        at = self._clock.now() + seconds
        known = self._later.get(name)
        if known is not None:
            if known[0] <= at:
                return
            known[1]()
        self._later[name] = at, self._clock.call_at(at, lambda: self._fall_due(name))

    def _fall_due(self, name: str) -> None:
        self._later.pop(name, None)
        self.add(name)
        self._due.move_to_end(name, last=False)

    async def next(self) -> str:
        while not self._due:
            self._any.clear()
            await self._any.wait()
        name, _ = self._due.popitem(last=False)
        return name
