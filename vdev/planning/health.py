"""What a device's probes come to: thresholds, and recoveries that must last.

Pure: the time comes in as an argument, in seconds of any steady clock.
"""

from dataclasses import dataclass, replace

from ..model.device import HEALTHY, Health
from ..model.entry import Health as HealthPolicy


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
