"""Quantities in pods and slices."""

import pytest

from vdev.sim.objects.pod_manifest import ManifestError, quantity


def test_invalid_quantities(subtests):
    """Kubernetes accepts neither spaces nor underscores, and only one suffix or exponent."""
    for written in [
        *["", " 1", "1 ", "1_0", "\uff11", "1K", "1ki", "1e", "1e3k", "0x1", "inf", "NaN", "1.2.3"],
        True,
        None,
    ]:
        with subtests.test(written=written), pytest.raises(ManifestError):
            quantity(written, "x")
