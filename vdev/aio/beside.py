"""Work that is long for many devices and not worth a thread for few."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

MANY = 2000  # devices, or anything else of which a thousand take a millisecond or two
_BEHIND = 5  # by how much nicer than the loop


async def beside(
    many: int, work: Callable[_Arguments, _Result], *args: _Arguments.args, **kwargs: _Arguments.kwargs
) -> _Result:
    """The result of work on so `many` things, done in a thread where it would keep the loop for long."""
    if many >= MANY:
        return await asyncio.to_thread(work, *args, **kwargs)
    return work(*args, **kwargs)


def workers() -> ThreadPoolExecutor:
    """Threads for such work that let the loop, and gRPC's threads, have the processor at once.

    Linux lets a thread that is woken wait for the one that runs on its processor, for 4 ms where the timer ticks 250
    times a second, even while another processor is idle. A call of the kubelet wakes ten threads, one after the other.
    """
    return ThreadPoolExecutor(thread_name_prefix="asyncio", initializer=_step_back)


def _step_back() -> None:
    with contextlib.suppress(OSError):  # where a sandbox forbids it
        os.nice(_BEHIND)  # of this thread alone
