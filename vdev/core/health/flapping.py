"""Devices that come and go ten times a second: their return counts only once they stay.

Every loss is reported at once, and so are the first returns: who plugs a device in again wants it back. A device that
vanishes again right after each return is held back, listed as Unhealthy, until it has stayed for a while. Otherwise
each flicker would reach the kubelet, and a pod could get a device that is gone when it starts.

Pure: the time comes in as an argument, in seconds of any steady clock.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from ..model.device import Health

QUICK = 0.15  # seconds; a loss this soon after a return is a flicker
TOLERATED = 5  # flickers in a row before returns are held back
QUIET = 1.0  # seconds that a device which flickered must stay


@dataclass(frozen=True, slots=True)
class Presence:
    """A device that went away at least once: how often, how many flickers in a row, and since when it is back.

    `back_at` is None while it is away.
    """

    losses: int = 0
    flickers: int = 0
    back_at: float | None = None

    def held_back(self, now: float) -> bool:
        """Whether it is there, but does not count yet."""
        return self.flickers >= TOLERATED and self.back_at is not None and now - self.back_at < QUIET


def observe(
    known: Mapping[str, Presence], *, lost: Collection[str], came: Collection[str], now: float
) -> dict[str, Presence]:
    """What is known after these ids went and came."""
    after = dict(known)
    for each in lost:
        before = after.get(each, Presence())
        quick = QUIET if before.flickers >= TOLERATED else QUICK
        flickered = before.back_at is not None and now - before.back_at < quick
        after[each] = Presence(before.losses + 1, before.flickers + 1 if flickered else 0)
    for each in came:
        if each in after:
            after[each] = replace(after[each], back_at=now)
    return after


def verdicts(known: Mapping[str, Presence], now: float) -> dict[str, Health]:
    """The health of the devices that are held back."""
    return {
        each: Health(healthy=False, reason=f"it went away {presence.losses} times and must now stay for {QUIET:g} s")
        for each, presence in known.items()
        if presence.held_back(now)
    }


def look_again_at(known: Mapping[str, Presence], now: float) -> float | None:
    """When the first of the devices that are held back may count again, or None."""
    moments = (each.back_at + QUIET for each in known.values() if each.held_back(now) and each.back_at is not None)
    return min(moments, default=None)
