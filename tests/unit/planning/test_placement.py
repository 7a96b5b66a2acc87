"""Placement of partitions, and errors if they do not fit."""

from collections import Counter
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.geometry import made_geometry, made_profile
from vdev.model.geometry import LayoutError, Placement, layout
from vdev.planning.partitions import place

GIB = 2**30


def profile(name, slices, placements, compute, **more):
    return made_profile(name=name, slices=slices, memory=slices * GIB, placements=placements, compute=compute, **more)


A100 = made_geometry(
    slices=8,
    compute=7,
    profiles=(
        profile("1g.5gb", 1, tuple(range(7)), 1),
        profile("1g.5gb+me", 1, tuple(range(7)), 1, max=1, exclusive="media"),
        profile("1g.10gb", 2, (0, 2, 4, 6), 1),
        profile("2g.10gb", 2, (0, 2, 4), 2),
        profile("3g.20gb", 4, (0, 4), 3),
        profile("4g.20gb", 4, (0,), 4),
        profile("7g.40gb", 8, (0,), 7),
    ),
    layouts={"all-balanced": ("1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb")},
)
MODES = made_geometry(
    slices=8,
    profiles=tuple(
        made_profile(name=name, slices=slices, memory=slices * 24 * GIB, placements=tuple(range(0, 8, slices)))
        for name, slices in (("spx_nps1", 8), ("dpx_nps1", 4), ("qpx_nps4", 2), ("cpx_nps4", 1))
    ),
    resource_prefix="",
    whole_device=True,
)


def shown(placements):
    return [str(placement) for placement in placements]


def test_layouts_of_real_hardware_are_placed(subtests):
    """An A100 allows these starts, in the order of the list."""
    cases = [
        ([], []),
        (["7g.40gb"], ["7g.40gb@0"]),
        (["3g.20gb", "3g.20gb"], ["3g.20gb@4", "3g.20gb@0"]),
        (["3g.20gb", "4g.20gb"], ["3g.20gb@4", "4g.20gb@0"]),
        (["1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb"], ["1g.5gb@0", "1g.5gb@1", "2g.10gb@2", "3g.20gb@4"]),
        (["1g.5gb"] * 7, [f"1g.5gb@{start}" for start in range(7)]),
        (["1g.10gb"] * 4, ["1g.10gb@6", "1g.10gb@4", "1g.10gb@2", "1g.10gb@0"]),
        (["2g.10gb", "2g.10gb", "2g.10gb", "1g.10gb"], ["2g.10gb@4", "2g.10gb@2", "2g.10gb@0", "1g.10gb@6"]),
        (["4g.20gb", "2g.10gb", "1g.5gb+me"], ["4g.20gb@0", "2g.10gb@4", "1g.5gb+me@6"]),
        (["1g.5gb@4", "3g.20gb"], ["1g.5gb@4", "3g.20gb@0"]),
    ]
    for wanted, expected in cases:
        with subtests.test(wanted=wanted):
            assert expected == shown(place(A100, wanted))


