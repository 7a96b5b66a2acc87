"""Many names in one text."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdev.model.names import NameRangeError, filled, parse_names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu", ["gpu"]),
        ("gpu-{0..2}", ["gpu-0", "gpu-1", "gpu-2"]),
        ("n{08..11}", ["n08", "n09", "n10", "n11"]),
        ("n{8..11}x", ["n8x", "n9x", "n10x", "n11x"]),
        ("r{1..2}-g{0..1}", ["r1-g0", "r1-g1", "r2-g0", "r2-g1"]),
        ("{7..7}", ["7"]),
    ],
)
def test_names(text, names):
    """Both ends are included, zeros fix the width, and the last range runs fastest."""
    found = parse_names(text)
    assert (names, len(names)) == ([name for name, _ in found], len(found))


@pytest.mark.parametrize(
    "text", ["a{1..}", "a{1-3}", "a{x..y}", "a{", "a}", "a{{0..1}}", "a{-1..3}", "a{0..1234567890}"]
)
def test_what_is_no_range(text):
    """It is said, with how one is written."""
    with pytest.raises(NameRangeError, match="braces that are no range"):
        parse_names(text)


def test_a_range_that_runs_backwards():
    """It would make nothing."""
    with pytest.raises(NameRangeError, match=r"the range \{3..1\} ends before it begins"):
        parse_names("a{3..1}")


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=3))
def test_names_differ_and_are_as_many_as_the_ranges_say(ends):
    """Whatever the ranges; the numbers are those in the name."""
    text = "n" + "-".join(f"{{{first}..{first + more}}}" for first, more in ends)
    found = list(parse_names(text))
    assert math.prod(more + 1 for _, more in ends) == len({name for name, _ in found}) == len(found)
    assert all(name == "n" + "-".join(numbers) for name, numbers in found)


def test_values_name_numbers():
    """By their place in the name."""
    assert "zone-1/g07/r1-g07" == filled("zone-{1}/g{2}/{name}", "r1-g07", ("1", "07"))


@pytest.mark.parametrize("text", ["{0}", "{2}", "{zone}", "{}"])
def test_a_number_that_there_is_not(text):
    """It is said, with those that there are."""
    with pytest.raises(NameRangeError, match=r"there are \{name\}, \{1\}"):
        filled(text, "a-1", ("1",))
