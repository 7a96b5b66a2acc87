"""Runs the agent's operations by name, and retries those that fail with exponential back-off.

A failure does not stop other operations. It is a problem in log, status and metrics until the operation succeeds. The
operation is not run again before its pause is over; the caller remembers the work that is left, and asks again at
`next_attempt`. Only cancellation is raised.
"""

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace

import structlog

from ..aio.clock import PRODUCTION_TIMING, Timing
from ..aio.tasks import Backoff, raise_if_cancelled
from ..errors import ApiServerError, VdevError
from ..model.problem import Problem, error

log = structlog.get_logger(__name__)

_RETRIED = "it is tried again, and everything else goes on"
_REPORT = "this looks like a defect of vdev: please report it with the trace that --log-level debug shows"


def problem_of(name: str, failed: Exception) -> Problem:
    """Return the problem of an operation that failed; `name` goes before "failed"."""
    hint = _RETRIED if isinstance(failed, VdevError | OSError) else f"{_RETRIED}; {_REPORT}"
    return error("vdev", f"{name} failed: {reason_in_words(failed)}", hint)


def reason_in_words(failed: Exception) -> str:
    """Return the text of the exception, with its type if the text is not meant for people."""
    if isinstance(failed, ExceptionGroup):
        return "; ".join(reason_in_words(each) for each in failed.exceptions if isinstance(each, Exception))
    text = str(failed)
    if isinstance(failed, VdevError):
        return text
    if isinstance(failed, OSError) and failed.strerror:
        return f"{failed.strerror}: {failed.filename}" if failed.filename else failed.strerror
    return f"{type(failed).__name__}: {text}" if text else type(failed).__name__


@dataclass(frozen=True, slots=True)
class Failure:
    """The last attempt of an operation; `again_at` is the (monotonic) time of the next one."""

    reason: str
    problem: Problem
    attempts: int
    again_at: float


class Retrier:
    """The operations of one agent, each with a name that goes before "failed", such as "reading x".

    `failing` are those whose last attempt failed. `on_change` is called when `problems` changes.
    """

    def __init__(
        self,
        *,
        on_change: Callable[[], None] = lambda: None,
        timing: Timing = PRODUCTION_TIMING,
    ) -> None:
        self._backoff = Backoff(timing.intervals.retry_step_first, timing.intervals.retry_step_most)
        self._steady = timing.intervals.steady
        self._on_change = on_change
        self._clock = timing.clock
        self.failing: dict[str, Failure] = {}
        self._hurried = asyncio.Event()  # set and replaced when all pauses end

    @property
    def problems(self) -> tuple[Problem, ...]:
        """A problem for each operation whose last attempt failed."""
        return tuple(failure.problem for failure in self.failing.values())

    def next_attempt(self, begun: float) -> float | None:
        """The (monotonic) time at which the first pause ends that had not ended at the time `begun`, or None.

        It may be past: an operation may have been skipped shortly before its pause ended.
        """
        return min((each.again_at for each in self.failing.values() if each.again_at > begun), default=None)

    def reason(self, name: str) -> str:
        """Why the last attempt failed; empty if it did not."""
        failure = self.failing.get(name)
        return failure.reason if failure else ""

    def pause(self, name: str) -> float:
        """The seconds until the next attempt; 0 if it may run now."""
        failure = self.failing.get(name)
        return max(0.0, failure.again_at - self._clock.now()) if failure else 0.0

    def retry_now(self) -> None:
        now = self._clock.now()
        for name, each in self.failing.items():
            self.failing[name] = replace(each, again_at=min(each.again_at, now))
        self._hurried.set()
        self._hurried = asyncio.Event()

    def forget(self, name: str) -> None:
        """Drop the failure of an operation that succeeded or no longer exists."""
        if self.failing.pop(name, None) is not None:
            self._on_change()

    async def run(self, name: str, work: Callable[[], Awaitable[object]]) -> bool:
        """Run it unless its pause is not over; return whether it succeeded."""
        if self.pause(name):
            return False
        with self.attempt(name):
            await work()
        return name not in self.failing

    @contextlib.contextmanager
    def attempt(self, name: str) -> Iterator[None]:
        """Record whether the code inside succeeds. Exceptions are caught, because they must not stop other operations.

        The caller looks at `pause` first.
        """
        try:
            yield
        except Exception as failed:
            self._fail(name, failed)
        else:
            self._succeed(name)

    async def run_forever(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        task = asyncio.current_task()
        while task is not None and not task.cancelling():  # gRPC may have lost the cancellation inside
            if not await self.run(name, work):
                await self._sleep(name)

    async def supervise(
        self, name: str, work: Callable[[], Awaitable[object]], *, after: asyncio.Task[None] | None = None
    ) -> None:
        """Run a long operation until it returns, after the end of the task `after`; start it again when it fails.

        Running for a while counts as a success.
        """
        if after is not None:
            try:
                await asyncio.wait([after])
            finally:  # if this task is cancelled, the next one has to wait for that other task too
                if not after.done():
                    await asyncio.wait([after])
        try:
            while True:
                cancel = self._clock.call_later(self._steady, functools.partial(self._succeed, name))
                try:
                    if await self.run(name, work):
                        return
                finally:
                    cancel()
                await self._sleep(name)
        finally:
            self.forget(name)

    async def _sleep(self, name: str) -> None:
        """Wait until the pause is over, or ended by `retry_now`."""
        with contextlib.suppress(TimeoutError):
            async with self._clock.timeout(self.pause(name)):
                await self._hurried.wait()

    def _fail(self, name: str, failed: Exception) -> None:
        raise_if_cancelled()
        before = self.failing.get(name)
        attempts = before.attempts + 1 if before else 0
        wait = failed.wait if isinstance(failed, ApiServerError) else 0.0  # the server's Retry-After
        again_at = self._clock.now() + max(self._backoff.pause(attempts), wait)
        problem, reason = problem_of(name, failed), reason_in_words(failed)
        self.failing[name] = Failure(reason, problem, attempts, again_at)
        log.debug("step failed", step=name, attempt=attempts + 1, exc_info=failed)
        if before is None or before.problem != problem:
            log.error("step failed; trying again", step=name, reason=reason, hint=problem.hint)
            self._on_change()

    def _succeed(self, name: str) -> None:
        if name in self.failing:
            log.info("step succeeds again", step=name)
            self.forget(name)
