"""Amounts of memory in Kubernetes notation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdev.model.quantity import QuantityError, parse_quantity


def test_amounts(subtests):
    cases = [
        (0, 0),
        (512, 512),
        ("512", 512),
        ("+5", 5),
        ("4Gi", 4 * 2**30),
        ("40960Mi", 40960 * 2**20),
        ("1.5Gi", 3 * 2**29),
        (".5Ki", 512),
        ("5.Mi", 5 * 2**20),
        ("16k", 16_000),
        ("96G", 96 * 10**9),
        ("1Ti", 2**40),
        ("7Ei", 7 * 2**60),
        ("1E", 10**18),
        ("12e3", 12_000),
        ("12E3", 12_000),
        ("5000e-3", 5),
        ("9223372036854775807", 2**63 - 1),
    ]
    for text, expected in cases:
        with subtests.test(text=text):
            assert expected == parse_quantity(text)


def test_errors(subtests):
    """Each has the reason, and the likely suffix."""
    cases = [
        ("", "'' is not an amount; expected a whole number, or"),
        ("Gi", "'Gi' is not an amount"),
        ("4 Gi", "'4 Gi' is not an amount"),
        ("1_000", "'1_000' is not an amount"),
        ("\uff14Gi", "'\uff14Gi' is not an amount"),
        (True, "True is not an amount"),
        (1.5, r"1\.5 is not an amount"),
        (None, "None is not an amount"),
        ("4GB", "'4GB' has the unknown suffix 'GB'; did you mean 'G'?"),
        ("4GiB", "'4GiB' has the unknown suffix 'GiB'; did you mean 'Gi'?"),
        ("4gi", "'4gi' has the unknown suffix 'gi'; did you mean 'Gi'?"),
        ("4K", "'4K' has the unknown suffix 'K'; did you mean 'k'?"),
        ("4x", "'4x' has the unknown suffix 'x'; expected a whole number"),
        ("500m", "'500m' has the unknown suffix 'm'; amounts are whole numbers, and M is"),
        ("-4Gi", "'-4Gi' is negative"),
        (-4, "-4 is negative"),
        ("0.1Ki", "'0.1Ki' is not a whole number"),
        ("1e-3", "'1e-3' is not a whole number"),
        ("8Ei", r"'8Ei' is more than Kubernetes can count: the amount must be below 2\^63"),
        ("1e999", "'1e999' is more than Kubernetes can count"),
        ("9" * 5000, "is not an amount"),
    ]
    for text, message in cases:
        with subtests.test(text=text), pytest.raises(QuantityError, match=message.replace("?", r"\?")):
            parse_quantity(text)


@given(st.integers(0, 2**40), st.sampled_from(["", "Ki", "Mi", "k", "M"]))
def test_whole_amounts_are_exact(number, suffix):
    scale = {"": 1, "Ki": 1024, "Mi": 1024**2, "k": 1000, "M": 1000**2}[suffix]
    assert number * scale == parse_quantity(f"{number}{suffix}")
