"""Manifests are read as Kubernetes reads them, and whatever cannot be read is one error."""

import pytest
import yaml

from vdev.sim.objects import yaml_text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2026-01-02", "2026-01-02"),
        ("2026-13-45", "2026-13-45"),
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("12:34", "12:34"),
        ("1:30.5", "1:30.5"),
        ("010", 8),
        ("0x10", 16),
        ("1.5", 1.5),
        ("-3", -3),
        ("yes", True),
        ("~", None),
        ("1Gi", "1Gi"),
        ('"5"', "5"),
    ],
)
def test_scalars(text, value):
    """Numbers and booleans of YAML 1.1, but nothing that only Python's reader makes of a text."""
    found = yaml_text.document(f"a: {text}")["a"]
    assert (value, type(value)) == (found, type(found))
    assert [{"a": found}, {"a": found}] == yaml_text.documents(f"a: {text}\n---\na: {text}\n")


@pytest.mark.parametrize(
    "text",
    ["a: !!int x", "a: !!bool x", "a: !!timestamp x", "a: !!float x", "a: " + "1" * 5000, "- " * 3000, "a: [", "\0"],
)
def test_what_cannot_be_read(text):
    """Is an error of YAML, whatever the reader trips over."""
    with pytest.raises(yaml.YAMLError):
        yaml_text.document(text)
    with pytest.raises(yaml.YAMLError):
        yaml_text.documents(text)


def test_merge_keys():
    assert {"x": 1, "y": 2} == yaml_text.document("a: &a {x: 1}\nb: {<<: *a, y: 2}")["b"]
