"""An event loop in a separate thread, which runs while a test blocks or runs its own loop."""

import asyncio
import concurrent.futures
import functools
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

from ..errors import VdevError

__tracebackhide__ = True  # pytest shows the line of the test, not the lines of this module
_P = ParamSpec("_P")
_T = TypeVar("_T")


class LoopThread:
    """The thread, as a context manager."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="vdev's event loop", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def do(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine in the thread, and block until it is done. If an event loop runs, return an awaitable."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a condition of wait_until cannot call methods that take time")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return _result(future)
        return cast("_T", asyncio.wrap_future(future))

    def wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine in the thread, and block until it is done, even if an event loop runs."""
        return _result(asyncio.run_coroutine_threadsafe(work, self._loop))

    def ask(self, look: Callable[[], _T]) -> _T:
        """Call a function that does not block in the thread, or here if the thread has ended."""
        if threading.current_thread() is self._thread or not self._thread.is_alive():
            return look()

        async def ask() -> _T:
            return look()

        return self.wait(ask())

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()


def in_thread(method: Callable[Concatenate[Any, _P], Coroutine[Any, Any, _T]]) -> Callable[Concatenate[Any, _P], _T]:
    """An async method of `self._inner`, run by `LoopThread.do`."""

    @functools.wraps(method)
    def do(self: Any, /, *args: _P.args, **named: _P.kwargs) -> _T:
        return cast("_T", self._thread.do(method(self._inner, *args, **named)))

    return do


def _result(future: concurrent.futures.Future[_T]) -> _T:
    try:
        error = future.exception()
    except BaseException:  # such as Ctrl-C
        future.cancel()
        raise
    if isinstance(error, (VdevError, TimeoutError)):
        raise error.with_traceback(None) from None  # a test needs its text, not a traceback inside of vdev
    if error is not None:
        raise error
    return future.result()
