"""How often something may be done: so many times at once, then one after the other."""

from .clock import Clock


class Pace:
    """`burst` times at once; each is made up for after so many seconds (`every`)."""

    def __init__(self, clock: Clock, *, burst: int, every: float) -> None:
        self._clock = clock
        self._burst = burst
        self._every = every
        self._left = float(burst)
        self._at = clock.now()

    async def ready(self) -> None:
        while (missing := 1.0 - self._now()) > 0:
            await self._clock.sleep(missing * self._every)

    def spend(self) -> None:
        self._left = self._now() - 1.0

    def _now(self) -> float:
        now = self._clock.now()
        self._left, self._at = min(self._burst, self._left + (now - self._at) / self._every), now
        return self._left
