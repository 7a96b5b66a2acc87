"""A driver is killed at any moment of a call: the next driver handles the next call correctly."""

import json
import subprocess

import pytest

from tests.kit import forkserver


@pytest.mark.long
def test_a_process_may_end_at_any_point(directory):
    """Each call has more than 20 points (see `tests.kit.mortal`), of which a run tries some."""
    ran = subprocess.run(
        (forkserver.python(), "-m", "tests.kit.dra_mortal", str(directory)), capture_output=True, text=True, timeout=100
    )
    assert 0 == ran.returncode, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert [] == found["wrong"]
    assert 4 == len(found["points"])
    assert min(found["points"].values()) > 20
