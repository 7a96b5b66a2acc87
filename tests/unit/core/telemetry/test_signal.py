"""The signal's physics: what sensors show agrees with itself, at any instant and for every reader."""

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdev.core.model.faults.fault_effects import Overheat
from vdev.core.model.telemetry import NOTHING, LoadPattern, Physics, Range
from vdev.core.telemetry.history import Drive, Rates, Share, begin, changed, power_under, whole_load
from vdev.core.telemetry.sensor_readings import Throttle, read, read_part
from vdev.core.telemetry.shapes import Load, levels, total

GI = 2**30
MEMORY = 40 * GI
PHYSICS = Physics(idle_power=50, peak_power=400, reserved_memory=436, links=12, link_bytes=50e9)

instants = st.floats(0, 1e7)
periods = st.floats(0.5, 3600)


@st.composite
def ranges(draw):
    """From low to high percent."""
    low, high = sorted((draw(st.floats(0, 100)), draw(st.floats(0, 100))))
    return Range(low, high)


@st.composite
def loads(draw):
    """Any load."""
    pattern = draw(st.sampled_from(LoadPattern))
    if pattern is LoadPattern.IDLE:
        return Load(lot=draw(st.integers(0, 2**64 - 1)))
    return Load(
        pattern=pattern,
        period=draw(periods),
        gpu=draw(ranges()),
        memory=draw(ranges()),
        encoder=draw(ranges()),
        since=draw(st.floats(0, 1e6)),
        lot=draw(st.integers(0, 2**64 - 1)),
    )


@st.composite
def drives(draw):
    """Any drive, of a whole device or of one that is cut."""
    parts = draw(st.sampled_from([(), (4864,) * 7, (4864, 4864, 9856, 19968), (5850,) * 7]))
    memory = {f"MIG-{number}": mib * 2**20 for number, mib in enumerate(parts)} or {"": MEMORY}
    some = itertools.cycle(draw(st.lists(loads(), min_size=1, max_size=3 if parts else 1)))  # seven take long to draw
    return Drive(
        physics=PHYSICS,
        shares={name: Share(1 / (len(parts) or 1), next(some), size) for name, size in memory.items()},
        xids=draw(st.sampled_from([(), (13,), (48,), (79,), (63, 64)])),
        lost=draw(st.booleans()),
        heat=draw(st.none() | st.builds(Overheat, st.floats(20, 150), st.floats(1, 600))),
        rates=draw(st.builds(Rates, corrected=st.floats(0, 10), remapped=st.floats(0, 10))),
    )


@st.composite
def histories(draw):
    """A device's past, and an instant after it."""
    at, history = 0.0, begin(draw(drives()))
    for _ in range(draw(st.integers(0, 4))):
        at += draw(st.floats(0, 400))
        history = changed(history, draw(drives()), at)
    return history, at + draw(st.floats(0, 400))


@given(loads(), instants)
def test_a_load_stays_between_the_ends_of_its_range(load, at):
    """Every pattern does."""
    for value, of in zip(levels(load, at), (load.gpu, load.memory, load.encoder), strict=False):
        assert of.low - 1e-9 <= value <= of.high + 1e-9


@given(loads(), st.floats(0, 1e5), st.floats(0.1, 50))
def test_what_a_load_comes_to_is_the_integral_of_its_level(load, start, length):
    """The formula against a sum of many thin slices."""
    slices = 1000
    step = length / slices
    summed = sum(levels(load, start + (number + 0.5) * step).gpu for number in range(slices)) * step
    slack = 100 * step * (2 + 4 * length / load.period + 4 * length)  # a jump may lie within a slice
    assert total(load, start + length) - total(load, start) == pytest.approx(summed, abs=max(1e-3, slack))


@given(histories())
def test_energy_is_the_integral_of_power(past):
    """Between two readings of one stretch, by thin slices of the power that is shown."""
    history, at = past
    since = history.now.since
    span = min(20.0, at - since)
    slices = 500
    step = span / slices
    drive, moments = history.now.drive, (at - span + (number + 0.5) * step for number in range(slices))
    summed = sum(power_under(drive, whole_load(drive, moment).gpu) for moment in moments) * step
    jumps = sum(2 + 4 * span / share.load.period + span for share in history.now.drive.shares.values())
    difference = read(history, at, MEMORY).energy_mj - read(history, at - span, MEMORY).energy_mj
    assert difference / 1000 == pytest.approx(summed, abs=0.01 + 350 * step * jumps)


