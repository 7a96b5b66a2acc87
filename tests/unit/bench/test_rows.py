"""What a row is judged by."""

import pytest

from bench.rows import dra
from bench.table.row import timed


def test_a_budget_over_the_floor_is_judged_round_by_round():
    """A round that was slow for both sides adds nothing to the difference, and the unit is the row's."""
    ours, floor = [[0.004], [0.104], [0.005]], [[0.001], [0.101], [0.001]]
    row = timed("group", "what", ours, floor, over_limit=3.5)
    (budget,) = row.budgets
    assert ("≤ 3.5 ms over floor", True) == (budget.text, row.holds)
    assert pytest.approx(3.0) == budget.judged
    assert timed("group", "what", ours, floor, over_limit=2.5).holds is False


def test_a_row_holds_when_all_its_budgets_do():
    """Tails are compared over all rounds, and the worst of all samples counts."""
    ours, floor = [[0.001] * 99 + [0.009], [0.001] * 100], [[0.001] * 100, [0.001] * 98 + [0.004] * 2]
    row = timed("group", "what", ours, floor, tail_limit=2.0, worst_limit=8.0)
    assert [("p99 ≤ 2 x floor", True), ("worst ≤ 8 ms", False)] == [(each.text, each.holds) for each in row.budgets]
    assert row.holds is False
    assert timed("group", "what", ours, floor, tail_limit=2.0).holds
    assert timed("group", "what", ours, floor).holds is None


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
