"""What a row is judged by."""

import pytest

from bench.rows import dra
from bench.table.row import timed


def test_a_budget_over_the_floor_is_judged_round_by_round():
    """A round that was slow for both sides adds nothing to the difference, and the unit is the row's."""
    ours, floor = [[0.004], [0.104], [0.005]], [[0.001], [0.101], [0.001]]
    row = timed("group", "what", ours, floor, over_limit=3.5)
    assert ("≤ 3.5 ms over floor", True) == (row.budget, row.holds)
    assert pytest.approx(3.0) == row.judged
    assert timed("group", "what", ours, floor, over_limit=2.5).holds is False


def slice_of(devices, *, of, generation=1):
    """The specification of a ResourceSlice."""
    return {"devices": [{}] * devices, "pool": {"generation": generation, "resourceSliceCount": of}}


@pytest.mark.parametrize(
    ("specs", "is_complete"),
    [
        ([], False),
        ([slice_of(128, of=2)], False),
        ([slice_of(128, of=2), slice_of(72, of=2, generation=2)], False),
        ([slice_of(128, of=2), slice_of(71, of=2)], False),
        ([slice_of(128, of=2), slice_of(72, of=2)], True),
    ],
)
def test_slices_are_published_when_their_pool_is_whole(specs, is_complete):
    """All slices of one generation are there, with all devices."""
    assert is_complete is dra.complete(specs, 200)
