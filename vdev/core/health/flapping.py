"""Devices that come and go ten times a second: their return counts only once they stay.

Every loss is reported at once, and so are the first returns: who plugs a device in again wants it back. A device that
vanishes again right after each return is held back, listed as Unhealthy, until it has stayed for a while. Otherwise
each flicker would reach the kubelet, and a pod could get a device that is gone when it starts.

Pure: the time comes in as an argument, in seconds of any steady clock.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from ..intervals import PRODUCTION, Intervals
from ..model.device import Health

TOLERATED = 5  # flickers in a row before returns are held back


@dataclass(frozen=True, slots=True)
class FlapHistory:
    """A device that went away at least once: how often, how many flickers in a row, and since when it is back.

    `back_at` is None while it is away.
    """

    losses: int = 0
    flickers: int = 0
    back_at: float | None = None

    def counts_at(self, intervals: Intervals) -> float | None:
        """When it counts as present; None for one that is away, or flickered too seldom to be held back."""
        if self.back_at is None or self.flickers < TOLERATED:
            return None
        return self.back_at + intervals.flicker_quiet


def observe(
    known: Mapping[str, FlapHistory],
    *,
    lost: Collection[str],
    came: Collection[str],
    now: float,
    intervals: Intervals = PRODUCTION,
) -> dict[str, FlapHistory]:
    """What is known after these ids went and came."""
    after = dict(known)
    for each in lost:
        before = after.get(each, FlapHistory())
        quick = intervals.flicker_quiet if before.flickers >= TOLERATED else intervals.flicker
        flickered = before.back_at is not None and now - before.back_at < quick
        after[each] = FlapHistory(before.losses + 1, before.flickers + 1 if flickered else 0)
    for each in came:
        if each in after:
            after[each] = replace(after[each], back_at=now)
    return after


def verdicts(known: Mapping[str, FlapHistory], now: float, intervals: Intervals = PRODUCTION) -> dict[str, Health]:
    """The health of the devices that are held back: they are there, but do not count yet."""
    stay = f"must now stay for {intervals.flicker_quiet:g} s"
    return {
        each: Health(healthy=False, reason=f"it went away {presence.losses} times and {stay}")
        for each, presence in known.items()
        if (moment := presence.counts_at(intervals)) is not None and now < moment
    }


def look_again_at(known: Mapping[str, FlapHistory], now: float, intervals: Intervals = PRODUCTION) -> float | None:
    """When the first of the devices that are held back counts again, or None."""
    moments = (presence.counts_at(intervals) for presence in known.values())
    return min((moment for moment in moments if moment is not None and moment > now), default=None)
