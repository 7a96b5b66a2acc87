"""The health of devices as drivers report it. Pure but for the clock.

A device is Unknown if its driver has not reported it within its timeout, or if the driver's stream has ended. A device
that a message leaves out keeps its health until its timeout. As in 1.36, only a message updates pods at once. They show
a timeout and the end of a stream when the kubelet looks at them again.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ...pb import dra_health_v1alpha1_pb2 as api

HEALTHY, UNHEALTHY, UNKNOWN = "Healthy", "Unhealthy", "Unknown"
_DEFAULT_TIMEOUT = 30  # seconds
_LONGEST_MESSAGE = 1024  # bytes
_WORDS = {api.HEALTHY: HEALTHY, api.UNHEALTHY: UNHEALTHY}


@dataclass(frozen=True, slots=True)
class _Report:
    """The last report of a device."""

    health: str
    message: str
    end: float  # when it has timed out


class DeviceHealth:
    """The last reports of every driver, by pool and device."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._reports: dict[str, dict[tuple[str, str], _Report]] = {}

    def update(self, driver: str, devices: Iterable[api.DeviceHealth]) -> None:
        """Take the list of a driver's message."""
        reports = self._reports.setdefault(driver, {})
        for each in devices:
            health, timeout = _WORDS.get(each.health, UNKNOWN), each.health_check_timeout_seconds
            end = self._now() + (timeout if timeout > 0 else _DEFAULT_TIMEOUT)
            reports[each.device.pool_name, each.device.device_name] = _Report(health, _shortened(each.message), end)

    def clear(self, driver: str) -> None:
        """Forget a driver, whose stream has ended."""
        self._reports.pop(driver, None)

    def of(self, driver: str, pool: str, device: str) -> tuple[str, str]:
        """The health of a device, and the message that came with it."""
        report = self._reports.get(driver, {}).get((pool, device))
        if report is None or self._now() > report.end:
            return UNKNOWN, ""
        return report.health, report.message


def _shortened(message: str) -> str:
    encoded = message.encode()
    if len(encoded) <= _LONGEST_MESSAGE:
        return message
    return encoded[: _LONGEST_MESSAGE - 3].decode(errors="ignore") + "..."
