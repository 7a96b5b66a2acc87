"""A document in pieces is the very text that `json.dumps` makes of it."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdev.observe.json_pieces import Json, json_pieces

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
LONG = st.builds(lambda value, times: [value] * times, SCALARS, st.integers(99, 202))
DOCUMENTS = st.recursive(
    SCALARS | LONG, lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=3), each, max_size=3)
)


@given(DOCUMENTS, st.sampled_from([(", ", ": "), (",", ":")]))
def test_the_same_text(document, separators):
    """Whatever is long in it, and however deep."""
    wanted = json.dumps(document, separators=separators)
    assert wanted.encode() == b"".join(json_pieces(document, separators))
    assert wanted.encode() == b"".join(json_pieces(copy.deepcopy(document), separators, spent=True))
    assert wanted == json.dumps(document, separators=separators)  # it is as it was


def test_a_part_that_is_encoded_already():
    """It stands where it is put."""
    part = Json(json_pieces({"a": [1, 2]}))
    assert b'{"ok": true, "result": {"a": [1, 2]}}' == b"".join(json_pieces({"ok": True, "result": part}))


@pytest.mark.parametrize("many", [1, 250])
def test_no_piece_is_long(many):
    """Neither a long list is one piece, nor a list of things with long lists."""
    document = {"resources": [{"name": f"r{n}", "devices": [{"id": f"d{d}"} for d in range(300)]} for n in range(many)]}
    assert max(map(len, json_pieces(document))) <= 100 * len('{"id": "d299"}, ')
