"""The pauses between attempts at what fails."""

import asyncio
import contextlib
import random
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType

from .clock import Clock


@dataclass(frozen=True, slots=True)
class Backoff:
    """Growing, jittered pauses between attempts, in seconds."""

    first: float
    most: float

    def pause(self, attempt: int) -> float:
        """The pause after failed attempt number `attempt` (0 for the first)."""
        return min(self.most, self.first * 2.0 ** min(attempt, 16)) * random.uniform(0.5, 1.0)


def raise_if_cancelled() -> None:
    """Raise CancelledError when the current task was told to end and goes on all the same.

    A cancellation is lost where code takes it for a failure of its own. gRPC does: when a call fails by itself as its
    task is cancelled, the task gets the failure and never the cancellation.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs here, and so no task
        return
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


class Interrupted(Exception):
    """The work was interrupted."""


class Interruption:
    """What is inside `async with` ends with `Interrupted` when `interrupt` is called meanwhile; for one task.

    The work is ended from elsewhere in the loop, without cancelling the task that does it.
    """

    def __init__(self) -> None:
        self._scope: asyncio.Timeout | None = None

    def interrupt(self) -> None:
        """End what is inside now; nothing where nothing is."""
        if self._scope is not None and not self._scope.expired():
            self._scope.reschedule(asyncio.get_running_loop().time())

    async def __aenter__(self) -> None:
        self._scope = asyncio.timeout(None)  # noqa: TID251 - no time, only the way to interrupt a task
        await self._scope.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        scope, self._scope = self._scope, None
        assert scope is not None
        try:
            await scope.__aexit__(kind, error, trace)
        except TimeoutError as timeout:  # of the scope itself: those from inside are not raised here but passed on
            raise Interrupted from timeout


class Pace:
    """`burst` times at once; each is made up for after so many seconds (`every`)."""

    def __init__(self, clock: Clock, *, burst: int, every: float) -> None:
        self._clock = clock
        self._burst = burst
        self._every = every
        self._left = float(burst)
        self._at = clock.now()

    async def ready(self) -> None:
        while (missing := 1.0 - self._now()) > 0:
            await self._clock.sleep(missing * self._every)

    def spend(self) -> None:
        self._left = self._now() - 1.0

    def _now(self) -> float:
        now = self._clock.now()
        self._left, self._at = min(self._burst, self._left + (now - self._at) / self._every), now
        return self._left


@contextlib.contextmanager
def acting_on(actions: Mapping[signal.Signals, Callable[[], object]]) -> Iterator[None]:
    """Do this on each; afterwards they are handled as before, without a moment of the system's own handling.

    So the loop is not told to forget them: it would put the system's handler in between.
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
