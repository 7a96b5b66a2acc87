"""JSON from outside: what is read of it, and what is refused."""

import pytest

from vdev.json_text import parse_json
from vdev.sim.device_manager import device_checkpoint


def test_what_is_read():
    """Text and bytes."""
    assert {"a": [1, None]} == parse_json(b'{"a": [1, null]}')
    assert "x" == parse_json('"x"')


def test_what_is_refused(subtests):
    """With the error that callers of a parser expect, however deep it is."""
    for text in ["", "{", "[" * 100_000, '{"a":' * 100_000, b"\xff"]:
        with subtests.test(text=text), pytest.raises(ValueError, match=r"."):
            parse_json(text)


def test_a_text_that_is_too_long():
    """It is not even parsed."""
    with pytest.raises(ValueError, match="longer than 9 bytes"):
        parse_json("[" * 10, longest=9)


def test_a_checkpoint_that_is_nested_deeply(tmp_path):
    """It counts as damaged."""
    (tmp_path / device_checkpoint.FILE_NAME).write_text("[" * 100_000)
    data, problem = device_checkpoint.read(tmp_path)
    assert (None, True) == (data, "nested" in problem)
