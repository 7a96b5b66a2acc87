"""The output of `vdev sim`, and its documented events (`conftest` checks those of all tests)."""

import re
from pathlib import Path

from tests.sim.conftest import documented_events
from vdev.sim import Edits, Phase, PodStatus, manifest
from vdev.sim.objects import pod_manifest
from vdev.sim.objects.pods import ContainerStatus, Kind
from vdev.sim.render import pod_json

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "embedded-kubelet.md").read_text()
POD = PodStatus(
    pod_manifest.parse(manifest("p")), Phase.RUNNING, containers=(ContainerStatus("main", Kind.APP, edits=Edits()),)
)


def test_no_event_is_documented_that_does_not_exist():
    """Each event in the documentation exists in the sources."""
    sources = "".join(path.read_text() for path in (ROOT / "vdev" / "sim").rglob("*.py"))
    assert [] == [event for event in documented_events() if f'"{event}"' not in sources]


def test_the_fields_of_pods_are_documented():
    """The fields of pods and containers are documented."""
    pod = pod_json(POD)
    assert set(pod) == documented_events()["pod"]
    (container,) = pod["containers"]
    paragraph = TEXT.partition("\nEach of a pod's `containers`")[2].partition("\n\n")[0]
    assert set() == set(container) - set(re.findall(r"`(\w+)`", paragraph))
