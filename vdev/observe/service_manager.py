"""Telling the service manager, systemd or one that speaks like it, how this process is: sd_notify(3).

A message is one datagram of `NAME=value` lines to the socket that `$NOTIFY_SOCKET` names. Nobody answers, and nothing
here ever waits or raises: a service manager that is away must not take the agent along.
"""

import os
import socket
from collections.abc import Mapping

import structlog

from ..errors import reason_of

log = structlog.get_logger(__name__)

_MICROSECONDS = 1_000_000
_SHOWN = 400  # characters of a status; `systemctl status` shows them on one line


class ServiceManager:
    """The one that started this process, at a socket: a path, or `@name` for an abstract one.

    `watchdog` is the time in seconds after which it takes the process for dead unless `alive` was called; None: it does
    not look.
    """

    def __init__(self, address: str, *, watchdog: float | None = None) -> None:
        self.watchdog = watchdog
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._failure = ""

    def ready(self) -> bool:
        """The start is complete: what is ordered after this service may start. False: not told."""
        return self._tell("READY=1")

    def stopping(self) -> None:
        self._tell("STOPPING=1")

    def alive(self) -> None:
        self._tell("WATCHDOG=1")

    def status(self, text: str) -> None:
        """What a person shall see of it: one line, cut to a bearable length."""
        line = "".join(each if each.isprintable() else " " for each in text)
        self._tell(f"STATUS={line if len(line) <= _SHOWN else f'{line[: _SHOWN - 1]}…'}")

    def more_time(self, seconds: float) -> None:
        """The start takes that much longer, from now on; it must not be given up before."""
        self._tell(f"EXTEND_TIMEOUT_USEC={int(seconds * _MICROSECONDS)}")

    def _tell(self, message: str) -> bool:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto(message.encode("utf-8", "replace"), self._address)
        except OSError as failed:
            self._failed(reason_of(failed))
            return False
        self._failure = ""
        return True

    def _failed(self, reason: str) -> None:
        if reason != self._failure:
            log.warning("service manager not told", socket=self._address.replace("\0", "@"), reason=reason)
        self._failure = reason


def from_environment(environ: Mapping[str, str]) -> ServiceManager | None:
    """The service manager that the environment tells of; None where there is none.

    Its wish for signs of life counts only if it is meant for this process and no parent of it.
    """
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return None
    period, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    wanted = period.isascii() and period.isdigit() and int(period) > 0 and pid in ("", str(os.getpid()))
    return ServiceManager(address, watchdog=int(period) / _MICROSECONDS if wanted else None)
