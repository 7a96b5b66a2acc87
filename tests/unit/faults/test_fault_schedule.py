"""Activity of rules: deterministic, and constant until `changes_at`."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.kit.rules import rule as made
from vdev.faults.effects import DelayTimes
from vdev.faults.rules import OnNodes
from vdev.faults.schedule import Activation, Dice, hits, on_node, phase, seconds_of, spans

SICK = {"health": "Unhealthy"}
seconds = st.floats(0, 1e5).map(lambda value: round(value, 3))


@st.composite
def rules(draw):
    """Valid rules: repetitions never overlap."""
    effect = draw(
        st.sampled_from([SICK, {"remove": True}, {"flap": {"up": 20, "down": 5}}, {"flap": {"up": 0.5, "down": 3}}])
    )
    jitter = draw(st.sampled_from([0.0, 0.1, 0.2, 0.5]))
    every = draw(st.none() | st.floats(1, 1e4).map(lambda value: round(value, 3)))
    lasts = draw(st.none() | st.floats(0.01, 1e4).map(lambda value: round(value, 3)))
    if every is not None:
        width = 0.0 if "flap" in effect else jitter
        lasts = min(lasts or 1.0, every * (1 - 2 * width))
        assume(lasts > 0)
    return made(
        name=draw(st.sampled_from(["a", "b"])),
        at=draw(seconds),
        lasts=lasts,
        every=every,
        jitter=jitter,
        times=draw(st.none() | st.integers(1, 5)),
        probability=draw(st.sampled_from([1.0, 1.0, 0.5, 0.1])),
        **effect,
    )


dice = st.builds(Dice, st.integers(0, 9), st.sampled_from(["n1", "n2"]))
activations = st.builds(Activation, seconds)


@given(rules(), dice, activations, seconds, st.floats(0, 1, exclude_max=True))
def test_constant_until_the_next_change(rule, luck, activation, now, part):
    is_active, changes_at = phase(rule, luck, activation, now)
    horizon = changes_at if changes_at is not None else now + 1e6
    between = now + part * (horizon - now)
    assume(between < horizon)
    assert phase(rule, luck, activation, between)[0] == is_active


@given(rules(), dice, activations, seconds)
def test_changes_at_is_in_the_future(rule, luck, activation, now):
    for _ in range(20):
        _, after = phase(rule, luck, activation, now)
        if after is None:
            return
        assert after > now
        now = after


@given(rules(), dice, activations, seconds)
def test_spans_are_in_order_and_do_not_overlap(rule, luck, activation, now):
    end = -math.inf
    for _, span in zip(range(20), spans(rule, luck, activation, now), strict=False):
        assert span.start >= end or math.isclose(span.start, end)
        end = span.end


@pytest.mark.parametrize(
    ("fields", "times", "expected"),
    [
        # A span includes its start and excludes its end.
        (
            {"at": 60, "lasts": 30, "every": 300, **SICK},
            (0, 59, 60, 89, 90, 359, 360, 390),
            [False, False, True, True, False, False, True, False],
        ),
        ({"flap": {"up": 20, "down": 5}}, (19, 20, 25, 47), [False, True, False, True]),
    ],
)
def test_windows(fields, times, expected):
    assert expected == [phase(made(**fields), Dice(0, "n"), Activation(1000.0), 1000.0 + t)[0] for t in times]


def test_times_bounds_repetition():
    rule = made(at=0, lasts=1, every=10, times=2, **SICK)
    assert (False, None) == phase(rule, Dice(0, "n"), Activation(0.0), 11.0)


def test_jitter_is_bounded():
    """It moves each start by at most this fraction of the period."""
    rule = made(at=100, lasts=10, every=100, jitter=0.2, **SICK)
    starts = [span.start for _, span in zip(range(50), spans(rule, Dice(7, "n"), Activation(0.0), 0.0), strict=False)]
    moved = [start - 100 * number for number, start in enumerate(starts, 1)]
    assert all(-20 <= each <= 20 for each in moved)
    assert len(set(moved)) > 40


def test_nth_repetition():
    """`nth` without calls counts the repetitions."""
    rule = made(lasts=1, every=10, nth=3, **SICK)
    real = [
        span.start
        for _, span in zip(range(4), spans(rule, Dice(0, "n"), Activation(0.0), 0.0), strict=False)
        if span.real
    ]
    assert [20.0] == real


@pytest.mark.parametrize(("fields", "hit"), [({"nth": 3}, [3]), ({"every_nth": 2}, [2, 4, 6, 8])])
def test_numbered_calls(fields, hit):
    assert hit == [n for n in range(1, 9) if hits(made(**fields), Dice(0, "n"), n)]


def test_probability():
    """About a tenth of many calls is hit, and the same ones on each run."""
    rare = made(probability=0.1)
    lot = [hits(rare, Dice(7, "n"), n) for n in range(5000)]
    assert 400 < sum(lot) < 600
    assert lot == [hits(rare, Dice(7, "n"), n) for n in range(5000)]


def test_delays_have_their_median_and_bound():
    delay = DelayTimes(p50=0.2, max=8.0)
    waits = [seconds_of(delay, Dice(7, "n"), "slow", n) for n in range(2000)]
    assert 900 < sum(each < 0.2 for each in waits) < 1100
    assert max(waits) <= 8.0


def test_share_of_nodes():
    """About this share of many nodes is chosen, the same ones on each run."""
    nodes = [f"node-{n}" for n in range(2000)]
    chosen = [node for node in nodes if on_node(OnNodes(share=0.1), "r", Dice(7, node))]
    assert 150 < len(chosen) < 250
    assert chosen == [node for node in nodes if on_node(OnNodes(share=0.1), "r", Dice(7, node))]
    assert chosen != [node for node in nodes if on_node(OnNodes(share=0.1), "r", Dice(8, node))], "another seed"