def test_refused_layouts_name_the_clash(subtests):
    """The hardware refuses the list: the error names the item, the conflict, and what is allowed."""
    cases = [
        (
            ["3g.20gb", "3g.20gb", "1g.5gb"],
            2,
            "1g.5gb takes 1 slice from 0, 1, 2, 3, 4, 5 or 6, and does not fit beside 3g.20gb@0, 3g.20gb@4",
        ),
        (
            ["1g.5gb"] * 5 + ["3g.20gb"],
            5,
            "3g.20gb takes 4 slices from 0 or 4, and does not fit beside "
            "1g.5gb@0, 1g.5gb@1, 1g.5gb@2, 1g.5gb@3, 1g.5gb@4",
        ),
        (["1g.5gb", "7g.40gb"], 1, "7g.40gb takes 8 slices from 0, and does not fit beside 1g.5gb@0"),
        (["1g.5gb+me", "2g.10gb", "1g.5gb+me"], 2, "1g.5gb+me needs 1 of media, and those before it leave 0 of 1"),
        (
            ["1g.5gb@2", "1g.5gb", "1g.5gb@2"],
            2,
            "1g.5gb takes 1 slice from 2, and does not fit beside 1g.5gb@0, 1g.5gb@2",
        ),
        (["2g.10gb@1"], 0, "'2g.10gb@1': 2g.10gb cannot start at slice 1", "it starts at 0, 2 or 4"),
        (
            ["2g.10gb@"],
            0,
            "'2g.10gb@': 2g.10gb cannot start at slice (nothing)",
            "it starts at 0, 2 or 4",
        ),
        (
            ["1g.5gb", "3g.2gb"],
            1,
            "unknown profile '3g.2gb'",
            "did you mean '3g.20gb'? allowed: 1g.5gb, 1g.5gb+me, 1g.10gb, 2g.10gb, 3g.20gb, 4g.20gb, 7g.40gb",
        ),
        (
            ["1c.3g.20gb"],
            0,
            "'1c.3g.20gb' is a compute instance inside a 3g.20gb; only whole partitions can be advertised",
            "use '3g.20gb'",
        ),
    ]
    for wanted, position, text, *hint in cases:
        with subtests.test(wanted=wanted):
            with pytest.raises(LayoutError) as refused:
                place(A100, wanted)
            assert (text, position) == (str(refused.value), refused.value.position)
            assert hint == [refused.value.hint] or not hint


@pytest.mark.parametrize(
    ("name", "near"),
    [("1g.5gb", "1g.10gb"), ("1g.5gb+me", "1g.10gb+me"), ("2g.10gb", "2g.20gb"), ("7g.40gb", "7g.80gb")],
)
def test_a_profile_of_another_model_has_a_suggestion(name, near):
    """A profile of an A100 of 40 GB, on a device with twice the memory."""
    large = made_geometry(
        slices=8,
        profiles=tuple(
            made_profile(name=each, slices=1, memory=1)
            for each in ("1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "7g.80gb")
        ),
    )
    with pytest.raises(LayoutError) as refused:
        place(large, [name])
    assert refused.value.hint.startswith(f"did you mean {near!r}? ")
    with pytest.raises(LayoutError) as refused:
        layout(large, f"all-{name}")
    assert refused.value.hint.startswith(f"did you mean 'all-{near}'? ")


def test_compute_slices_are_limited_separately():
    """A list whose memory slices fit is refused if the compute slices do not."""
    tight = made_geometry(slices=4, compute=3, profiles=(profile("2x", 2, (0, 2), 2), profile("1x", 1, (), 1)))
    with pytest.raises(LayoutError, match=r"^2x needs 2 of compute-slices, and those before it leave 1 of 3$"):
        place(tight, ["1x", "1x", "2x"])


def test_engines_are_limited_separately():
    """A profile that takes all decoders leaves none to others; one without decoders fits next to it."""

    def of(name, decoders):
        return made_profile(
            name=name, slices=1, memory=1, attributes={"engines.decoder": decoders, "engines.x": "many"}
        )

    shared = made_geometry(slices=4, profiles=(of("all", "4"), of("one", "1"), of("none", "0")))
    assert 4 == len(place(shared, ["none", "all", "none", "none"]))
    assert 1 == len(layout(shared, "all-all"))
    with pytest.raises(LayoutError, match=r"^one needs 1 of engines-decoder, and those before it leave 0 of 4$") as no:
        place(shared, ["none", "all", "one"])
    assert 2 == no.value.position


def test_the_search_gives_up_on_a_grid_that_no_hardware_has():
    """A search that would take very long ends with an error that says what to do."""
    comb = tuple(
        made_profile(name=f"p{number}", slices=3, memory=1, placements=tuple(range(number % 3, 190, 2)))
        for number in range(64)
    )
    with pytest.raises(LayoutError, match="no arrangement of the 64 partitions was found within 200000 steps"):
        place(made_geometry(slices=192, profiles=comb), [each.name for each in comb])


def test_unknown_layout():
    with pytest.raises(LayoutError, match="unknown layout 'all-balancd'") as refused:
        layout(A100, "all-balancd")
    assert refused.value.hint.startswith("did you mean 'all-balanced'? allowed: all-1g.5gb, ")


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (["cpx_nps4"] * 3, "a device in mode cpx_nps4 has 8 partitions, and the list has 3"),
        (["dpx_nps1", "cpx_nps4"], "the device is cut in one mode, with all partitions alike"),
        (["spx_nps4"], "unknown profile 'spx_nps4'"),
    ],
)
def test_invalid_modes(wanted, text):
    """A part of a mode, two modes at once, and an unknown mode."""
    with pytest.raises(LayoutError, match=text):
        place(MODES, wanted)


