"""Counters allow exactly the layouts that the hardware allows."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.geometry import made_geometry, made_profile
from vdev.config.presets import load_preset, preset_names
from vdev.dra import nvidia_devices
from vdev.model.geometry import LayoutError, Limit
from vdev.planning.partitions import MAX_COUNTERS, counters, place, placements

CUT = [
    name
    for name in preset_names()
    if (preset := load_preset(name)).partitioning and not preset.partitioning.whole_device
]


def fits(known, chosen):
    taken = Counter()
    for each in chosen:
        taken.update(known.taken_by(each.profile.name, each.slices))
    return all(amount <= known.all[key] for key, amount in taken.items())


def can_be(geometry, chosen):
    try:
        place(geometry, [str(each) for each in chosen])
    except LayoutError:
        return False
    return True


@st.composite
def geometries(draw):
    slices = draw(st.integers(1, 8))
    compute = draw(st.none() | st.integers(1, 8))
    profiles = []
    for number in range(draw(st.integers(1, 4))):
        size = draw(st.integers(1, slices))
        starts = draw(st.lists(st.integers(0, slices - size), unique=True, max_size=4))
        profiles.append(
            made_profile(
                name=f"p{number}.{size}x",
                slices=size,
                memory=size,
                placements=tuple(starts),
                compute=None if compute is None else draw(st.integers(0, compute)),
                max=draw(st.none() | st.integers(1, 4)),
                exclusive=draw(st.sampled_from([None, None, "media extensions", "a", "memory-slice-0", "!"])),
            )
        )
    return made_geometry(slices=slices, compute=compute, profiles=tuple(profiles))


@given(st.data(), geometries())
def test_any_geometry(data, geometry):
    """The counters admit a set of partitions if and only if it can be placed."""
    every = list(placements(geometry))
    chosen = data.draw(st.lists(st.sampled_from(every), unique_by=str, max_size=8))
    assert can_be(geometry, chosen) == fits(counters(geometry), chosen)


@pytest.mark.parametrize("name", CUT)
@given(data=st.data())
def test_presets_with_nvidias_counters(name, data):
    """Counters of vdev are added if NVIDIA's alone would admit impossible layouts."""
    geometry = load_preset(name).partitioning
    every = list(placements(geometry))
    chosen = data.draw(st.lists(st.sampled_from(every), unique_by=str, max_size=8))
    known = counters(geometry, nvidia_devices.limits(geometry))
    assert can_be(geometry, chosen) == fits(known, chosen)
    assert len(known.all) <= MAX_COUNTERS


def test_an_a100_has_only_nvidias_counters():
    geometry = load_preset("a100-sxm4-40gb").partitioning
    assert {
        "copy-engines": 7,
        "decoders": 5,
        "encoders": 0,
        "jpeg-engines": 1,
        "memory": 40192 * 2**20,
        "multiprocessors": 98,
        "ofa-engines": 1,
        **{f"memory-slice-{number}": 1 for number in range(8)},
    } == counters(geometry, nvidia_devices.limits(geometry)).all


def test_a_limit_that_another_implies_needs_no_counter():
    strict, loose = Limit("a", 2, {"p": 1, "q": 2}), Limit("b", 4, {"p": 2})
    assert strict.implies(loose)
    assert not loose.implies(strict)
    assert not Limit("of nothing", 0, {"p": 0}).implies(loose)
