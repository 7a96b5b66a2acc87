"""What the parts of one kubelet process work with: its time, connections, record, and tasks that end with it."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from .journal import Journal
from .kubelet_clock import Clock, Timings


@dataclass(frozen=True, slots=True)
class Life:
    """One life of the process. `spawn` runs a task until it is done or the process ends."""

    clock: Clock
    timings: Timings
    journal: Journal
    spawn: Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"]

    async def pause(self, seconds: float) -> None:
        """Let time pass by the kubelet's clock."""
        over = asyncio.Event()
        self.clock.after(seconds, over.set)
        await over.wait()