# --- properties -------------------------------------------------------------------------------------------------------

NAMES = [each.name for each in A100.profiles.values()]


@st.composite
def geometries(draw):
    """Small grids of any shape, with budgets and exclusive parts."""
    slices = draw(st.integers(1, 6))
    compute = draw(st.none() | st.integers(1, 6))
    profiles = []
    for number in range(draw(st.integers(1, 3))):
        size = draw(st.integers(1, slices))
        starts = st.lists(st.integers(0, slices - size), unique=True)
        profiles.append(
            made_profile(
                name=f"p{number}",
                slices=size,
                memory=1,
                placements=tuple(draw(starts)),
                compute=None if compute is None else draw(st.integers(0, compute)),
                max=draw(st.none() | st.integers(1, 3)),
                exclusive=draw(st.none() | st.just("x")),
            )
        )
    return made_geometry(slices=slices, compute=compute, profiles=tuple(profiles))


@st.composite
def geometry_and_list(draw):
    geometry = draw(geometries())
    return geometry, draw(st.lists(st.sampled_from([each.name for each in geometry.profiles.values()]), max_size=4))


def rules_hold(geometry, placements):
    """An independent definition of a valid layout."""
    slices = [each for placement in placements for each in placement.slices]
    kinds = Counter(placement.profile.name for placement in placements)
    holders = Counter(placement.profile.exclusive for placement in placements if placement.profile.exclusive)
    return (
        len(slices) == len(set(slices))
        and all(0 <= each < geometry.slices for each in slices)
        and all(not p.profile.placements or p.start in p.profile.placements for p in placements)
        and (geometry.compute is None or sum(p.profile.compute for p in placements) <= geometry.compute)
        and all(each.max is None or kinds[each.name] <= each.max for each in geometry.profiles.values())
        and all(count == 1 for count in holders.values())
    )


def brute_force(geometry, wanted):
    """Whether any combination of starts obeys the rules."""
    profiles = [geometry.profile(name) for name in wanted]
    return any(
        rules_hold(geometry, [Placement(p, start) for p, start in zip(profiles, starts, strict=True)])
        for starts in product(*(geometry.starts(p) for p in profiles))
    )


def arranged(geometry, wanted):
    try:
        return place(geometry, wanted)
    except LayoutError:
        return None


def refused_at(geometry, wanted):
    try:
        place(geometry, wanted)
    except LayoutError as refused:
        return refused.position
    return None


@given(geometry_and_list())
def test_place_finds_an_arrangement_exactly_when_one_exists(case):
    """An answer is valid, and without one there is no valid arrangement."""
    geometry, wanted = case
    found = arranged(geometry, wanted)
    assert brute_force(geometry, wanted) == (found is not None)
    assert found is None or (wanted == [p.profile.name for p in found] and rules_hold(geometry, found))


@given(geometry_and_list(), st.randoms(use_true_random=False))
def test_the_order_of_the_list_moves_nothing(case, random):
    """The same partitions have the same places in any order of the list."""
    geometry, wanted = case
    shuffled = random.sample(wanted, len(wanted))
    first, second = arranged(geometry, wanted), arranged(geometry, shuffled)
    assert (first and sorted(map(str, first))) == (second and sorted(map(str, second)))


@given(geometry_and_list())
def test_the_error_names_the_first_item_that_does_not_fit(case):
    geometry, wanted = case
    position = refused_at(geometry, wanted)
    assert position is None or brute_force(geometry, wanted[:position])
    assert position is None or not brute_force(geometry, wanted[: position + 1])


def test_one_more_small_partition_moves_no_other():
    """As long as there is room."""
    for wanted in permutations(["3g.20gb", "2g.10gb", "1g.5gb"]):
        before, after = place(A100, wanted), place(A100, [*wanted, "1g.5gb"])
        assert set(map(str, before)) < set(map(str, after))
