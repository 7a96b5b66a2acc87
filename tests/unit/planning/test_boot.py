"""When the kubelet may start: what was there before is there again, or was waited for."""

from dataclasses import replace

import pytest

from vdev.agent.announcer import Outlook, absent, may_start
from vdev.model.device import Device, Health, RawDevice, Slot
from vdev.planning.resources import EMPTY, Inventory, Resource


def raw(name, *, healthy=True):
    return RawDevice(id=name, entry="port", index=0, health=Health(healthy=healthy))


def listed(*names):
    """An inventory of these whole devices."""
    slots = tuple(Slot(name, Device(id=name, raw=raw(name), ordinal="0")) for name in names)
    return Inventory({"acme.dev/port": Resource("acme.dev/port", slots)})


@pytest.mark.parametrize(
    ("found", "ailing", "missing"),
    [
        ([raw("a"), raw("b")], (), ()),
        ([raw("a"), raw("b"), raw("new")], (), ()),
        ([raw("b")], (), ("a",)),
        ([], (), ("a", "b")),
        ([raw("a", healthy=False), raw("b")], (), ("a",)),
        ([raw("a"), raw("b")], ("b",), ("b",)),
    ],
    ids=["all", "more", "one is away", "none", "found broken", "fails its probe"],
)
def test_absent_is_what_was_listed_and_cannot_be_handed_out(found, ailing, missing):
    """New hardware changes nothing, and hardware that does not work is as good as none."""
    assert missing == absent(listed("a", "b"), found, ailing)


def test_nothing_is_absent_where_nothing_was_listed():
    """A first start has nothing to wait for."""
    assert () == absent(EMPTY, [])


def test_partitions_and_replicas_are_their_hardware():
    """A new layout of a device that is there is no reason to wait."""
    part = Device(id="a-2x-0", raw=raw("a"), ordinal="0:0", profile="2x", slices=range(2))
    slots = (Slot("a-2x-0::0", part, 0), Slot("a-2x-0::1", part, 1))
    before = Inventory({"acme.dev/mig-2x": Resource("acme.dev/mig-2x", slots)})
    assert () == absent(before, [raw("a")])
    assert ("a",) == absent(before, [])


WAITS = Outlook(served=True, absent=("a",))


@pytest.mark.parametrize(
    ("boot", "waited", "may"),
    [
        (Outlook(served=False), 100.0, False),
        (Outlook(served=True), 0.0, True),
        (WAITS, 29.9, False),
        (WAITS, 30.0, True),
        (replace(WAITS, kubelet=True), 0.0, True),
        (Outlook(served=False, waits_for="no directory"), 0.0, True),
    ],
    ids=["not served", "nothing absent", "absent", "waited enough", "it runs already", "it must come first"],
)
def test_the_kubelet_waits_for_what_was_there(boot, waited, may):
    """It does so for a while, and never where that would be forever."""
    assert may is may_start(boot, waited=waited, patience=30.0)


def test_no_patience_is_no_wait():
    """--boot-wait 0."""
    assert may_start(WAITS, waited=0.0, patience=0.0)
