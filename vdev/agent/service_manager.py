"""Messages to the service manager, systemd or another one with its protocol: sd_notify(3).

A message is one datagram of `NAME=value` lines to the socket that `$NOTIFY_SOCKET` names. There are no answers. If a
message cannot be sent, the retrier reports that, and the agent goes on.

With systemd units that start the agent before the kubelet (see deploy/systemd), the agent decides when the kubelet
starts: when all hardware that was listed before is there again, or when `--boot-wait` ends.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING

import structlog

from ..aio.program import shown
from ..deviceplugin.service import ServiceState
from ..errors import HostError, reason_of
from .status import not_ready, stalled

if TYPE_CHECKING:
    from .agent import Agent

log = structlog.get_logger(__name__)

_MICROSECONDS = 1_000_000
_SIGNS = 3  # messages in each timeout of the watchdog
_SHOWN = 8  # ids in a line of the log


class ServiceManager:
    """The service manager that started this process, at a socket: a path, or `@name` for an abstract one.

    `watchdog` is the time in seconds without WATCHDOG=1 after which it treats the process as dead; None: never.
    """

    def __init__(self, address: str, *, watchdog: float | None = None) -> None:
        self.watchdog = watchdog
        self._address = f"\0{address[1:]}" if address.startswith("@") else address

    def tell(self, name: str, value: str) -> None:
        """Send a message of one line. Raises HostError."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto(f"{name}={value}".encode("utf-8", "replace"), self._address)
        except OSError as failed:
            address = self._address.replace("\0", "@")
            raise HostError(f"no message to the socket {address}: {reason_of(failed)}") from failed


def from_environment(environ: Mapping[str, str]) -> ServiceManager | None:
    """Return the service manager that the environment names, or None.

    Its watchdog counts only if it is meant for this process, and not for a parent.
    """
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return None
    period, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    wanted = period.isascii() and period.isdigit() and int(period) > 0 and pid in ("", str(os.getpid()))
    return ServiceManager(address, watchdog=int(period) / _MICROSECONDS if wanted else None)


class Notifier:
    """Tells `manager` the state of the agent, after each reconciliation and at regular intervals."""

    def __init__(self, agent: "Agent", manager: ServiceManager) -> None:
        self._agent = agent
        self._manager = manager
        self._intervals, self._clock = agent.options.timing
        self._began = self._clock.now()
        self._changed = asyncio.Event()
        self._is_ready = self._waits = False

    def look(self) -> None:
        """Send messages now if something has changed."""
        self._changed.set()

    def stop(self) -> None:
        with contextlib.suppress(HostError):
            self._manager.tell("STOPPING", "1")

    async def run_once(self) -> None:
        """Send what changed, and wait until something may have changed again."""
        manager, absent = self._manager, self._absent()
        self._changed.clear()
        self._tell_status(absent)
        if not self._is_ready:
            self._start(absent)
        if manager.watchdog and not stalled(self._agent):
            manager.tell("WATCHDOG", "1")
        pause = manager.watchdog / _SIGNS if manager.watchdog else self._intervals.signs_of_life
        await self._clock.wait(self._changed, pause if self._is_ready else self._intervals.retry_ready)

    def _absent(self) -> list[str]:
        """Return the ids of hardware that an earlier process listed and that is missing or unhealthy now, in order.

        Hardware is compared, not partitions or shares: a new layout, sharing or name is no reason to wait.
        """
        reconciler = self._agent.reconciler
        if not reconciler.published:
            return []
        ailing = {raw for raw, health in reconciler.current_health().items() if not health.healthy}
        found = chain.from_iterable(reconciler.scan.devices.values())
        present = {raw.id for raw in found if raw.health.healthy and raw.id not in ailing}
        return sorted(reconciler.advertised.raws - present)

    def _start(self, absent: list[str]) -> None:
        """Let the kubelet start, or make it wait.

        The kubelet never waits if it runs already, or if the agent waits for it, for example for its directory.
        """
        services = self._agent.lists.services.values()
        has_started = self._agent.reconciler.published and all(
            each.state is not ServiceState.STARTING for each in services
        )
        runs = any(each.servicer.streams for each in services)
        waited, patience = self._clock.now() - self._began, self._agent.options.boot_wait
        if self._agent.lock.trouble or (has_started and (runs or not absent or waited >= patience)):
            self._manager.tell("READY", "1")
            self._is_ready = True
            if absent and not runs:
                log.warning("devices that were there before are missing", count=len(absent), devices=absent[:_SHOWN])
            elif self._waits:
                log.info("the kubelet may start now", seconds=round(waited))
        elif has_started and not self._waits:
            self._waits = True
            log.info(
                "the kubelet waits for devices",
                count=len(absent),
                devices=absent[:_SHOWN],
                seconds=round(patience - waited),
            )
            longer = patience - waited + self._intervals.start_margin
            self._manager.tell("EXTEND_TIMEOUT_USEC", str(int(longer * _MICROSECONDS)))

    def _tell_status(self, absent: list[str]) -> None:
        resources = self._agent.reconciler.advertised.resources.values()
        healthy, listed = sum(each.healthy for each in resources), sum(len(each.slots) for each in resources)
        summary = f"{healthy} of {listed} devices are Healthy, in {len(resources)} resources"
        trouble = self._agent.lock.trouble or "; ".join(not_ready(self._agent))
        missing = f"not there: {', '.join(absent)}" if absent else ""
        self._manager.tell("STATUS", shown("; ".join(filter(None, (missing, trouble or summary)))))
