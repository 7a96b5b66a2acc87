"""The documentation's examples run unchanged, and its tables list the printed events."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.kit import forkserver
from tests.kit.vdev_node import VdevNode
from tests.sim.conftest import documented_events
from vdev.sim import Phase, PodStatus, manifest
from vdev.sim.objects import pod_manifest
from vdev.sim.objects.pods import ContainerStatus, Kind, pod_json
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
async def test_example_scenario_passes():
    """The example scenario is valid and passes."""
    async with VdevNode() as driver:
        await play(parse(yaml.safe_load(snippet("yaml"))), driver, patience=30)


def test_no_event_is_documented_that_does_not_exist():
    """Each event in the documentation exists in the sources."""
    sources = "".join(path.read_text() for path in (ROOT / "vdev" / "sim").rglob("*.py"))
    assert [] == [event for event in documented_events() if f'"{event}"' not in sources]


def test_the_fields_of_pods_are_documented():
    """The fields of pods and containers are documented."""
    pod = pod_json(
        PodStatus(pod_manifest.parse(manifest("p")), Phase.RUNNING, containers=(ContainerStatus("main", Kind.APP),))
    )
    assert set(pod) == documented_events()["pod"]
    (container,) = pod["containers"]
    paragraph = TEXT.partition("\nEach of a pod's `containers`")[2].partition("\n\n")[0]
    assert set() == set(container) - set(re.findall(r"`(\w+)`", paragraph))