@given(histories(), st.floats(0, 1000))
def test_counters_never_go_back(past, later):
    """Energy, errors and traffic, whatever drives the device."""
    history, at = past
    first, second = read(history, at, MEMORY), read(history, at + later, MEMORY)
    for name in ("energy_mj", "ecc_corrected", "ecc_uncorrected", "remapped_rows", "pcie_replays", "nvlink_mb"):
        assert getattr(first, name) <= getattr(second, name)


@given(histories(), drives())
def test_a_change_loses_no_count(past, drive):
    """What was counted by then is what the next stretch begins with, and new errors come on top."""
    history, at = past
    before, after = read(history, at, MEMORY), read(changed(history, drive, at), at, MEMORY)
    assert after.energy_mj == pytest.approx(before.energy_mj, abs=1)
    assert after.ecc_corrected == pytest.approx(before.ecc_corrected, abs=1)
    assert after.ecc_uncorrected >= before.ecc_uncorrected


@given(histories())
def test_memory_adds_up(past):
    """Used, free and reserved make the total, of a device and of each partition."""
    history, at = past
    whole = read(history, at, MEMORY)
    parts = [read_part(history, at, whole, name) for name in history.now.drive.shares if name]
    for each in (whole, *parts):
        assert each.memory_used_mib + each.memory_free_mib + each.memory_reserved_mib == each.memory_total_mib
        assert min(each.memory_used_mib, each.memory_free_mib, each.memory_reserved_mib) >= 0


@given(histories())
def test_partitions_come_to_at_most_their_device(past):
    """Memory and load of the partitions together."""
    history, at = past
    whole = read(history, at, MEMORY)
    shares = {name: share for name, share in history.now.drive.shares.items() if name}
    parts = {name: read_part(history, at, whole, name) for name in shares}
    if parts:
        for name in ("memory_total_mib", "memory_used_mib", "memory_free_mib", "memory_reserved_mib"):
            assert sum(getattr(each, name) for each in parts.values()) <= getattr(whole, name)
        together = sum(shares[name].of * each.gpu_percent for name, each in parts.items())
        assert whole.gpu_percent == pytest.approx(together, abs=1e-6)


@given(histories())
def test_throttling_follows_temperature(past):
    """A reason and a lower clock where it is hot, and only there."""
    history, at = past
    reading = read(history, at, MEMORY)
    hot = reading.temperature_c >= PHYSICS.throttle_temperature
    very_hot = reading.temperature_c >= PHYSICS.slowdown_temperature
    assert hot is bool(reading.throttle & Throttle.SOFTWARE_THERMAL)
    assert very_hot is bool(reading.throttle & Throttle.HARDWARE_THERMAL)
    if reading.throttle & Throttle.IDLE:
        assert reading.sm_clock_mhz == PHYSICS.idle_clock
    elif very_hot:
        assert reading.sm_clock_mhz == PHYSICS.peak_clock / 2
    else:
        assert (reading.sm_clock_mhz == PHYSICS.peak_clock) >= (not hot)


@given(histories())
def test_everything_is_within_its_bounds(past):
    """Power between none and its peak, percentages between 0 and 100, a temperature that a device can have."""
    history, at = past
    reading = read(history, at, MEMORY)
    assert 0 <= reading.power_w <= PHYSICS.peak_power + 1e-6
    for percent in (reading.gpu_percent, reading.copy_percent, reading.encoder_percent, reading.decoder_percent):
        assert 0 <= percent <= 100 + 1e-6
    assert 20 <= reading.temperature_c <= 152


@given(histories(), st.floats(0, 1000))
def test_readers_do_not_matter(past, later):
    """What is read later is the same whether somebody read before, and where the same is said once more."""
    history, at = past
    again = changed(history, history.now.drive, at)
    assert again is history
    assert read(again, at + later, MEMORY) == read(history, at + later, MEMORY)


