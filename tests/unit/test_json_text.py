"""JSON from outside: accepted and refused texts."""

import pytest

from vdev.json_text import parse_json
from vdev.sim.device_manager import device_checkpoint


def test_text_and_bytes_are_parsed():
    assert {"a": [1, None]} == parse_json(b'{"a": [1, null]}')
    assert "x" == parse_json('"x"')


def test_invalid_json_is_a_value_error(subtests):
    """At any depth."""
    for text in ["", "{", "[" * 100_000, '{"a":' * 100_000, b"\xff"]:
        with subtests.test(text=text), pytest.raises(ValueError, match=r"."):
            parse_json(text)


def test_a_text_that_is_too_long_is_not_parsed():
    with pytest.raises(ValueError, match="longer than 9 bytes"):
        parse_json("[" * 10, longest=9)


def test_a_deeply_nested_checkpoint_is_damaged(tmp_path):
    (tmp_path / device_checkpoint.FILE_NAME).write_text("[" * 100_000)
    data, problem = device_checkpoint.read(tmp_path)
    assert (None, True) == (data, "nested" in problem)
