"""A deadline for what hardly ever waits: as long as it does not, no timer is set. And a pause that can be cut short."""

import asyncio
import contextlib
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from .clock import Clock

_Result = TypeVar("_Result")


async def within(clock: Clock, seconds: float, coroutine: Coroutine[Any, Any, _Result]) -> _Result:
    """What the coroutine returns; TimeoutError where it has to wait, and longer than that."""
    try:
        awaited = coroutine.send(None)
    except StopIteration as done:
        result: _Result = done.value
        return result
    async with clock.timeout(seconds):
        return await _rest(coroutine, awaited)


@types.coroutine
def _rest(coroutine: Coroutine[Any, Any, _Result], awaited: Any) -> Generator[Any, Any, _Result]:
    """The rest of a coroutine, which waits for something already."""
    try:
        while True:
            try:
                sent = yield awaited
            except BaseException as thrown:  # whatever it is, a cancellation first of all, it is for the coroutine
                awaited = coroutine.throw(thrown)
            else:
                awaited = coroutine.send(sent)
    except StopIteration as done:
        result: _Result = done.value
        return result


async def pause(
    clock: Clock, seconds: float, *, goes_on: Callable[[], bool], news: Callable[[], asyncio.Event]
) -> None:
    """Wait so long, as long as it `goes_on`; that is asked again whenever there are `news`, an event of their own."""
    end = clock.now() + seconds
    while goes_on() and (left := end - clock.now()) > 0:
        with contextlib.suppress(TimeoutError):
            async with clock.timeout(left):
                await news().wait()
