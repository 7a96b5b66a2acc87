"""The span in which two sequences differ is right and as short as it can be."""

from hypothesis import given
from hypothesis import strategies as st

from vdev.core.model import spans

OBJECTS = [object() for _ in range(4)]
LONG = st.lists(st.sampled_from(OBJECTS), max_size=5).flatmap(
    lambda some: st.integers(0, 2100).map(lambda more: some + OBJECTS[:1] * more + some)
)


@given(LONG, LONG)
def test_what_is_outside_is_the_same(old, new):
    """Also where the sequences are longer than what is compared in one go."""
    start, old_end, new_end = spans.changed(old, new)
    assert new[:start] == old[:start]
    assert new[new_end:] == old[old_end:]
    assert start <= min(old_end, new_end)


@given(LONG, LONG)
def test_nothing_shorter_will_do(old, new):
    """The first and the last in it differ."""
    start, old_end, new_end = spans.changed(old, new)
    if start < min(old_end, new_end):
        assert old[start] is not new[start]
        assert old[old_end - 1] is not new[new_end - 1]
    else:
        assert start == len(old[:old_end]) or start == len(new[:new_end])


@given(LONG)
def test_pieces(items):
    """All of them, in order."""
    assert items == [each for some in spans.pieces(items) for each in some]


@given(LONG)
def test_batches(items):
    """The same of what has no places, a thousand at the most."""
    found = list(spans.batches(iter(items)))
    assert items == [each for some in found for each in some]
    assert all(0 < len(some) <= 1000 for some in found)
