"""Devices that come and go ten times a second: their return counts only once they stay.

Every loss is reported at once, and so are the first returns: who plugs a device in again wants it back. A device that
vanishes again right after each return is held back, listed as Unhealthy, until it has stayed for a while. Otherwise
each flicker would reach the kubelet, and a pod could get a device that is gone when it starts.

Pure: the time comes in as an argument, in seconds of any steady clock.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from ..intervals import PRODUCTION, Intervals
from ..model.device import HEALTHY, Health
from ..model.entry import Health as HealthPolicy

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


def observe_flapping(
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one probe found; a failure has its reason in a few words."""

    ok: bool
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """What is remembered of one device between probes. It counts as healthy until a probe proves otherwise.

    `ok`, `run` and `run_since` are the last result, how many scheduled results in a row were like it, and since when.
    `flaps` counts how often results turned from success to failure. `braked`: it fell again within one interval of its
    recovery, so the next recovery takes a whole interval without a failure.
    """

    appeared: float
    health: Health = HEALTHY
    ok: bool = True
    run: int = 0
    run_since: float = 0.0
    flaps: int = 0
    recovered: float | None = None
    braked: bool = False


def observe_probe(track: Track, spec: HealthPolicy, outcome: Outcome, now: float, *, scheduled: bool = True) -> Track:
    """The track after one more result.

    A probe that an event brought forward (`scheduled=False`) can end a run of results but not lengthen it, because
    thresholds stand for time. A failure counts at once, the recovery of a flapping device only after a while: handing
    out a dead device is worse than holding back a working one.
    """
    if not outcome.ok and now - track.appeared < spec.start_grace:
        return track
    if outcome.ok == track.ok:
        run, run_since = track.run + scheduled, track.run_since
    else:
        run, run_since = 1, now
    fell = track.ok and not outcome.ok
    after = replace(track, ok=outcome.ok, run=run, run_since=run_since, flaps=track.flaps + fell)
    if not outcome.ok:
        if not track.health.healthy:
            return replace(after, health=Health(healthy=False, reason=outcome.reason))
        if run >= spec.unhealthy_threshold:
            braked = track.recovered is not None and now - track.recovered < spec.interval
            return replace(after, health=Health(healthy=False, reason=outcome.reason), braked=braked)
        return after
    held = not track.braked or now - run_since >= spec.interval
    if not track.health.healthy and run >= spec.healthy_threshold and held:
        return replace(after, health=HEALTHY, recovered=now, braked=False)
    return after
