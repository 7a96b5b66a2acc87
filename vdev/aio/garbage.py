"""The garbage collector, kept from looking at what is no garbage.

A collection holds the interpreter from its beginning to its end, and one that goes over 70 000 devices takes 60 to 150
ms, in which nobody is served. Devices are frozen values without cycles, which go by their reference counts alone, so
nothing is found among them.
"""

import asyncio
import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from .beside import MANY

_AT_ONCE = 100  # devices of which the memory is given back in one go
_LEFT = 100  # large values are made so often between two collections of everything


class Garbage:
    """Directs the collector of this process, which has nobody else in it; with `idle` it does nothing."""

    def __init__(self, *, idle: bool = False) -> None:
        self._idle = idle
        self._spared = 0  # by how many at the moment
        self._parting: asyncio.Future[None] | None = None
        self._paused = False
        self._making = False
        self._made = 0

    @contextmanager
    def spared(self) -> Iterator[None]:
        """While the context lasts, no collection: large values are made that soon go again."""
        self._spare()
        try:
            yield
        finally:
            self._go_on()

    def pause(self, *, making: bool) -> None:
        """No collection until `resume`; `making`: large values that will stay are made meanwhile."""
        if self._idle:
            return
        if making and not self._making:
            self._making = True
            self._made += 1
            if self._made % _LEFT == 0:  # what became garbage after it was put aside
                gc.unfreeze()
            gc.collect()  # so that only little garbage is put aside with what is made now
        if not self._paused:
            self._paused = True
            self._spare()

    def resume(self) -> None:
        """Collect again, leaving aside all that was made."""
        if not self._paused:
            return
        if self._making:
            gc.freeze()
        self._paused = self._making = False
        self._go_on()

    def _spare(self) -> None:
        self._spared += 1
        if not self._idle:
            gc.disable()

    def _go_on(self) -> None:
        self._spared -= 1
        if not self._idle and not self._spared:
            gc.enable()

    def part_with(self, values: Iterable[Sequence[object]]) -> None:
        """Let go of large values that nobody has any more, one after the other and in a thread.

        The memory of all of them is else given back in one go, by whoever happens to be the last to let go.
        """
        if not self._idle and (left := [list(each) for each in values if len(each) >= MANY]):
            self._parting = asyncio.get_running_loop().run_in_executor(None, _empty, left)

    async def parted(self) -> None:
        """Wait until all is gone that was parted with."""
        if self._parting is not None:
            await self._parting


def _empty(values: Iterable[list[object]]) -> None:
    for each in values:
        while each:
            del each[-_AT_ONCE:]
