"""Loads over time, and the loads in annotations of pods."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdev.model.telemetry import EntryTelemetry, LoadPattern, Range
from vdev.telemetry.simulation import Load, levels, parse_load


def test_valid_loads(subtests):
    for text, meant in [
        ("75", (75, 75)),
        ("60-90", (60, 90)),
        (" 5.5 % - 10% ", (5.5, 10)),
        ("0", (0, 0)),
        ("100%", (100, 100)),
    ]:
        with subtests.test(text=text):
            assert parse_load(text) == Range(*meant)


def test_invalid_loads(subtests):
    for text in ["", "lots", "-5", "90-60", "101", "5-200", "1e2", "5,5", "60-", "nan"]:
        with subtests.test(text=text), pytest.raises(ValueError, match=r"expected percent|percent$|begins at"):
            parse_load(text)


@given(
    st.sampled_from(LoadPattern),
    st.tuples(st.floats(0, 100), st.floats(0, 100)).map(sorted),
    st.floats(0.5, 3600),
    st.floats(0, 1e7),
    st.text(max_size=5),
)
def test_a_load_stays_in_its_range(pattern, ends, period, at, seed):
    low, high = ends if pattern is not LoadPattern.IDLE else (0, 0)
    spec = EntryTelemetry.model_construct(pattern=pattern, period=period, gpu=Range(*ends), memory=Range(*ends))
    load = Load(spec=spec, seed=seed)
    assert low - 1e-9 <= levels(load, at).gpu == levels(load, at).memory <= high + 1e-9


def run(pattern, seed="a", *, count=20, period=10.0):
    spec = EntryTelemetry.model_construct(pattern=pattern, period=period, gpu=Range(0, 100))
    load = Load(spec=spec, seed=seed)
    return [levels(load, 5.0 * number).gpu for number in range(count)]


def test_runs_depend_on_the_seed():
    for pattern in (LoadPattern.BUSY, LoadPattern.STEADY, LoadPattern.WAVE):
        assert run(pattern) == run(pattern)
        assert run(pattern) != run(pattern, "b")


def test_the_shape_of_each_pattern():
    assert 1 == len(set(run(LoadPattern.STEADY)))
    busy = run(LoadPattern.BUSY)
    assert busy[0::2] == busy[1::2]
    assert 10 == len(set(busy))
    burst = run(LoadPattern.BURST)
    assert {0.0, 100.0} == set(burst)
    assert burst[0::2] != burst[1::2]
    assert run(LoadPattern.WAVE, period=20.0)[:4] == pytest.approx(run(LoadPattern.WAVE, period=20.0)[4:8])
