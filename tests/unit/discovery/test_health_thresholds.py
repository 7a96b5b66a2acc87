"""From probe results to a verdict: thresholds, grace, brake."""

from hypothesis import given
from hypothesis import strategies as st

from vdev.discovery.health_monitor import Track, after_probe
from vdev.model.entry import HealthCheck, Probe

GOOD, BAD = "", "broken"


def spec(**changes: object) -> HealthCheck:
    return HealthCheck(probe=Probe.EXISTS, interval=5.0).model_copy(update=changes)


def run(policy: HealthCheck, results: str, *, gap: float = 5.0, is_scheduled: bool = True) -> list[bool]:
    """The verdict after each result; `+` is a success, `-` a failure."""
    track, verdicts = Track(appeared=0.0), []
    for number, result in enumerate(results):
        track = after_probe(track, policy, GOOD if result == "+" else BAD, number * gap, is_scheduled=is_scheduled)
        verdicts.append(track.health.healthy)
    return verdicts


def test_one_failure_is_enough_by_default() -> None:
    """Thresholds of one follow each result."""
    assert [True, False, True] == run(spec(), "+-+")


def test_the_reason_is_the_probes() -> None:
    """The verdict says what the probe said, and newer words replace older ones."""
    track = after_probe(Track(appeared=0.0), spec(), BAD, 0.0)
    assert "broken" == track.health.reason
    assert "worse" == after_probe(track, spec(), "worse", 5.0).health.reason


def test_failures_must_come_in_a_row() -> None:
    """A success in between starts the count again."""
    assert [True, True, True, True, True, False] == run(spec(unhealthy_threshold=3), "--+---")[:6]


def test_successes_must_come_in_a_row() -> None:
    """The way back has a threshold of its own."""
    assert [False, False, False, False, True] == run(spec(healthy_threshold=2), "-+-++")


def test_failures_in_the_grace_do_not_count() -> None:
    """A device that needs 12 seconds to come up is not unhealthy meanwhile."""
    assert [True, True, True, False] == run(spec(start_grace=12.0), "----")


def test_a_flapping_device_is_held_back() -> None:
    """Ten swings a second give one recovery; the next takes a whole quiet interval."""
    verdicts = run(spec(), "-+-+-+-+-+-+", gap=0.1)
    assert [False, True] + [False] * 10 == verdicts


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
    """No fall before its threshold, no recovery without successes, reasons only for the unhealthy."""
    track, now = Track(appeared=0.0), 0.0
    counted: list[bool] = []
    for ok, wait, is_scheduled in history:
        now += wait
        before = track
        track = after_probe(track, policy, GOOD if ok else BAD, now, is_scheduled=is_scheduled)
        if ok or now >= policy.start_grace:
            counted.append(ok)
        assert track.health.healthy == (not track.health.reason)
        assert before.flaps <= track.flaps <= before.flaps + 1
        if before.health.healthy and not track.health.healthy:
            assert [False] * policy.unhealthy_threshold == counted[-policy.unhealthy_threshold :]
        if not before.health.healthy and track.health.healthy:
            assert [True] * policy.healthy_threshold == counted[-policy.healthy_threshold :]
