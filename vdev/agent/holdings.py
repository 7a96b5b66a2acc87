"""Who holds which device, as far as the kubelet tells: read at changes and at a slow pace, with its rate limit
respected.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import structlog

from ..core.intervals import PRODUCTION, Intervals
from ..core.inventory import Resource
from ..core.retain import Holdings, Key
from ..plugin import podresources
from .desk import FrontDesk

log = structlog.get_logger(__name__)

_ATTEMPTS = 5


class HolderTracker:
    """The last answer of the PodResources API; `refresh` asks again. `is_down` makes it answer nobody, on demand.

    A kubelet that has just started answers before it knows its pods. So for `intervals.kubelet_grace` seconds, after
    its `generation` changed or it could not be asked, its answers only add to who was known to hold what.
    """

    def __init__(
        self,
        socket: Path,
        desk: FrontDesk,
        *,
        generation: Callable[[], int],
        intervals: Intervals = PRODUCTION,
        is_down: Callable[[], bool] = lambda: False,
    ) -> None:
        self.holders: Mapping[Key, str] | None = None
        self._socket = socket
        self._desk = desk
        self._generation = generation
        self._intervals = intervals
        self._is_down = is_down
        self._read_at = float("-inf")
        self._answered_at = float("-inf")
        self._known: bool | None = None
        self._last: Mapping[Key, str] = {}  # the last answer that there was
        self._seen = generation()
        self._doubt_until = float("-inf")

    async def refresh(self) -> bool:
        """Ask the kubelet; True when the answer differs from the last one."""
        for _ in range(_ATTEMPTS):
            asked = time.monotonic()
            try:
                holders = None if self._is_down() else await podresources.holders(self._socket)
            except podresources.RateLimited:
                await asyncio.sleep(self._intervals.retry_rate_limited)
                continue
            holders = self._believed(holders, asked)
            changed = holders != self.holders
            self.holders, self._read_at = holders, asked
            self._say_whether_known(holders is not None)
            return changed
        log.warning("pod resources not read; the kubelet's rate limit is exhausted", socket=str(self._socket))
        return False

    def _believed(self, answer: Mapping[Key, str] | None, now: float) -> Mapping[Key, str] | None:
        seen, self._seen = self._seen, self._generation()
        restarted = seen != self._seen
        if self._last and (restarted or self._known is False):
            self._doubt_until = now + self._intervals.kubelet_grace
        if answer is None:
            return None
        self._last = {**self._last, **answer} if now < self._doubt_until else answer
        return self._last

    def granted(self) -> list[Key]:
        """The slots of Allocates since the last call of this; call it once per answer."""
        since, self._answered_at = self._answered_at, time.monotonic()
        granted = [key for key, moment in self._desk.allocated_at.items() if moment > since]
        if self.holders is not None:  # what was granted earlier and nobody holds by now need not be remembered
            self._desk.forget(moment_before=since, unless=self.holders)
        return granted

    def _say_whether_known(self, known: bool) -> None:  # noqa: FBT001 - the only argument
        if known is not self._known:
            self._known = known
            if known:
                log.info("pod resources are readable", socket=str(self._socket))
            else:
                log.warning(
                    "pod resources are not readable; removed devices stay listed for ten minutes",
                    socket=str(self._socket),
                )

    def snapshot(self, resources: Sequence[Resource]) -> Holdings:
        """What is known now, with the requests in flight."""
        return Holdings(
            holders=self.holders,
            read_at=self._read_at,
            in_flight=self._desk.in_flight(resources),
            allocated=dict(self._desk.allocated_at),
        )
