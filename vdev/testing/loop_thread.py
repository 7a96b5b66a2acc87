"""An event loop in a thread of its own: what runs there goes on while a test blocks, or has a loop of its own."""

import asyncio
import concurrent.futures
import functools
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

from ..errors import VdevError

__tracebackhide__ = True  # pytest shows the line of the test, not how its call reached the thread
_P = ParamSpec("_P")
_T = TypeVar("_T")


class LoopThread:
    """The thread, as a context manager."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="vdev's event loop", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._up.wait()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def do(self, work: Coroutine[Any, Any, _T]) -> _T:
        """The result of the work, which runs in the thread. Where an event loop runs, something to await for it."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a condition only looks: it cannot call what takes time")
        assert self._loop is not None
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        return cast("_T", asyncio.wrap_future(future)) if _a_loop_runs() else _result(future)

    def wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        """The result of the work, which runs in the thread; blocks wherever it is called."""
        assert self._loop is not None
        return _result(asyncio.run_coroutine_threadsafe(work, self._loop))

    def ask(self, look: Callable[[], _T]) -> _T:
        """The result of a function that does not wait for anything, called in the thread as long as there is one."""
        if threading.current_thread() is self._thread or not self._thread.is_alive():
            return look()

        async def ask() -> _T:
            return look()

        return self.wait(ask())

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            self._loop.call_soon(self._up.set)
            self._loop.run_forever()


def done(method: Callable[Concatenate[Any, _P], Coroutine[Any, Any, _T]]) -> Callable[Concatenate[Any, _P], _T]:
    """A method that takes time, of what somebody has in such a thread: done there, by `LoopThread.do`."""

    @functools.wraps(method)
    def do(self: Any, /, *args: _P.args, **named: _P.kwargs) -> _T:
        return cast("_T", self._thread.do(method(self._inner, *args, **named)))

    return do


def _a_loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _result(future: concurrent.futures.Future[_T]) -> _T:
    try:
        error = future.exception()
    except BaseException:  # Ctrl-C too: what nobody waits for any more shall not go on
        future.cancel()
        raise
    if isinstance(error, (VdevError, TimeoutError)):
        raise error.with_traceback(None) from None  # its text says all; where vdev raised it is of no use in a test
    if error is not None:
        raise error
    return future.result()
