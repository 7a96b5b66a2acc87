"""The record of promises: what may change in it, and how."""

import pytest

from tests.kit.promises import differences, of_document, of_help, of_schema


@pytest.mark.parametrize(
    ("recorded", "new", "wrong"),
    [
        ("a\nb\n", [], 0),
        ("a\n", ["b"], 0),
        ("a\nb\nc\n", [], 1),
        ("a\nb\n- c  # nobody used it\n", [], 0),
        ("a\nb\n- c\n", [], 1),
        ("a\n- b  # it is there all the same\n", ["b"], 1),
        ("# a note\na\nb\n", [], 0),
    ],
)
def test_a_promise_is_kept_or_its_end_has_a_reason(recorded, new, wrong):
    """What comes is only recorded; what goes needs a line that says why."""
    added, complaints = differences(recorded, ["a", "b"])
    assert (new, wrong) == (added, len(complaints))


def test_a_key_that_becomes_needed_or_changes_its_type_breaks_a_promise():
    """And a new optional key, type or value breaks none."""

    def lines(properties, required=()):
        return set(of_schema({"type": "object", "properties": properties, "required": [*required]}))

    before = lines({"a": {"type": "string"}, "b": {"enum": ["x"]}}, ["a"])
    assert before <= lines({"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "b": {"enum": ["x", "y"]}}, ["a"])
    assert not before <= lines({"a": {"type": "integer"}, "b": {"enum": ["x"]}}, ["a"])
    assert not before <= lines({"a": {"type": "string"}, "b": {"enum": ["x"]}}, ["a", "b"])


def test_help_is_read_as_old_and_new_pythons_write_it():
    """Older ones repeat the value after the short flag."""
    old = "options:\n  -o {text,json}, --output {text,json}\n                        how [default: text; env A or B]\n"
    new = "options:\n  -o, --output {text,json}  how [default: text; env A or B]\n"
    expected = ["x -o VALUE", "x --output VALUE", "x --output: default: text", "x --output: env A", "x --output: env B"]
    assert expected == list(of_help("x", old)) == list(of_help("x", new))


def test_ids_in_a_document_are_no_keys_of_ours():
    """They are somebody's devices."""
    assert ["d: object", "d.byId: object", "d.byId.*: null"] == list(of_document("d", {"byId": {"npu-0": None}}))
