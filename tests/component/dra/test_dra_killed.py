"""A driver that is killed at any moment of a call: the next one ends right, whichever it is."""

import json
import subprocess

import pytest

from tests.kit import forkserver


@pytest.mark.long
def test_a_process_may_end_at_any_point(directory):
    """Between CDI file, record and answer, and at all else that shows; some of 20 points or more in a call."""
    ran = subprocess.run(
        (forkserver.python(), "-m", "tests.kit.dra_mortal", str(directory)), capture_output=True, text=True, timeout=100
    )
    assert 0 == ran.returncode, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert [] == found["wrong"]
    assert 4 == len(found["points"])
    assert min(found["points"].values()) > 20
