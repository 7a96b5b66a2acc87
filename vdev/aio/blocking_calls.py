"""Blocking calls that may never return.

Each call runs in its own daemon thread. A thread that hangs in the kernel can be neither stopped nor joined, so it must
not belong to a pool, and the process must not wait for it when it exits.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from typing import TypeVar

from .clock import Clock

_T = TypeVar("_T")
_AT_ONCE = 64  # concurrent calls, not counting abandoned ones; more would only compete for the CPU


class BlockingCalls:
    """Runs blocking calls in threads and limits how many run concurrently."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def run(self, call: Callable[[], _T], *, within: float, abort: Callable[[], None] | None = None) -> _T:
        """Return the call's result, or raise its exception.

        After `within` seconds (TimeoutError) or on cancellation, the thread is abandoned. Before that, `abort` is
        called, which ends the call if possible.
        """
        answer: concurrent.futures.Future[_T] = concurrent.futures.Future()
        answer.set_running_or_notify_cancel()  # from now on it cannot be cancelled, so the thread can always set it

        def work() -> None:
            try:
                answer.set_result(call())
            except BaseException as error:  # raised where the result is awaited
                answer.set_exception(error)

        async with self._slots:
            threading.Thread(target=work, name="blocking call", daemon=True).start()
            try:
                async with self._clock.timeout(within):
                    return await asyncio.wrap_future(answer)
            except (TimeoutError, asyncio.CancelledError):
                if abort is not None:
                    abort()
                raise
