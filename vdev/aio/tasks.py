"""Helpers for tasks: back-off, cancellation, a rate limit, signal handlers, and blocking calls that may hang."""

import asyncio
import concurrent.futures
import contextlib
import random
import signal
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from .clock import Clock

_T = TypeVar("_T")
_AT_ONCE = 64  # concurrent blocking calls, not counting abandoned ones; more would only compete for the CPU


@dataclass(frozen=True, slots=True)
class Backoff:
    """Growing, jittered pauses between attempts, in seconds."""

    first: float
    most: float

    def pause(self, attempt: int) -> float:
        """The pause after failed attempt number `attempt` (0 for the first)."""
        return min(self.most, self.first * 2.0 ** min(attempt, 16)) * random.uniform(0.5, 1.0)


def raise_if_cancelled() -> None:
    """Raise CancelledError if the current task was cancelled but still runs.

    gRPC loses cancellations: if a call fails while its task is cancelled, the task gets the failure instead of the
    cancellation.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop runs in this thread, so there is no task
        return
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def cancel_and_wait(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel each task once and wait for all. A second cancellation would interrupt the shutdown of a server."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        if not task.cancelling():
            task.cancel()
    if running:
        await asyncio.wait(running)


async def run_until(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Run the work in a task until it ends, or until `stop` is set, which cancels it."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_and_wait((working, stopping))
    if not working.cancelled():
        working.result()


class TokenBucket:
    """A rate limit: `burst` tokens, refilled by one every `every` seconds."""

    def __init__(self, clock: Clock, *, burst: int, every: float) -> None:
        self._clock = clock
        self._burst = burst
        self._every = every
        self._tokens = float(burst)
        self._at = clock.now()

    async def wait(self) -> None:
        while pause := self.pause:
            await self._clock.sleep(pause)

    @property
    def pause(self) -> float:
        return max(0.0, 1.0 - self._refill()) * self._every

    def try_take(self) -> bool:
        """Take a token; returns False if there is none."""
        if self._refill() < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def take(self) -> None:
        """Take a token, even if there is none yet."""
        self._tokens = self._refill() - 1.0

    def _refill(self) -> float:
        now = self._clock.now()
        self._tokens, self._at = min(self._burst, self._tokens + (now - self._at) / self._every), now
        return self._tokens


@contextlib.asynccontextmanager
async def in_background(work: Coroutine[Any, Any, None], *, name: str) -> AsyncIterator[None]:
    """Run the work in a task while the context lasts, then cancel it. The work must handle its own errors."""
    task = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


@contextlib.contextmanager
def acting_on(actions: Mapping[signal.Signals, Callable[[], object]]) -> Iterator[None]:
    """Call the actions on signals while the context lasts, then restore the previous handlers.

    `loop.remove_signal_handler` is not used, because it installs the default handler, which ends the process.
    """
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in actions}
    for number, action in actions.items():
        loop.add_signal_handler(number, action)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class BlockingCalls:
    """Runs blocking calls that may never return, and limits how many run concurrently.

    Each call runs in its own daemon thread, because a thread that hangs in the kernel can be neither stopped nor
    joined. It must not belong to a pool, and the process must not wait for it when it exits.
    """

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
