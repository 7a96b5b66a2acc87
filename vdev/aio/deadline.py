"""A deadline, and a pause that can be cut short."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from .clock import Clock

_Result = TypeVar("_Result")


async def within(clock: Clock, seconds: float, work: Awaitable[_Result]) -> _Result:
    """What it returns; raises TimeoutError if that takes longer."""
    async with clock.timeout(seconds):
        return await work


async def pause(
    clock: Clock, seconds: float, *, goes_on: Callable[[], bool], news: Callable[[], asyncio.Event]
) -> None:
    """Wait so long, as long as it `goes_on`; that is asked again whenever there are `news`, an event of their own."""
    end = clock.now() + seconds
    while goes_on() and (left := end - clock.now()) > 0:
        with contextlib.suppress(TimeoutError):
            async with clock.timeout(left):
                await news().wait()
