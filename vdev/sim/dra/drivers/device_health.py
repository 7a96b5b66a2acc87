"""What drivers say about the health of devices. Pure but for the clock, which is the kubelet's.

A device that was not heard of for its time-out, or whose driver's stream has ended, is Unknown.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ....pb import dra_health_v1alpha1_pb2 as api

HEALTHY, UNHEALTHY, UNKNOWN = "Healthy", "Unhealthy", "Unknown"
DEFAULT_TIMEOUT = 30.0
_LONGEST_MESSAGE = 1024
_WORDS = {api.HEALTHY: HEALTHY, api.UNHEALTHY: UNHEALTHY}


@dataclass(frozen=True, slots=True)
class Heard:
    """The last word about a device."""

    health: str
    message: str
    at: float
    timeout: float

    def says(self, now: float) -> tuple[str, str]:
        """What is known by it at this moment."""
        return (UNKNOWN, "") if now - self.at > self.timeout else (self.health, self.message)


class DeviceHealth:
    """The last words of every driver, by pool and device."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._heard: dict[str, dict[tuple[str, str], Heard]] = {}

    def heard(self, driver: str, devices: Iterable[api.DeviceHealth]) -> tuple[float, bool]:
        """Take a driver's complete list; returns the longest of its time-outs, and whether anything changed."""
        now = self._now()
        before = self._heard.get(driver, {})
        words = self._heard[driver] = {
            (each.device.pool_name, each.device.device_name): Heard(
                _WORDS.get(each.health, UNKNOWN),
                _cut(each.message),
                now,
                float(each.health_check_timeout_seconds) if each.health_check_timeout_seconds > 0 else DEFAULT_TIMEOUT,
            )
            for each in devices
        }
        same = before.keys() == words.keys() and all(
            before[key].says(now) == each.says(now) for key, each in words.items()
        )
        return max((each.timeout for each in words.values()), default=0.0), not same

    def clear(self, driver: str) -> None:
        """The driver's stream ended."""
        self._heard.pop(driver, None)

    def of(self, driver: str, pool: str, device: str) -> tuple[str, str]:
        """A device's health and the message that came with it."""
        found = self._heard.get(driver, {}).get((pool, device))
        return (UNKNOWN, "") if found is None else found.says(self._now())


def _cut(message: str) -> str:
    encoded = message.encode()
    return (
        message if len(encoded) <= _LONGEST_MESSAGE else encoded[: _LONGEST_MESSAGE - 3].decode(errors="ignore") + "..."
    )
