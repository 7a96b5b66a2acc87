"""Work that is long for many devices and not worth a thread for few."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

MANY = 2000  # devices, or anything else of which a thousand take a millisecond or two


async def beside(
    many: int, work: Callable[_Arguments, _Result], *args: _Arguments.args, **kwargs: _Arguments.kwargs
) -> _Result:
    """The result of work on so `many` things, done in a thread where it would keep the loop for long."""
    if many >= MANY:
        return await asyncio.to_thread(work, *args, **kwargs)
    return work(*args, **kwargs)
