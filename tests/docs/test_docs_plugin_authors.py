"""The page for authors of plugins: its scenario is played, and its table tells what there is."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from vdev.sim.scenarios import library
from vdev.sim.scenarios.command_node import PLACES

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "plugin-authors.md").read_text()


@pytest.mark.long
def test_the_scenario_comes_true(tmp_path):
    """By the command below it, word for word."""
    (story, command) = re.findall(r"<!-- scenario -->\n```\w+\n(.*?)```", TEXT, re.DOTALL)
    (tmp_path / "second.yaml").write_text(story)
    shim = tmp_path / "bin" / "vdev"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m vdev "$@"\n')
    shim.chmod(0o755)
    environ = os.environ | {"PATH": f"{shim.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=100, check=False
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    assert "second: Whoever comes second waits for nothing" in done.stdout


def test_the_tables_are_complete():
    """Each scenario of the library, and each placeholder, has a row."""
    rows = set(re.findall(r"^\| `([^`]+)` \|", TEXT, re.MULTILINE))
    assert {*library.NAMES, *(f"{{{name}}}" for name in PLACES)} == rows
