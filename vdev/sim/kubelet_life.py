"""What the parts of one kubelet process work with: its time, connections, record, and tasks that end with it."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from ..aio.clock import Clock
from .journal import Journal

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Timings:
    """How long the kubelet waits, in seconds. All but `slow`, `bound` and `retry` are the real kubelet's; `dial`,
    `pre_start`, `get_info`, `notify` and `prepare` (Unprepare too) end a call, `slow` reports one that takes longer,
    `bound` ends one for which the real kubelet would wait forever.

    `retry` passes before a container is tried again that could not be started, and a pod whose claims could not be
    prepared or unprepared. The real kubelet waits so long (or half as long again) for a container and after a failed
    Unprepare; after a failed Prepare it waits until it looks at all pods anyway, a minute to a minute and a half.

    `boot`, `lead` and `sources` are a start where there was one before, as measured on 1.36.2: PodResources answers
    `boot` after it (about), plugins can register `lead` later, and `sources` after that the kubelet hears of its pods;
    until then it names none and admits none.

    `look` passes between looks for sockets of DRA drivers below `plugins_registry`.
    """

    dial: float = 10.0
    pre_start: float = 30.0
    tick: float = 10.0
    boot: float = 1.0
    lead: float = 0.06
    sources: float = 0.9
    slow: float = 1.0
    bound: float = 120.0
    get_info: float = 1.0
    notify: float = 5.0
    prepare: float = 45.0
    retry: float = 10.0
    look: float = 1.0


class Life:
    """One life of the process, which begins with `alive = True`: its time, and what runs until it ends."""

    def __init__(self, clock: Clock, timings: Timings, journal: Journal) -> None:
        self.clock = clock
        self.timings = timings
        self.journal = journal
        self.alive = False
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, _T], name: str) -> asyncio.Task[_T]:
        """Run a task until it is done or the process ends, which raises what it failed with."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def later(self, seconds: float, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Run a task in some time, unless the process has ended by then."""

        def due() -> None:
            if self.alive:
                self.spawn(work(), name)

        self.clock.call_later(seconds, due)

    def every(self, period: float, action: Callable[[], None]) -> None:
        """Call an action each so many seconds; once for all of the time over which a clock leaps."""

        def due() -> None:
            if self.alive:
                self.clock.call_later(period, due)
                action()

        self.clock.call_later(period, due)

    def cancel(self) -> None:
        """Cancel all tasks but the one that calls this."""
        self.alive = False
        for task in self._others():
            if not task.cancelling():
                task.cancel()

    async def end(self) -> None:
        """Cancel all tasks but the one that calls this, and wait for them. Raises what one of them failed with."""
        self.cancel()
        for result in await asyncio.gather(*self._others(), return_exceptions=True):
            if isinstance(result, Exception):
                raise result

    def _others(self) -> set[asyncio.Task[Any]]:
        return self._tasks - {asyncio.current_task()}

    def _done(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled() or task.exception() is None:
            self._tasks.discard(task)
