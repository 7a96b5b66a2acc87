"""Steps that may fail: whatever goes wrong in one is a problem of that one alone, and it is tried again.

    take("reading x", read) ─┬─ it is done ────────► True; what was wrong with this step is over
                             ├─ it raises ─────────► False; a problem, and a pause that grows with each failure
                             └─ the pause goes on ─► False; nothing is done

All work of the agent is done in steps. Only two things get out of one: cancellation, and `InvariantBroken`, which ends
the agent. The caller keeps in mind what a step was to do until it is done, and comes back at `again_at`.
"""

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Literal

import structlog

from ..aio.clock import PRODUCTION_TIMING, Timing
from ..aio.tasks import Backoff, raise_if_cancelled
from ..errors import ApiServerError, InvariantBroken, VdevError
from ..model.problem import Problem, error
from ..observe.metrics import Metrics

log = structlog.get_logger(__name__)

_RETRIED = "it is tried again, and everything else goes on"
_REPORT = "this looks like a defect of vdev: please report it with the trace that --log-level debug shows"


@dataclass(frozen=True, slots=True)
class _Failure:
    """The last attempt of a step; `again_at` is the (monotonic) time of the next one."""

    problem: Problem
    attempts: int
    again_at: float


class Steps:
    """The steps of one agent, told apart by name: a phrase that goes before "failed", such as "reading x".

    `on_change` is called when `problems` became others.
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
        self._failing: dict[str, _Failure] = {}
        self._hurried = asyncio.Event()  # the pauses of now are over; those to come have another

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with each step that failed and did not succeed since."""
        return tuple(failure.problem for failure in self._failing.values())

    def again_at(self, begun: float) -> float | None:
        """The (monotonic) time at which the first pause ends that went on when this round was `begun`, or None.

        It may be past: what was not due yet when its turn came is not done because its pause ended soon after.
        """
        return min((each.again_at for each in self._failing.values() if each.again_at > begun), default=None)

    def failed(self, name: str) -> bool:
        return name in self._failing

    def reason(self, name: str) -> str:
        """Why the last attempt failed, in a sentence; empty where it did not."""
        return self._failing[name].problem.message if name in self._failing else ""

    def pause(self, name: str) -> float:
        """The seconds before the step's next attempt."""
        failure = self._failing.get(name)
        return max(0.0, failure.again_at - self._clock.now()) if failure else 0.0

    def hurry(self) -> None:
        """End all pauses: somebody wants it tried now."""
        now = self._clock.now()
        self._failing = {
            name: _Failure(each.problem, each.attempts, min(each.again_at, now)) for name, each in self._failing.items()
        }
        self._hurried.set()
        self._hurried = asyncio.Event()

    def forget(self, name: str) -> None:
        """There is no such step any more, or it succeeded."""
        if self._failing.pop(name, None) is not None:
            self._on_change()

    async def take(self, name: str, work: Callable[[], Awaitable[object]]) -> bool:
        """Do the work unless it failed lately; whether it is done."""
        if self._failing and self.pause(name):
            return False
        try:
            await work()
        except Exception as failed:  # it is a problem of this step
            return self._fail(name, failed)
        return not self._failing or self._succeed(name)

    def do(self, name: str, work: Callable[[], object]) -> bool:
        """`take` for work that does not wait."""
        if self._failing and self.pause(name):
            return False
        try:
            work()
        except Exception as failed:  # it is a problem of this step
            return self._fail(name, failed)
        return not self._failing or self._succeed(name)

    async def repeat(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        while True:
            raise_if_cancelled()
            if not await self.take(name, work):
                await self._rest(name)

    async def keep(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        """Do work that goes on and on until it ends by itself; what has run for a while counts as a success."""
        while True:
            cancel = self._clock.call_later(self._steady, functools.partial(self._succeed, name))
            try:
                if await self.take(name, work):
                    return
            finally:
                cancel()
            await self._rest(name)

    async def _rest(self, name: str) -> None:
        """Wait until the step's pause is over, or ended by `hurry`."""
        with contextlib.suppress(TimeoutError):
            async with self._clock.timeout(self.pause(name)):
                await self._hurried.wait()

    def _fail(self, name: str, failed: Exception) -> Literal[False]:
        """What went wrong is a problem, besides what ends the agent or cancels the step."""
        if broken_in(failed) is not None:
            raise failed
        raise_if_cancelled()
        before = self._failing.get(name)
        attempts = before.attempts + 1 if before else 0
        asked = failed.wait if isinstance(failed, ApiServerError) else 0.0
        again_at = self._clock.now() + max(self._backoff.pause(attempts), asked)
        problem = problem_of(name, failed)
        self._failing[name] = _Failure(problem, attempts, again_at)
        log.debug("step failed", step=name, attempt=attempts + 1, exc_info=failed)
        if before is None or before.problem != problem:
            log.error("step failed; trying again", step=name, reason=_reason(failed), hint=problem.hint)
            self._on_change()
        return False

    def _succeed(self, name: str) -> Literal[True]:
        if name in self._failing:
            log.info("step succeeds again", step=name)
            self.forget(name)
        return True


def problem_of(name: str, failed: Exception) -> Problem:
    return error("vdev", f"{name} failed: {_reason(failed)}", _hint(failed))


def broken_in(failed: Exception) -> InvariantBroken | None:
    """The broken invariant that it is, or that it holds as a group."""
    if isinstance(failed, ExceptionGroup):
        return next((found for each in failed.exceptions if (found := broken_in(each)) is not None), None)
    return failed if isinstance(failed, InvariantBroken) else None


def _reason(failed: Exception) -> str:
    """What went wrong, in the words of the exception; its type where these are not meant for people."""
    if isinstance(failed, ExceptionGroup):
        return "; ".join(_reason(each) for each in failed.exceptions if isinstance(each, Exception))
    text = str(failed)
    if isinstance(failed, VdevError):
        return text
    if isinstance(failed, OSError) and failed.strerror:
        return f"{failed.strerror}: {failed.filename}" if failed.filename else failed.strerror
    return f"{type(failed).__name__}: {text}" if text else type(failed).__name__


def _hint(failed: Exception) -> str:
    return _RETRIED if isinstance(failed, VdevError | OSError) else f"{_RETRIED}; {_REPORT}"


@dataclass(slots=True)
class DueWork:
    """What a turn has to do before it decides; what fails stays due."""

    reload: bool = False
    scan: set[str] = field(default_factory=set)  # entries whose devices are looked for again
    faults: bool = True  # the files that faults come from or wait for


class Due:
    """The work that is due, and whether somebody wants to know who holds what."""

    def __init__(self, timing: Timing) -> None:
        self.work = DueWork()
        self.asked = asyncio.Event()
        self._intervals, self._clock = timing
        self._wake = asyncio.Event()
        self._timers: list[Callable[[], object]] = []  # each cancels one
        self._asking = False

    def mark(self, *, reload: bool = False, scan: frozenset[str] = frozenset(), faults: bool = False) -> None:
        """There is something to do; without arguments, to decide anew."""
        self.work.faults |= faults
        self.work.reload |= reload
        self.work.scan |= scan
        self._wake.set()

    @property
    def is_marked(self) -> bool:
        """Whether a turn is due that has not begun."""
        return self._wake.is_set()

    def take(self) -> DueWork:
        """The work that is due, which then is no more."""
        work, self.work = self.work, DueWork(faults=False)
        return work

    async def wait(self) -> None:
        await self._wake.wait()
        self._wake.clear()

    def ask_holders(self) -> None:
        self._asking = False
        self.asked.set()

    def ask_holders_soon(self) -> None:
        """Ask who holds what once the pods of this moment's requests are admitted: one question for all of them."""
        if not self._asking:
            self._asking = True
            self._clock.call_later(self._intervals.admission, self.ask_holders)

    def wake_at(self, decide: float | None, retry: float | None) -> None:
        """At the (monotonic) time `decide` ask who holds what, since something may have become free, and take a turn.

        At `retry` take a turn, since the pause of something that failed is over.
        """
        for cancel in self._timers:
            cancel()
        times: tuple[tuple[float | None, Callable[[], None]], ...] = ((decide, self._decide), (retry, self.mark))
        self._timers = [self._clock.call_at(at, then) for at, then in times if at is not None]

    def _decide(self) -> None:
        self.asked.set()
        self.mark()  # the kubelet may take its time to answer


class ToldProblems:
    """What is told already."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._counted: tuple[Problem, ...] | None = None
        self._logged: frozenset[Problem] = frozenset()  # those of the last configuration

    def count(self, problems: tuple[Problem, ...]) -> None:
        if problems != self._counted:
            self._counted = problems
            for severity in ("error", "warning"):
                self._metrics.problems.labels(severity).set(sum(problem.severity == severity for problem in problems))

    def log(self, problems: tuple[Problem, ...], *, but: Collection[Problem]) -> None:
        """Tell of those that the last configuration did not have, but for some that have an event of their own."""
        before, self._logged = self._logged, frozenset(problems)
        for problem in problems:
            if problem not in before and problem not in but:
                tell("problem in the configuration", problem)


def tell(event: str, problem: Problem) -> None:
    write = log.error if problem.is_error else log.warning
    write(event, where=problem.where, problem=problem.message, hint=problem.hint)
