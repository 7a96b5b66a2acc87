"""An event loop on virtual time, and processes in it that can be killed.

Time stands still while anything is runnable, and then jumps to the next timer. Calls that run in threads in production
run in this thread after a random delay. Connections are pairs of sockets. Each task and callback belongs to a `Process`
by its context. After the death of the process none of them runs again, not even its `finally`.
"""

import asyncio
import contextvars
import errno
import functools
import itertools
import random
import selectors
import socket
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

from vdev.aio import clock

START = 1_000.0  # seconds since the machine's boot
WALL = 1_767_225_600.0  # the wall time at the machine's boot: 2026-01-01

PROCESS: contextvars.ContextVar["Process | None"] = contextvars.ContextVar("process", default=None)
"""The running simulated process; None for the world itself and for its kubelet."""


class StandsStillError(Exception):
    """All tasks wait, and nothing can wake them."""


class Process:
    """A simulated process. `killed` are called at its SIGKILL, `steps` counts the callbacks scheduled in it."""

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
        return self.context.run(action, *args, **named)


class _Files(selectors.EpollSelector):
    """Polls files without waiting, and advances the time instead."""

    def __init__(self, passes: Callable[[float], None]) -> None:
        super().__init__()
        self._passes = passes

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """The ready descriptors in order; the kernel's order depends on addresses in memory."""
        ready = sorted(super().select(0), key=lambda each: each[0].fd)
        if not ready:
            if timeout is None:
                raise StandsStillError
            self._passes(timeout)
        return ready


class _Task(asyncio.Task[Any]):
    """A task whose hash is its number and not its address, so that the order of sets repeats."""

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


class WorldLoop(asyncio.SelectorEventLoop):
    """The loop of a world. `dice` draws the duration of calls in threads."""

    def __init__(self, dice: random.Random) -> None:
        self.now = START
        self.listening: dict[int, _Listener] = {}  # by port
        super().__init__(_Files(self._pass))
        self._dice = dice
        self.tasks = itertools.count()  # numbers of tasks
        self._graveyard: list[Any] = []  # kept, because a coroutine that is collected would run its `finally`
        self.on_death: Callable[[Process], None] = self.kill
        self.sluggish = 0.0  # the probability that a call in a thread takes long
        self.set_task_factory(_task)

    def time(self) -> float:
        return self.now

    def _pass(self, seconds: float) -> None:
        self.now += seconds

    # --- processes ----------------------------------------------------------------------------------------------------

    def call_soon(  # type: ignore[override]  # without its type variables
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = super().call_soon(callback, *args, context=context)
        process = _process_of(handle)
        if process is not None and process.dead:
            handle.cancel()
        elif process is not None:
            process.steps += 1
            if process.steps == process.dies_after:
                super().call_soon(self.on_death, process, context=contextvars.Context())
        return handle

    def call_at(  # type: ignore[override]  # without its type variables
        self, when: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        timer = super().call_at(when, callback, *args, context=context)
        process = _process_of(timer)
        if process is not None and process.dead:
            timer.cancel()
        return timer

    def call_soon_threadsafe(  # type: ignore[override]  # without its type variables
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def kill(self, process: Process) -> None:
        """End a process as SIGKILL does."""
        if process.dead:
            return
        process.dead = True
        handles: list[Any] = [*self._ready, *self._scheduled]  # type: ignore[attr-defined]  # asyncio's own
        for handle in handles:
            if _process_of(handle) is process:
                self._graveyard.append((handle._callback, handle._args))
                handle.cancel()
        self._graveyard += [each for each in asyncio.all_tasks(self) if getattr(each, "process", None) is process]
        for action in process.killed:
            action()

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]  # without its type variables
        """Set the handler of a signal in the running process."""
        process = PROCESS.get()
        if process is not None:
            process.signals[sig] = lambda: callback(*args)

    def remove_signal_handler(self, sig: int) -> bool:
        process = PROCESS.get()
        return process is not None and process.signals.pop(sig, None) is not None

    # --- TCP ----------------------------------------------------------------------------------------------------------

    async def create_connection(  # type: ignore[override]  # for addresses alone
        self, protocol_factory: Callable[[], Any], host: str = "", port: int = 0, **_options: Any
    ) -> tuple[Any, Any]:
        """Connect to a port of this loop. Raises ConnectionRefusedError."""
        listener = self.listening.get(port)
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed ({host!r}, {port})")
        mine, theirs = socket.socketpair()
        for each in (mine, theirs):
            each.setblocking(False)
        process = PROCESS.get()
        if process is not None:
            process.killed.append(functools.partial(self._hang_up, mine))
        listener.accept(theirs)
        return await super().create_connection(protocol_factory, sock=mine)

    async def create_server(  # type: ignore[override]  # for addresses alone
        self, protocol_factory: Callable[[], Any], host: str = "", port: int = 0, **_options: Any
    ) -> "_Listener":
        """Listen at a port of this loop."""
        made = self.listening[port] = _Listener(self, protocol_factory, host, port)
        return made

    def _hang_up(self, end: socket.socket) -> None:
        """Close a connection of a dead process, without notifying its protocol."""
        number = end.fileno()
        if number >= 0:
            loop: Any = self  # asyncio would still use the number for this transport when the next file gets it
            loop._remove_reader(number)
            loop._remove_writer(number)
            loop._transports.pop(number, None)
            end.close()

    # --- calls in threads ---------------------------------------------------------------------------------------------

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":  # type: ignore[override]  # without its type variables
        """Call a function in this thread after a delay, or deliver its result after a delay."""
        del executor
        answer: asyncio.Future[Any] = asyncio.Future(loop=self)
        chance = self._dice.random()
        seconds = self._dice.random() ** 2 if chance < self.sluggish else chance * 0.002
        if self._dice.random() < 0.5:  # the call begins late, or its result comes late
            self.call_later(seconds, self._call, answer, func, args, 0.0)
        else:
            self.call_soon(self._call, answer, func, args, seconds)
        return answer

    def _call(
        self, answer: "asyncio.Future[Any]", func: Callable[..., Any], args: tuple[Any, ...], told_after: float
    ) -> None:
        try:
            result, error = func(*args), None
        except Exception as failed:
            result, error = None, failed
        self.call_later(told_after, _settle, answer, result, error)


class _Listener:
    def __init__(self, loop: WorldLoop, factory: Callable[[], Any], host: str, port: int) -> None:
        self._loop = loop
        self._factory = factory
        self._port = port
        self._context = contextvars.copy_context()
        self.sockets = (SimpleNamespace(getsockname=lambda: (host, port), fileno=lambda: 0),)

    async def start_serving(self) -> None:
        pass

    def accept(self, end: socket.socket) -> None:
        connected = self._loop.connect_accepted_socket(self._factory, end)
        self._loop.create_task(connected, context=self._context.copy())

    def close(self) -> None:
        self._loop.listening.pop(self._port, None)

    async def wait_closed(self) -> None:
        pass


def _process_of(handle: asyncio.Handle) -> Process | None:
    return handle._context.get(PROCESS)  # type: ignore[attr-defined, no-any-return]  # asyncio's own


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
    """The agent's clock and timeouts, which are the loop's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now(self) -> float:
        return self._loop.time()

    def wall(self) -> float:
        return WALL + self._loop.time()

    def call_at(self, moment: float, action: Callable[[], object]) -> Callable[[], object]:
        return self._loop.call_at(max(moment, self._loop.time()), action).cancel
