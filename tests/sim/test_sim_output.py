"""What `vdev sim` prints: differences, and events that are as documented."""

import io
import json
import re
import typing
from pathlib import Path

import pytest

from vdev.sim import Capacity, Edits, Phase, PodStatus, Severity, journal, manifest
from vdev.sim.app import Output, Printer
from vdev.sim.lint import Finding
from vdev.sim.objects import pod_manifest
from vdev.sim.objects.node_devices import PluginOptions
from vdev.sim.objects.pods import ContainerStatus, Kind
from vdev.sim.render import entry_json

TEXT = (Path(__file__).parents[2] / "docs" / "embedded-kubelet.md").read_text()
POD = PodStatus(
    pod_manifest.parse(manifest("p")), Phase.RUNNING, containers=(ContainerStatus("main", Kind.APP, edits=Edits()),)
)
ENTRIES = [
    journal.Lifecycle("started", "/k.sock"),
    journal.Registered("acme.dev/npu", "npu.sock", PluginOptions()),
    journal.RegistrationWaits("acme.dev/npu", "npu.sock"),
    journal.RegistrationFailed("npu", "npu.sock", "the name is invalid"),
    journal.Listed("acme.dev/npu", 1, 0),
    journal.PluginLost("acme.dev/npu", "EOF"),
    journal.NodeChanged(Capacity({"acme.dev/npu": 1}, {"acme.dev/npu": 1})),
    journal.PodChanged(POD),
    journal.PodDeleted(POD),
    journal.ManifestRefused("a.yaml", "no pod"),
    journal.PodWaiting("default/p", "no room"),
    journal.DriverRegistered("acme.dev", "/a.sock", "v1.DRAPlugin"),
    journal.DriverRefused("/a.sock", "no"),
    journal.DriverGone("acme.dev", "/a.sock", "gone"),
    journal.SlicesDeleted("acme.dev", 1, "gone"),
    journal.ClaimChanged("default/c", "prepared"),
    Finding("empty-id", Severity.ERROR, "acme.dev/npu", "a device has an empty id"),
]


def documented():
    """The fields of each kind of event, by the table."""
    table = TEXT.partition("### Events")[2].partition("\n\nEach of")[0]
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\| (.*) \|$", table, re.MULTILINE)
    return {event: set(re.findall(r"`(\w+)`", fields)) for event, fields in rows}


def test_each_event_is_documented(subtests):
    """Its kind is a row of the table, which names every field."""
    for entry in ENTRIES:
        with subtests.test(entry=entry):
            event = entry_json(entry)
            assert set(event) - {"event"} <= documented()[event["event"]]


def test_every_kind_is_an_event_here():
    """None is forgotten above, and the table has none that does not exist; those of scenarios are tested with them."""
    assert set(typing.get_args(journal.Entry)) == {type(each) for each in ENTRIES}
    assert {entry_json(each)["event"] for each in ENTRIES} == {*documented()} - {"event", "scenario", "step"}


def test_the_fields_of_containers_are_documented():
    """The paragraph below the table names them all."""
    (container,) = entry_json(journal.PodChanged(POD))["containers"]
    paragraph = TEXT.partition("\nEach of a pod's `containers`")[2].partition("\n\n")[0]
    assert set() == set(container) - set(re.findall(r"`(\w+)`", paragraph))


@pytest.mark.parametrize("output", Output)
def test_what_did_not_change_is_not_printed_again(output):
    """As 64 resources come one after the other, each is printed once."""
    out = io.StringIO()
    printer = Printer(output, out)
    numbers = {}
    for number in range(64):
        numbers[f"acme.dev/npu-{number:02}"] = number
        printer.print(journal.NodeChanged(Capacity(dict(numbers), dict(numbers))))
    assert 64 == len(out.getvalue().splitlines())
    assert {1} == {
        out.getvalue().count(f"npu-{number:02}") // (2 if output is Output.JSON else 1) for number in range(64)
    }


def test_json_has_both_numbers_of_what_changed():
    """Whether the one or the other changed."""
    out = io.StringIO()
    printer = Printer(Output.JSON, out)
    for healthy in (2, 1):
        printer.print(journal.NodeChanged(Capacity({"a.b/c": 2, "a.b/d": 1}, {"a.b/c": healthy, "a.b/d": 1})))
    last = json.loads(out.getvalue().splitlines()[-1])
    assert {"event": "node", "capacity": {"a.b/c": 2}, "allocatable": {"a.b/c": 1}} == last
