"""Copies of API objects."""

import copy

from hypothesis import given
from hypothesis import strategies as st

from vdev.sim.objects.plain_objects import copied

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, st.just({"a": [1]})),
)


def containers(value):
    """All that can be changed in a document, and the document itself."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    found = [value] if isinstance(value, dict | list) else []
    return found + [each for one in inner for each in containers(one)]


@given(DOCUMENTS)
def test_a_copy_is_equal_and_shares_nothing_that_can_be_changed(document):
    """As with `copy.deepcopy`."""
    found = copied(document)
    assert copy.deepcopy(document) == found == document
    assert not {id(each) for each in containers(document)} & {id(each) for each in containers(found)}
