"""Cancellations that somebody on the way has lost."""

import asyncio


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