def test_an_idle_device_is_as_its_model_says():
    """At the idle power and temperature, give or take the spread of devices."""
    reading = read(begin(Drive(physics=PHYSICS)), 1e6, MEMORY)
    assert reading.power_w == 50
    assert reading.temperature_c == pytest.approx(30, abs=2)
    assert reading.energy_mj == 50 * 1e6 * 1000
    assert reading.throttle is Throttle.IDLE
    assert reading.memory_used_mib == 0


def test_a_step_of_load_warms_the_device_slowly():
    """After the thermal time constant 63 % of the way is done, and then the rest."""
    idle = begin(Drive(physics=PHYSICS))
    full = Drive(physics=PHYSICS, shares={"": Share(1.0, Load(pattern=LoadPattern.STEADY, gpu=Range(100, 100)))})
    history = changed(idle, full, 1000.0)
    before = read(history, 1000.0, MEMORY).temperature_c
    after = [read(history, 1000.0 + seconds, MEMORY).temperature_c for seconds in (0, 20, 32, 500)]
    assert after[0] == before
    assert after[1] - before == pytest.approx(0.632 * 40, abs=0.1)
    assert after[3] - before == pytest.approx(40)


def test_a_device_that_runs_away_with_heat_cools_down_again():
    """It comes to the fault's temperature in its time, and to its own after the fault."""
    history = changed(begin(Drive(physics=PHYSICS)), Drive(physics=PHYSICS, heat=Overheat(105, 60)), 100.0)
    assert read(history, 100.0, MEMORY).temperature_c < 40
    assert 60 < read(history, 130.0, MEMORY).temperature_c < 80
    assert read(history, 500.0, MEMORY).temperature_c == 105
    over = changed(history, Drive(physics=PHYSICS), 500.0)
    assert read(over, 500.0, MEMORY).temperature_c == 105
    assert read(over, 600.0, MEMORY).temperature_c < 40


def test_a_lost_device_draws_nothing_and_says_its_xid():
    """Nor does it work; its counters stand still."""
    busy = Drive(physics=PHYSICS, shares={"": Share(1.0, Load(pattern=LoadPattern.STEADY, gpu=Range(80, 80)))})
    history = changed(begin(busy), replace(busy, xids=(79,), lost=True), 50.0)
    first, second = read(history, 60.0, MEMORY), read(history, 900.0, MEMORY)
    assert first.lost
    assert first.xid == 79
    assert first.power_w == first.gpu_percent == 0
    assert first.energy_mj == second.energy_mj


def test_xids_of_the_memory_count_once():
    """An uncorrectable error and a remapped row, at the beginning of the fault alone."""
    plain, failing = Drive(physics=PHYSICS), Drive(physics=PHYSICS, xids=(48, 63))
    history = changed(begin(plain), failing, 10.0)
    history = changed(history, replace(failing, rates=Rates(corrected=1.0)), 20.0)
    reading = read(history, 30.0, MEMORY)
    assert (reading.ecc_uncorrected, reading.remapped_rows, reading.ecc_corrected) == (1, 1, 10)


def test_a_history_forgets_what_no_longer_warms():
    """A device that changes hands a thousand times costs no more than one that did twice."""
    history = begin(Drive(physics=PHYSICS))
    for number in range(1000):
        load = Load(pattern=LoadPattern.STEADY, gpu=Range(number % 100, number % 100))
        history = changed(history, Drive(physics=PHYSICS, shares={"": Share(1.0, load)}), 100.0 * number)
    assert len(history.stretches) <= 3
    assert math.isfinite(read(history, 1e6, MEMORY).temperature_c)


def test_the_same_seed_gives_the_same_run_and_another_one_another():
    """Of a pattern that depends on chance."""

    def run(lot):
        load = Load(pattern=LoadPattern.BUSY, gpu=Range(0, 100), lot=lot)
        return [levels(load, 10.0 * number).gpu for number in range(20)]

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_a_ramp_counts_from_its_begin_and_stays():
    """From when its pod came."""
    load = Load(pattern=LoadPattern.RAMP, period=60, gpu=Range(0, 80), since=100.0)
    assert [levels(load, at).gpu for at in (0, 100, 130, 160, 900)] == [0, 0, 40, 80, 80]
    assert NOTHING.high == 0
