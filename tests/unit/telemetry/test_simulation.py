"""Loads over time and in annotations of pods, and the sensors of a simulated device that follow them."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdev.faults.effects import HardwareErrorsFault, OverheatFault
from vdev.model.device import Device, RawDevice
from vdev.model.geometry import Geometry
from vdev.model.telemetry import EntryTelemetry, LoadPattern, PhysicsModel, Range
from vdev.telemetry.simulation import DeviceInfo, SimulatedDevice, Throttle, levels, parse_load

MIB = 2**20
PHYSICS = PhysicsModel(idlePower=50, peakPower=400, reservedMemory=436, links=12, linkSpeed=50)
RAW = RawDevice(id="GPU", entry="gpu", index=0, memory=40 * 1024 * MIB)
GPU = DeviceInfo(device=Device(id="GPU", raw=RAW, ordinal="0"), physics=PHYSICS)


def partition(number, mib):
    return Device(id=f"MIG-{number}", raw=RAW, ordinal=f"0:{number}", profile="1", memory=mib * MIB)


@st.composite
def ranges(draw):
    return Range(*sorted((draw(st.floats(0, 100)), draw(st.floats(0, 100)))))


@st.composite
def loads(draw):
    spec = EntryTelemetry.model_construct(
        pattern=draw(st.sampled_from(LoadPattern)),
        period=draw(st.floats(0.5, 3600)),
        gpu=draw(ranges()),
        memory=draw(ranges()),
    )
    return {"load": spec, "since": draw(st.floats(0, 1e4)), "seed": draw(st.text(max_size=3))}


@st.composite
def conditions(draw):
    """Any loads and faults of a device, with or without partitions."""
    sizes = draw(st.sampled_from([(), (4864,) * 7, (4864, 4864, 9856, 19968), (5850,) * 7]))
    some = itertools.cycle(draw(st.lists(loads(), min_size=1, max_size=3 if sizes else 1)))  # seven take long to draw
    geometry = Geometry(slices=len(sizes), profiles={"1": {"slices": 1, "memory": "1Gi"}}) if sizes else None
    parts = [
        replace(GPU, device=partition(number, mib), geometry=geometry, **next(some)) for number, mib in enumerate(sizes)
    ]
    heat = st.builds(OverheatFault, to=st.integers(20, 150), within=st.floats(1, 600))
    errors = st.builds(HardwareErrorsFault, correctedEcc=st.floats(0, 600), remappedRows=st.floats(0, 600))
    return {
        "parts": tuple(parts) or (replace(GPU, **next(some)),),
        "xids": draw(st.sampled_from([(), (13,), (48,), (79,), (63, 64)])),
        "faults": draw(st.lists(heat | errors, max_size=2)),
    }


@st.composite
def devices(draw):
    """A device after some changes, and a time after the last one."""
    at = draw(st.floats(0, 1000))
    device = SimulatedDevice(at=at, **draw(conditions()))
    for _ in range(draw(st.integers(0, 4))):
        at += draw(st.floats(0, 400))
        device.change(at, **draw(conditions()))
    return device, at + draw(st.floats(0, 400))


@given(devices(), st.floats(0, 1000), conditions())
def test_counters_never_decrease(past, later, other):
    device, at = past
    first, second = device.read(at), device.read(at + later)
    device.change(at + later, **other)
    third = device.read(at + later)
    for name in ("energy_mj", "ecc_corrected", "ecc_uncorrected", "remapped_rows", "pcie_replays", "nvlink_mb"):
        assert getattr(first, name) <= getattr(second, name) <= getattr(third, name)


@given(devices())
def test_values_are_consistent(past):
    """Memory adds up, partitions have at most their device's values, and all values are possible."""
    device, at = past
    whole = device.read(at)
    shares = [(each.info.compute, each.own) for each in device.measured(at) if each.info.device.is_partition]
    for each in (whole, *(own for _, own in shares)):
        assert each.memory_used_mib + each.memory_free_mib + each.memory_reserved_mib == each.memory_total_mib
        assert min(each.memory_used_mib, each.memory_free_mib, each.memory_reserved_mib) >= 0
        assert 0 <= each.gpu_percent <= 100 + 1e-6
    if shares:
        for name in ("memory_total_mib", "memory_used_mib", "memory_free_mib", "memory_reserved_mib"):
            assert sum(getattr(own, name) for _, own in shares) <= getattr(whole, name)
        together = sum(compute * own.gpu_percent for compute, own in shares)
        assert whole.gpu_percent == pytest.approx(together, abs=1e-6)
    assert 0 <= whole.power_w <= PHYSICS.peak_power + 1e-6
    assert 20 <= whole.temperature_c <= 152


@given(devices())
def test_throttling_follows_temperature(past):
    """A hot device has a reason and a lower clock; other devices have neither."""
    device, at = past
    reading = device.read(at)
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


def plain(percent=0, **changes):
    spec = EntryTelemetry.model_construct(pattern=LoadPattern.STEADY, gpu=Range(percent, percent))
    return {"parts": (replace(GPU, load=spec),), **changes}


def test_energy_follows_power():
    """Energy is power times time; with frequent reads, the energy of a wave is that of its mean."""
    steady = SimulatedDevice(**plain(100))
    assert steady.read(60.0).energy_mj == 400 * 60 * 1000
    spec = EntryTelemetry.model_construct(pattern=LoadPattern.WAVE, period=60.0, gpu=Range(0, 100))
    wave = SimulatedDevice(parts=(replace(GPU, load=spec),))
    for at in range(0, 601, 5):
        wave.read(at)
    assert wave.read(600.0).energy_mj == pytest.approx(225 * 600 * 1000, rel=0.01)


def test_a_lost_device_has_only_its_xid():
    device = SimulatedDevice(**plain(80))
    device.change(50.0, **plain(80, xids=(79,)))
    first, second = device.read(60.0), device.read(900.0)
    assert first.lost
    assert first.xid == 79
    assert first.power_w == first.gpu_percent == 0
    assert first.energy_mj == second.energy_mj


# --- loads -----------------------------------------------------------------------------------------------------------


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
    found = levels(replace(GPU, load=spec, seed=seed), at)
    assert low - 1e-9 <= found.gpu == found.memory <= high + 1e-9


def run(pattern, seed="a", *, count=20, period=10.0):
    spec = EntryTelemetry.model_construct(pattern=pattern, period=period, gpu=Range(0, 100))
    info = replace(GPU, load=spec, seed=seed)
    return [levels(info, 5.0 * number).gpu for number in range(count)]


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
