"""A driver that is killed at any moment of a call: the next one ends right, whichever it is."""

import json
import subprocess
import sys

import pytest


@pytest.mark.long
def test_a_process_may_end_at_any_point(directory):
    """Between CDI file, record and answer, and at everything else that shows; 20 points or more in each call."""
    ran = subprocess.run(
        (sys.executable, "-m", "tests.kit.dra_mortal", str(directory)), capture_output=True, text=True, timeout=100
    )
    assert 0 == ran.returncode, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert [] == found["wrong"]
    assert 4 == len(found["points"])
    assert min(found["points"].values()) > 20
