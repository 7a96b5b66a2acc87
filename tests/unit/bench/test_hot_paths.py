"""The hot paths take about as many yards of instructions as recorded; `python -m bench.counts` shows them."""

from bench import counts


def test_hot_paths_have_not_grown():
    """No hot path executes many more bytecode instructions than its baseline says, on whatever Python."""
    assert [] == counts.complaints(counts.measure(), counts.baseline())


def test_counts_are_repeatable():
    """Counting twice gives the same number, and twice the work nearly twice the number."""
    once = counts.instructions(lambda: [number * number for number in range(100)])
    twice = counts.instructions(lambda: [number * number for number in range(200)])
    assert once == counts.instructions(lambda: [number * number for number in range(100)])
    assert 1.8 < twice / once < 2.1


def test_growth_beyond_the_margin_is_named():
    """A path that takes far more than its baseline is complained of, with what to do; within the margin it is not."""
    measured = {"a": 100, "b": 300, "c": 10}
    (grown, unknown) = counts.complaints(measured, {"a": 99, "b": 100})
    assert grown.startswith("'b' takes 300 yards of bytecode, 3.0 times the 100 recorded (allowed: 1.5)")
    assert unknown.startswith("'c' has no baseline")
