"""An event loop whose time is not the machine's, and processes in it that can be killed.

Time stands still while anything can be done, and then jumps to the next timer: an hour in which nothing happens takes
none. Calls that go to threads elsewhere are made here, in this thread, some drawn moments later. What runs belongs to a
`Process`, by its context; that of a dead process is never run again, not even its `finally`.
"""

import asyncio
import contextvars
import functools
import heapq
import itertools
import random
from collections.abc import Callable, Coroutine
from typing import Any

from ...aio import clock
from ...sim import SystemClock
from .rounds import Handle, Rounds

START = 1_000.0  # seconds that this machine has been up
WALL = 1_767_225_600.0  # the wall's time at the machine's start: 2026-01-01

PROCESS: contextvars.ContextVar["Process | None"] = contextvars.ContextVar("process", default=None)
"""The simulated process that runs; None for the world itself."""


class Process:
    """A simulated process. `killed` are told of its SIGKILL, `steps` counts what was scheduled in it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.steps = 0
        self.dies_after: int | None = None  # steps
        self.signals: dict[int, Callable[[], object]] = {}
        self.killed: list[Callable[[], object]] = []
        self.context = contextvars.copy_context()
        self.context.run(PROCESS.set, self)

    def call(self, action: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Call something in it."""
        return self.context.run(action, *args, **named)


class _Task(asyncio.Task[Any]):
    """A task whose place in a set follows from when it was made, and not from where in memory it is."""

    def __init__(
        self, work: Coroutine[Any, Any, Any], context: contextvars.Context | None, *, loop: "WorldLoop", **named: Any
    ) -> None:
        self._number = next(loop.tasks)
        self.process = PROCESS.get() if context is None else context.get(PROCESS)
        super().__init__(work, loop=loop, context=context, **named)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class WorldLoop(Rounds):
    """The loop of a world. `dice` draw how long the machine takes for what is done in threads."""

    def __init__(self, dice: random.Random) -> None:
        self.readers: dict[int, Callable[[], Any]] = {}
        super().__init__(START)
        self._dice = dice
        self.tasks = itertools.count()  # numbers of tasks
        self._graveyard: list[Any] = []  # kept: what is thrown away would run its `finally`
        self.on_death: Callable[[Process], None] = self.kill
        self.sluggish = 0.0  # how likely a call in a thread takes long
        self.set_task_factory(_task)

    # --- processes ----------------------------------------------------------------------------------------------------

    def call_soon(  # type: ignore[override]  # without its type variables
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        """Call it in the next round, unless its process is dead."""
        if context is None:
            context = contextvars.copy_context()
        process = context.get(PROCESS)
        if process is not None:
            if process.dead:
                return Handle((None, None, context))
            process.steps += 1
            if process.steps == process.dies_after:
                self.soon(self.on_death, (process,), contextvars.Context())
        handle = Handle((callback, args, context))
        self._due.append(handle)
        return handle

    def call_at(  # type: ignore[override]  # without its type variables
        self, when: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        """Call it at that time, unless its process is dead by now or then."""
        return self._timer(when, callback, args, contextvars.copy_context() if context is None else context)

    def call_later(  # type: ignore[override]  # without its type variables
        self, delay: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        """Call it after so many seconds, unless its process is dead by now or then."""
        return self._timer(self.now + delay, callback, args, contextvars.copy_context() if context is None else context)

    def _timer(
        self, when: float, callback: Callable[..., Any], args: tuple[Any, ...], context: contextvars.Context
    ) -> Handle:
        timer = Handle((when, next(self._numbers), callback, args, context))
        heapq.heappush(self._timers, timer)
        process = context.get(PROCESS)
        if process is not None and process.dead:
            timer.cancel()
        return timer

    def call_soon_threadsafe(  # type: ignore[override]  # without its type variables
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        """The same: there are no other threads."""
        return self.call_soon(callback, *args, context=context)

    def kill(self, process: Process) -> None:
        """End a process as SIGKILL does."""
        if process.dead:
            return
        process.dead = True
        for handle in self.handles:
            if handle[-1].get(PROCESS) is process:
                self._graveyard.append((*handle,))
                handle.cancel()
        self._graveyard += [each for each in asyncio.all_tasks(self) if getattr(each, "process", None) is process]
        for action in process.killed:
            action()

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]  # without its type variables
        """Call it when there is something to read."""
        self.readers[fd] = functools.partial(callback, *args)
        super().add_reader(fd, callback, *args)

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]  # without its type variables
        """Let the process of this moment act on a signal."""
        process = PROCESS.get()
        if process is not None:
            process.signals[sig] = lambda: callback(*args)

    def remove_signal_handler(self, sig: int) -> bool:
        """No longer."""
        process = PROCESS.get()
        return process is not None and process.signals.pop(sig, None) is not None

    # --- what others do in threads ------------------------------------------------------------------------------------

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":  # type: ignore[override]  # without its type variables
        """Call it here, some time from now, and tell its result some time after that."""
        del executor
        answer: asyncio.Future[Any] = asyncio.Future(loop=self)
        draw = self._dice.random
        chance = draw()
        seconds = draw() ** 2 if chance < self.sluggish else chance * 0.002
        context = contextvars.copy_context()
        if draw() < 0.5:
            self._timer(self.now + seconds, self._call, (answer, func, args, 0.0), context)
        else:
            self.call_soon(self._call, answer, func, args, seconds, context=context)
        return answer

    def _call(
        self, answer: "asyncio.Future[Any]", func: Callable[..., Any], args: tuple[Any, ...], told_after: float
    ) -> None:
        try:
            result, error = func(*args), None
        except Exception as failed:
            result, error = None, failed
        if told_after:
            self._timer(self.now + told_after, _settle, (answer, result, error), contextvars.copy_context())
        else:
            _settle(answer, result, error)


def _settle(answer: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)


def _task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> "asyncio.Task[Any]":
    assert isinstance(loop, WorldLoop)
    return _Task(work, options.get("context"), loop=loop)


class WorldClock(clock.SystemClock):
    """The agent's clock, which is the loop's; so are time-outs."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now(self) -> float:
        """Seconds of the loop."""
        return self._loop.time()

    def wall(self) -> float:
        """Seconds since 1970, in the world."""
        return WALL + self._loop.time()

    def call_at(self, moment: float, action: Callable[[], object]) -> Callable[[], object]:
        """Call `action` then; returns what cancels that."""
        return self._loop.call_at(max(moment, self._loop.time()), action).cancel


class KubeletClock(SystemClock):
    """The embedded kubelet's clock, which is the loop's as well; its timers are anyway."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now(self) -> float:
        """Seconds of the loop."""
        return self._loop.time()
