"""Messages to the service manager: when the kubelet may start, that the loop is alive, and a status line.

With systemd units that start the agent before the kubelet (see deploy/systemd), the agent decides when the kubelet
starts. One task sends all messages, after each turn and at regular intervals.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import structlog

from ..aio.clock import PRODUCTION_TIMING, Timing
from ..model.device import RawDevice
from ..observe.service_manager import ServiceManager
from ..planning.resources import Inventory
from .retry import Retrier

log = structlog.get_logger(__name__)

_SIGNS = 3  # messages in the time after which the watchdog takes the process for dead
_SHOWN = 8  # ids in a line before the rest is counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The state of the agent at a moment."""

    served: bool  # every resource has a server with its list
    kubelet: bool = False  # a kubelet runs and has opened a stream
    absent: tuple[str, ...] = ()  # ids of hardware that was listed before, and is missing or unhealthy now
    waits_for: str = ""  # why this process cannot serve at all
    stalled: str = ""  # why the loop does not turn
    summary: str = ""  # a line for people


def absent(listed: Inventory, found: Iterable[RawDevice], unhealthy: Collection[str] = ()) -> tuple[str, ...]:
    """Return the ids of hardware that an earlier process listed and that is missing or unhealthy now, in order.

    Hardware is compared, not partitions or shares: a new layout, sharing or name is no reason to wait. `unhealthy` are
    ids of found devices that do not work.
    """
    healthy = {raw.id for raw in found if raw.health.healthy}.difference(unhealthy)
    return tuple(sorted(listed.raws - healthy))


def may_start(outlook: Outlook, *, waited: float, patience: float) -> bool:
    """Whether the kubelet may start; `waited` and `patience` are seconds since this process started.

    It never waits if the agent waits for it, for example for its directory, nor if it runs already.
    """
    if outlook.waits_for:
        return True
    return outlook.served and (outlook.kubelet or not outlook.absent or waited >= patience)


class Announcer:
    """Sends the outlook to `manager`; the kubelet waits for at most `patience` seconds."""

    def __init__(
        self,
        manager: ServiceManager,
        outlook: Callable[[], Outlook],
        *,
        patience: float,
        retrier: Retrier,
        timing: Timing = PRODUCTION_TIMING,
    ) -> None:
        self._manager = manager
        self._outlook = outlook
        self._patience = patience
        self._retrier = retrier
        self._intervals, self._clock = timing
        self._began = timing.clock.now()
        self._changed = asyncio.Event()
        self._is_ready = self._waits = False
        self._status = ""

    async def run(self) -> None:
        """Send messages until cancelled."""
        await self._retrier.run_forever("telling the service manager", self._run)

    def look(self) -> None:
        self._changed.set()

    def stop(self) -> None:
        self._manager.stopping()

    async def _run(self) -> None:
        """Send what changed, and wait until something may have changed again."""
        manager = self._manager
        self._changed.clear()
        outlook = self._outlook()
        self._say(outlook)
        if not self._is_ready:
            self._start(outlook, self._clock.now() - self._began)
        if manager.watchdog and not outlook.stalled:
            manager.alive()
        pause = manager.watchdog / _SIGNS if manager.watchdog else self._intervals.signs_of_life
        with contextlib.suppress(TimeoutError):
            async with self._clock.timeout(pause if self._is_ready else self._intervals.retry_ready):
                await self._changed.wait()

    def _start(self, outlook: Outlook, waited: float) -> None:
        if may_start(outlook, waited=waited, patience=self._patience):
            self._is_ready = self._manager.ready()
            if not self._is_ready:
                return
            if outlook.absent and not outlook.kubelet:
                log.warning("devices that were there before are missing", devices=_shown(outlook.absent))
            elif self._waits:
                log.info("the kubelet waits no more", seconds=round(waited))
        elif outlook.served and not self._waits:
            self._waits = True
            left = self._patience - waited
            log.info("the kubelet waits for devices", devices=_shown(outlook.absent), seconds=round(left))
            self._manager.more_time(left + self._intervals.start_margin)

    def _say(self, outlook: Outlook) -> None:
        absent = f"not there: {', '.join(_shown(outlook.absent))}" if outlook.absent else ""
        status = "; ".join(filter(None, (absent, outlook.waits_for or outlook.summary)))
        if status != self._status:
            self._status = status
            self._manager.status(status)


def _shown(ids: tuple[str, ...]) -> list[str]:
    return [*ids[:_SHOWN], *([f"and {len(ids) - _SHOWN} more"] if len(ids) > _SHOWN else [])]
