"""The health of published devices, and the streams that tell a kubelet of it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass

from ..aio.clock import Timing
from ..faults.engine import Engine

_TIMES = 3  # a message may get lost, or be late


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHealth:
    """The health of a published device; `healthy` None: it is not known. `message` says more, for people."""

    pool: str
    device: str
    healthy: bool | None = True
    message: str = ""


Health = Sequence[DeviceHealth]
Encode = Callable[[Health, int, int], bytes]
"""From devices, the time in seconds since 1970, and the time-out in seconds, to a message of one version."""


class HealthStreams:
    """The open streams, and what they say."""

    def __init__(self, driver: str, faults: Engine, timing: Timing) -> None:
        self.open = 0
        self._driver = driver
        self._faults = faults
        self._every = timing.intervals.repeat_health
        self._clock = timing.clock
        self._devices: Health = ()
        self._news: dict[asyncio.Event, None] = {}  # of the streams, the oldest first
        self._closing = False

    def update(self, devices: Health) -> None:
        """Say this from now on; every stream gets it at once when it is something else."""
        if tuple(devices) != tuple(self._devices):
            self._devices = tuple(devices)
            self.poke()

    def poke(self) -> None:
        """Say it again, and ask the fault rules again."""
        for event in self._news:
            event.set()

    def open_again(self) -> None:
        self._closing = False

    def close(self) -> None:
        """End all streams, until `open_again`."""
        self._closing = True
        self.poke()

    async def watch(self, encode: Encode) -> AsyncGenerator[bytes, None]:
        """One stream, until it is closed or the kubelet goes."""
        news = asyncio.Event()
        self._news[news] = None
        self.open += 1
        try:
            while not self._closing:
                fault = self._faults.on_health(self._driver)
                if fault == "ended":
                    return
                news.clear()
                if fault is None:
                    yield encode(self._devices, int(self._clock.wall()), int(_TIMES * self._every))
                cancel = self._clock.call_later(self._every, news.set)
                try:
                    await news.wait()
                finally:
                    cancel()
        finally:
            self._news.pop(news, None)
            self.open -= 1
