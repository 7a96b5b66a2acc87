"""Blocking calls that may never return.

Each call has a daemon thread of its own: a thread that hangs in the kernel can be neither stopped nor joined, so it
must not belong to a pool that others need, and nobody may wait for it when the process ends. A caller has at most one
thread at a time.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from typing import TypeVar

from .clock import Clock

_T = TypeVar("_T")
_AT_ONCE = 64  # calls at a time, without those that hang; more would only compete for the processor


class StillHanging(Exception):
    """The caller's last call has not come back yet."""


class BlockingCalls:
    """Runs blocking calls; a key identifies the caller."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._running: set[str] = set()

    @property
    def running(self) -> int:
        return len(self._running)

    async def run(self, key: str, call: Callable[[], _T], *, within: float, abort: Callable[[], None]) -> _T:
        """The call's result or exception.

        After `within` seconds, or when cancelled, `abort` is called, which may end the call, and the thread is left to
        itself. Raises TimeoutError; StillHanging at once while the key's last call is not back.
        """
        if key in self._running:
            raise StillHanging
        answer: concurrent.futures.Future[_T] = concurrent.futures.Future()
        answer.set_running_or_notify_cancel()  # from now on it cannot be cancelled, so the thread can always set it

        def work() -> None:
            try:
                result = call()
            except BaseException as error:  # it is raised where the result is awaited
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
                abort()
                raise
