"""The documentation's examples run as they stand."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.kit import forkserver
from vdev.sim import lint
from vdev.sim.scenarios.embedded_driver import SimDriver
from vdev.sim.scenarios.play import play
from vdev.sim.scenarios.scenario import parse

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "embedded-kubelet.md").read_text()


def snippet(language):
    """The document's only snippet in a language."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)
    return found


@pytest.mark.long
def test_example_test_passes(tmp_path):
    """The example is a test that passes."""
    (tmp_path / "test_example.py").write_text(snippet("python"))
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    command = [forkserver.python(), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, "-c"]
    command += [tmp_path / "pytest.ini", tmp_path / "test_example.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert 0 == done.returncode, done.stdout + done.stderr


@pytest.mark.usefixtures("prepared_python")
async def test_example_scenario_comes_true():
    """The example scenario is valid and passes."""
    async with SimDriver() as driver:
        assert [] == await play(parse(yaml.safe_load(snippet("yaml"))), driver, patience=30)


def test_every_finding_is_documented():
    """Every code in the sources is in the table of findings."""
    codes = set()
    for path in Path(lint.__file__).parent.glob("*.py"):
        codes |= set(re.findall(r'(?:_error|_warning|Finding)\(\s*"([a-z-]+)"', path.read_text()))
    assert set() == codes - set(re.findall(r"`([a-z-]+)`", TEXT))
