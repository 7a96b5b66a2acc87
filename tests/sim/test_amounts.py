"""Quantities in pods and slices, and their canonical form."""

import pytest

from tests.kit.canonical_store import canonical
from vdev.sim.objects.pod_manifest import ManifestError, quantity


def test_canonical_quantities(subtests):
    """The canonical form has the largest suffix with a whole number. Invalid quantities stay, and are refused later."""
    cases = [
        ("0", "0"),
        ("0Gi", "0"),
        (4, "4"),
        (0.5, "500m"),
        ("999", "999"),
        ("1000", "1k"),
        ("1500", "1500"),
        ("10000", "10k"),
        ("70000", "70k"),
        ("1000000", "1M"),
        ("1024", "1024"),
        ("+5", "5"),
        ("-2000", "-2k"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.1", "100m"),
        ("1.", "1"),
        (".5Ki", "512"),
        ("1024Ki", "1Mi"),
        ("1000Ki", "1000Ki"),
        ("1.5Gi", "1536Mi"),
        ("0.3Ki", "307200m"),
        ("40960Mi", "40Gi"),
        ("1e3", "1k"),
        ("1E", "1E"),
        ("0.1n", "1n"),
        ("much", "much"),
        (True, True),
        (None, None),
    ]
    for written, back in cases:
        with subtests.test(written=written):
            assert back == canonical(written)
            assert back == canonical(back)


def test_invalid_quantities(subtests):
    """Kubernetes accepts neither spaces nor underscores, and only one suffix or exponent."""
    for written in [
        *["", " 1", "1 ", "1_0", "\uff11", "1K", "1ki", "1e", "1e3k", "0x1", "inf", "NaN", "1.2.3"],
        True,
        None,
    ]:
        with subtests.test(written=written):
            with pytest.raises(ManifestError):
                quantity(written, "x")
            assert written is canonical(written)
