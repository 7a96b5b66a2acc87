"""Manifests are read as in Kubernetes, and every failure is a YAML error."""

import pytest
import yaml

from vdev.sim.objects import yaml_text


def test_scalars(subtests):
    """Numbers and booleans follow YAML 1.1, without the dates and sexagesimal numbers of Python's reader."""
    cases = [
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
    ]
    for text, value in cases:
        with subtests.test(text=text):
            found = yaml_text.document(f"a: {text}")["a"]
            assert (value, type(value)) == (found, type(found))
            assert [(1, {"a": found}), (3, {"a": found})] == yaml_text.numbered_documents(
                f"a: {text}\n---\na: {text}\n"
            )


def test_unreadable_texts(subtests):
    """Each one raises an error of YAML, no matter what fails in the reader."""
    for text in [
        "a: !!int x",
        "a: !!bool x",
        "a: !!float x",
        "a: " + "1" * 5000,
        "- " * 3000,
        "a: [",
        "\0",
    ]:
        with subtests.test(text=text):
            with pytest.raises(yaml.YAMLError):
                yaml_text.document(text)
            with pytest.raises(yaml.YAMLError):
                yaml_text.numbered_documents(text)


def test_merge_keys():
    assert {"x": 1, "y": 2} == yaml_text.document("a: &a {x: 1}\nb: {<<: *a, y: 2}")["b"]
