"""The page for authors of plugins: its scenarios run, and its tables are complete."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.kit import reader
from vdev.sim.scenarios.node import PLACEHOLDERS
from vdev.sim.scenarios.scenario import NAMES

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "plugin-authors.md").read_text()


@pytest.fixture
def run(tmp_path):
    """Run the command of a marked block next to the marked file. Returns its output."""

    def run(mark, name):
        text, command = (block.text for block in reader.blocks(TEXT) if block.mark == mark)
        (tmp_path / name).write_text(text)
        environ = reader.environ(TEXT, tmp_path)
        done = subprocess.run(
            ["sh", "-c", command], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=100, check=False
        )
        assert 0 == done.returncode, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.mark.long
def test_the_scenario(run):
    assert "second: The second pod is rejected" in run("scenario", "second.yaml")


@pytest.mark.long
def test_the_scenario_for_a_dra_driver(run):
    assert "1 scenario in" in run("driver", "npus.yaml")


def test_the_tables_are_complete():
    """Each scenario of the library and each placeholder has a row."""
    rows = set(re.findall(r"^\| `([^`]+)` \|", TEXT, re.MULTILINE))
    assert {*NAMES, *(f"{{{name}}}" for name in PLACEHOLDERS)} == rows
