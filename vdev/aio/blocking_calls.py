"""Blocking calls that may never return.

Each call has a daemon thread of its own. A thread that hangs in the kernel can be neither stopped nor joined, so it
must not belong to a pool, and the process must not wait for it at its end. A caller has at most one thread at a time.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from typing import TypeVar

from .clock import Clock

_T = TypeVar("_T")
_AT_ONCE = 64  # calls at a time, without hanging ones; more would only compete for the processor


class StillHanging(Exception):
    """The caller's last call has not returned yet."""


class BlockingCalls:
    """Runs blocking calls; a key identifies the caller."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._running: set[str] = set()

    @property
    def running(self) -> int:
        return len(self._running)

    async def run(
        self, key: str, call: Callable[[], _T], *, within: float, abort: Callable[[], None] | None = None
    ) -> _T:
        """Return the call's result, or raise its exception.

        After `within` seconds (TimeoutError), or when cancelled, `abort` is called, if the call can be ended, and the
        thread is abandoned. Raises StillHanging at once if the last call of this key has not returned.
        """
        if key in self._running:
            raise StillHanging
        answer: concurrent.futures.Future[_T] = concurrent.futures.Future()
        answer.set_running_or_notify_cancel()  # now it cannot be cancelled, so the thread can always set it

        def work() -> None:
            try:
                result = call()
            except BaseException as error:  # raised where the result is awaited
                self._running.discard(key)
                answer.set_exception(error)
            else:
                self._running.discard(key)
                answer.set_result(result)

        async with self._slots:
            self._running.add(key)
            threading.Thread(target=work, name=f"probe {key}", daemon=True).start()
            try:
                async with self._clock.timeout(within):
                    return await asyncio.wrap_future(answer)
            except (TimeoutError, asyncio.CancelledError):
                if abort is not None:
                    abort()
                raise
