"""The garbage collector, kept from looking at what is no garbage.

A collection holds the interpreter from its beginning to its end, and one that goes over 70 000 devices takes 60 to 150
ms, in which nobody is served. Devices are frozen values without cycles, which go by their reference counts alone, so
nothing is found among them.
"""

import asyncio
import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .clock import Clock

_AT_ONCE = 100  # devices of which the memory is given back in one go
_YOUNG = 1  # the last generation of what was made lately, which is looked at in less than a millisecond
_LEFT = (
    500  # how often something is put aside between two collections of everything; each time some 40 objects are garbage
)

_FULL = 2  # the generation of a full collection
_ALL_AGAIN = 3600.0  # seconds


class Garbage:
    """Directs the collector of this process, which has nobody else in it; with `idle` it does nothing."""

    def __init__(self, *, idle: bool = False) -> None:
        self._idle = idle
        self._spared = 0  # by how many at the moment
        self._parting: asyncio.Future[None] | None = None
        self._paused = False
        self._keeping = False
        self._kept = 0  # how often

    @contextmanager
    def spared(self) -> Iterator[None]:
        """While the context lasts, no collection: large values are made that soon go again."""
        self._spare()
        try:
            yield
        finally:
            self._go_on()

    def pause(self) -> None:
        """No collection until `resume`: large values are made. To be asked for early, and again to no effect."""
        if self._idle or self._paused:
            return
        oldest = _YOUNG
        if self._kept == _LEFT:  # among what was put aside is some that is garbage by now
            self._kept, oldest = 0, _FULL
            gc.unfreeze()
        if not self._spared:  # else something large is there that soon goes again
            gc.collect(oldest)  # most of the garbage that else were put aside
        self._paused = True
        self._spare()

    def keep(self) -> None:
        """Something that was made in this pause stays."""
        self._keeping = True

    def resume(self) -> None:
        """Collect again, leaving aside what was made, where something of it stays."""
        if not self._paused:
            return
        if self._keeping:
            self._kept += 1
            gc.freeze()
        self._paused = self._keeping = False
        self._go_on()

    def _spare(self) -> None:
        self._spared += 1
        if not self._idle:
            gc.disable()

    def _go_on(self) -> None:
        self._spared -= 1
        if not self._idle and not self._spared:
            gc.enable()

    def part_with(self, values: list[Any], owners: list[Any]) -> None:
        """Let go of large values that nobody has any more but their owners, attribute after attribute and in a thread.

        Both lists are emptied there. The memory of all of them is else given back in one go, by the code that happens
        to be the last to let go.
        """
        if not self._idle and values:
            self._parting = asyncio.get_running_loop().run_in_executor(None, _take_apart, values, owners)

    async def parted(self) -> None:
        """Wait until all is gone that was parted with."""
        if self._parting is not None:
            await self._parting


@contextmanager
def set_aside(clock: Clock) -> Iterator[None]:
    """While the context lasts, what outlives a full collection is left aside by the next: many nodes come, one by one.

    Without that each goes over all of what is known, 0.4 s for five thousand nodes, ten times while they come. Once in
    a while everything is looked at, since what was set aside may have become garbage in circles.
    """
    all_at = clock.now() + _ALL_AGAIN

    def act(phase: str, info: Mapping[str, int]) -> None:
        nonlocal all_at
        if info["generation"] < _FULL:
            return
        if phase == "stop":
            gc.freeze()
        elif clock.now() > all_at:
            all_at = clock.now() + _ALL_AGAIN
            gc.unfreeze()

    gc.freeze()
    gc.callbacks.append(act)
    try:
        yield
    finally:
        gc.callbacks.remove(act)
        gc.unfreeze()


def _take_apart(values: list[Any], owners: list[Any]) -> None:
    parts = [part for value in values for part in vars(value).values()]
    sequences = [list(part) for part in parts if isinstance(part, tuple)]  # what the others are about; they go last
    values.clear()
    owners.clear()
    while parts:
        parts.pop()
    for each in sequences:
        while each:
            del each[-_AT_ONCE:]
