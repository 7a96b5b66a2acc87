"""The health of devices as drivers report it. Pure but for the clock.

A device is Unknown if its driver has not reported it within its timeout, or if the driver's stream has ended. A device
that a message leaves out keeps its health until its timeout. As in 1.36, only a message updates pods at once. They show
a timeout and the end of a stream when the kubelet looks at them again.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from ...pb import dra_health_v1alpha1_pb2 as api

HEALTHY, UNHEALTHY, UNKNOWN = "Healthy", "Unhealthy", "Unknown"
_DEFAULT_TIMEOUT = 30  # seconds
_LONGEST_MESSAGE = 1024  # bytes
_WORDS = {api.HEALTHY: HEALTHY, api.UNHEALTHY: UNHEALTHY}


@dataclass(frozen=True, slots=True)
class _Report:
    """The last report of a device; two reports are equal if only their times differ."""

    health: str
    message: str
    timeout: float
    at: float = field(compare=False)

    def health_at(self, now: float) -> tuple[str, str]:
        """Health and message."""
        return (UNKNOWN, "") if now - self.at > self.timeout else (self.health, self.message)


class DeviceHealth:
    """The last reports of every driver, by pool and device."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._reports: dict[str, dict[tuple[str, str], _Report]] = {}

    def update(self, driver: str, devices: Iterable[api.DeviceHealth]) -> frozenset[tuple[str, str]]:
        """Take the list of a driver's message; returns pool and name of the devices whose reports changed.

        A device that was Unknown by its timeout, and is reported as before it, is not among them, as in 1.36.
        """
        now, before = self._now(), self._reports.get(driver, {})
        after = {
            key: replace(report, health=report.health_at(now)[0], message=report.health_at(now)[1])
            for key, report in before.items()
        }
        for each in devices:
            health, timeout = _WORDS.get(each.health, UNKNOWN), float(each.health_check_timeout_seconds)
            report = _Report(health, _shortened(each.message), timeout if timeout > 0 else _DEFAULT_TIMEOUT, now)
            after[each.device.pool_name, each.device.device_name] = report
        self._reports[driver] = after
        return frozenset(key for key, report in after.items() if report != before.get(key))

    def clear(self, driver: str) -> None:
        """Forget a driver, whose stream has ended."""
        self._reports.pop(driver, None)

    def of(self, driver: str, pool: str, device: str) -> tuple[str, str]:
        """The health of a device, and the message that came with it."""
        report = self._reports.get(driver, {}).get((pool, device))
        return (UNKNOWN, "") if report is None else report.health_at(self._now())


def _shortened(message: str) -> str:
    encoded = message.encode()
    if len(encoded) <= _LONGEST_MESSAGE:
        return message
    return encoded[: _LONGEST_MESSAGE - 3].decode(errors="ignore") + "..."
