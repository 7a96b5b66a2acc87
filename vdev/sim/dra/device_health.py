"""What drivers say about the health of devices. Pure but for the clock, which is the kubelet's.

A device that was not heard of for its time-out, or whose driver's stream has ended, is Unknown. One that a message
leaves out stays what it was until then. Only a message changes pods at once: as in 1.36 nobody is told of a time-out or
the end of a stream, and pods show it when the kubelet looks at them again.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from ...pb import dra_health_v1alpha1_pb2 as api

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

    def repeats(self, other: "Heard") -> bool:
        """Whether both are the same but for when they were said."""
        return replace(self, at=other.at) == other

    def says(self, now: float) -> tuple[str, str]:
        """What is known by it at this moment."""
        return (UNKNOWN, "") if now - self.at > self.timeout else (self.health, self.message)


class DeviceHealth:
    """The last words of every driver, by pool and device."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._heard: dict[str, dict[tuple[str, str], Heard]] = {}

    def heard(self, driver: str, devices: Iterable[api.DeviceHealth]) -> frozenset[tuple[str, str]]:
        """Take a driver's list; returns pool and name of the devices whose pods are to be told.

        A device that was not heard of for too long and is said to be what it was before is not among them.
        """
        now = self._now()
        before = self._heard.get(driver, {})
        named = {
            (each.device.pool_name, each.device.device_name): Heard(
                _WORDS.get(each.health, UNKNOWN),
                _cut(each.message),
                now,
                float(each.health_check_timeout_seconds) if each.health_check_timeout_seconds > 0 else DEFAULT_TIMEOUT,
            )
            for each in devices
        }
        lost = {
            key: Heard(UNKNOWN, "", now, word.timeout)
            for key, word in before.items()
            if key not in named and word.health != UNKNOWN and word.says(now)[0] == UNKNOWN
        }
        self._heard[driver] = {**before, **lost, **named}
        news = {key for key, word in named.items() if key not in before or not word.repeats(before[key])}
        return frozenset(news | lost.keys())

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
