"""The output of `vdev sim`, and its documented events (`conftest` checks those of all tests)."""

import re
from pathlib import Path

from tests.sim.conftest import documented_events
from vdev.sim import Capacity, Edits, Phase, PodStatus, manifest
from vdev.sim.journal import Journal
from vdev.sim.kubelet.node_status import NodeStatus
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


def test_what_did_not_change_is_not_told_again():
    """Each of 64 new resources is reported once."""
    journal = Journal()
    node = NodeStatus(journal, {})
    numbers = {}
    for number in range(64):
        numbers[f"acme.dev/npu-{number:02}"] = number
        node.update(Capacity(dict(numbers), dict(numbers)))
    text = "\n".join(journal.history(100))
    assert 64 == len(text.splitlines())
    assert {1} == {text.count(f"npu-{number:02}") for number in range(64)}


def test_an_event_has_both_numbers_of_what_changed():
    """A change of either number is reported."""
    journal = Journal()
    node = NodeStatus(journal, {})
    for healthy in (2, 1):
        node.update(Capacity({"a.b/c": 2, "a.b/d": 1}, {"a.b/c": healthy, "a.b/d": 1}))
    last = journal.entries[-1].document
    assert {"event": "node", "capacity": {"a.b/c": 2}, "allocatable": {"a.b/c": 1}} == last
