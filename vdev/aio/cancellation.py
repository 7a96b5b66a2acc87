"""Ending work: cancellations that somebody on the way has lost, and an end that leaves the task as it is."""

import asyncio
from types import TracebackType


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
