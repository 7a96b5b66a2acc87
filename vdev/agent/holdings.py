"""Who holds which device, as far as the kubelet tells: read at changes and at a slow pace, with its rate limit
respected.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import structlog

from ..core.inventory import Resource
from ..core.retain import Holdings, Key
from ..plugin import podresources
from .desk import FrontDesk

log = structlog.get_logger(__name__)

SLOW = 30.0  # seconds between readings when nothing happens
_RATE_LIMIT_PAUSE = 0.2  # seconds; the kubelet refills 100 calls a second
_ATTEMPTS = 5


class HolderTracker:
    """The last answer of the PodResources API; `refresh` asks again. `is_down` makes it answer nobody, on demand."""

    def __init__(self, socket: Path, desk: FrontDesk, *, is_down: Callable[[], bool] = lambda: False) -> None:
        self.holders: Mapping[Key, str] | None = None
        self._socket = socket
        self._desk = desk
        self._is_down = is_down
        self._read_at = float("-inf")
        self._known: bool | None = None

    async def refresh(self) -> bool:
        """Ask the kubelet; True when the answer differs from the last one."""
        for _ in range(_ATTEMPTS):
            asked = time.monotonic()
            try:
                holders = None if self._is_down() else await podresources.holders(self._socket)
            except podresources.RateLimited:
                await asyncio.sleep(_RATE_LIMIT_PAUSE)
                continue
            changed = holders != self.holders
            self.holders, self._read_at = holders, asked
            self._say_whether_known(holders is not None)
            return changed
        log.warning("pod resources not read; the kubelet's rate limit is exhausted", socket=str(self._socket))
        return False

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
