"""A pause that can be cut short."""

import asyncio
import contextlib
from collections.abc import Callable

from .clock import Clock


async def pause(
    clock: Clock, seconds: float, *, goes_on: Callable[[], bool], news: Callable[[], asyncio.Event]
) -> None:
    """Wait so long, as long as it `goes_on`; that is asked again whenever there are `news`, an event of their own."""
    end = clock.now() + seconds
    while goes_on() and (left := end - clock.now()) > 0:
        with contextlib.suppress(TimeoutError):
            async with clock.timeout(left):
                await news().wait()
