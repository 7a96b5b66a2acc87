"""Messages to the service manager, systemd or another one with its protocol: sd_notify(3).

A message is one datagram of `NAME=value` lines to the socket that `$NOTIFY_SOCKET` names. There are no answers. Nothing
here waits or raises: the agent goes on without a service manager.
"""

import os
import socket
from collections.abc import Mapping

import structlog

from ..errors import reason_of

log = structlog.get_logger(__name__)

_MICROSECONDS = 1_000_000


class ServiceManager:
    """The service manager that started this process, at a socket: a path, or `@name` for an abstract one.

    `watchdog` is the time in seconds after which it takes the process for dead if no WATCHDOG=1 comes; None: never.
    """

    def __init__(self, address: str, *, watchdog: float | None = None) -> None:
        self.watchdog = watchdog
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._failure = ""

    def tell(self, name: str, value: str) -> bool:
        """Send a message of one line; return whether that worked. The same reason for a failure is logged once."""
        before, self._failure = self._failure, ""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto(f"{name}={value}".encode("utf-8", "replace"), self._address)
        except OSError as failed:
            self._failure = reason_of(failed)
            if self._failure != before:
                address = self._address.replace("\0", "@")
                log.warning("service manager not told", socket=address, reason=self._failure)
        return not self._failure

    def extend_start(self, seconds: float) -> None:
        """Tell it that the start takes that much longer, from now on."""
        self.tell("EXTEND_TIMEOUT_USEC", str(int(seconds * _MICROSECONDS)))


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
