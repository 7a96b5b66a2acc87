"""From probe results to a verdict: thresholds, start grace, flapping."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdev.discovery.health_monitor import Track, after_probe
from vdev.model.entry import HealthCheck, Probe

GOOD, BAD = "", "broken"


def spec(**changes: object) -> HealthCheck:
    return HealthCheck(probe=Probe.EXISTS, interval=5.0).model_copy(update=changes)


@pytest.mark.parametrize(
    ("policy", "gap", "results", "healthy"),
    [
        ({}, 5.0, "+-+", "+-+"),
        ({"unhealthy_threshold": 3}, 5.0, "--+---", "+++++-"),
        ({"healthy_threshold": 2}, 5.0, "-+-++", "----+"),
        ({"start_grace": 12.0}, 5.0, "----", "+++-"),
        ({}, 0.1, "-+-+-+-+-+-+", "-+----------"),  # a flapping device recovers only after an interval without a change
    ],
    ids=["thresholds of one", "failures in a row", "successes in a row", "grace", "flapping"],
)
def test_the_verdict_after_each_result(policy: dict[str, float], gap: float, results: str, healthy: str) -> None:
    track, verdicts = Track(appeared=0.0), ""
    for number, result in enumerate(results):
        track = after_probe(track, spec(**policy), GOOD if result == "+" else BAD, number * gap)
        verdicts += "+" if track.health.healthy else "-"
    assert verdicts == healthy


def test_the_reason_is_that_of_the_last_probe() -> None:
    track = after_probe(Track(appeared=0.0), spec(), BAD, 0.0)
    assert "broken" == track.health.reason
    assert "worse" == after_probe(track, spec(), "worse", 5.0).health.reason


specs = st.builds(
    HealthCheck,
    probe=st.just(Probe.EXISTS),
    interval=st.floats(0.1, 60.0),
    unhealthyThreshold=st.integers(1, 5),
    healthyThreshold=st.integers(1, 5),
    startGrace=st.floats(0.0, 30.0),
)
histories = st.lists(st.tuples(st.booleans(), st.floats(0.0, 20.0), st.booleans()), max_size=60)


@given(specs, histories)
def test_the_verdict_obeys_the_rules(policy: HealthCheck, history: list[tuple[bool, float, bool]]) -> None:
    """Both thresholds hold, and only unhealthy devices have a reason."""
    track, now = Track(appeared=0.0), 0.0
    counted: list[bool] = []
    for ok, wait, is_scheduled in history:
        now += wait
        before = track
        track = after_probe(track, policy, GOOD if ok else BAD, now, is_scheduled=is_scheduled)
        if ok or now >= policy.start_grace:
            counted.append(ok)
        assert track.health.healthy == (not track.health.reason)
        if before.health.healthy and not track.health.healthy:
            assert [False] * policy.unhealthy_threshold == counted[-policy.unhealthy_threshold :]
        if not before.health.healthy and track.health.healthy:
            assert [True] * policy.healthy_threshold == counted[-policy.healthy_threshold :]
