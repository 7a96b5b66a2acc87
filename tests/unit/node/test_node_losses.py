"""Devices that are promised and cannot be used, and what Events say of them."""

from dataclasses import replace

import pytest

from vdev.model.device import Health
from vdev.model.entry import Condition, MigStrategy
from vdev.node.events import EventText, of_layouts, of_losses, of_partitions
from vdev.node.losses import NONE, losses
from vdev.planning.repartition import Progress, RepartitionState
from vdev.planning.resources import EMPTY, with_health

GPU = "nvidia.com/gpu"
DEAD = Health(healthy=False, reason="fell off the bus")


def sick(inventory, *raws, health=DEAD):
    return with_health(inventory, dict.fromkeys(raws, health))


def said(found):
    return [(each.reason, each.message) for each in found]


def test_a_broken_device_is_lost_until_it_works_again(build):
    """Broken, and healthy again: one Event each, which names it."""
    entry = build.entry()
    well = build.inventory(entry)
    ill = sick(well, "GPU-gggg1")
    lost = losses(well, ill, NONE, [entry])
    assert [(GPU, "GPU-gggg1")] == list(lost)
    assert [("DeviceUnhealthy", f"{GPU}: GPU-gggg1 is unhealthy: fell off the bus")] == said(of_losses(NONE, lost, ill))
    healed = losses(ill, well, lost, [entry])
    assert not healed
    assert (EventText("DeviceHealthy", f"{GPU}: GPU-gggg1 is healthy again"),) == of_losses(lost, healed, well)


def test_devices_that_break_at_once_share_an_event(build):
    """Ten devices of one reason are one Event that names eight and counts the rest."""
    entry = build.entry("npu", "acme.dev/npu", nvidia=False, count=10, geometry=None)
    well = build.inventory(entry)
    ill = sick(well, *(f"npu-{n}" for n in range(10)))
    (only,) = of_losses(NONE, losses(well, ill, NONE, [entry]), ill)
    assert only.message.startswith("acme.dev/npu: npu-0, npu-1, ")
    assert only.message.endswith("npu-7 and 2 more are unhealthy: fell off the bus")
    assert only.warning


def test_a_drill_is_called_one(build):
    """Nobody takes an injected failure for an outage."""
    entry = build.entry()
    well = build.inventory(entry)
    ill = sick(well, "GPU-gggg0", health=Health(healthy=False, reason="Xid 79", injected="xid-drill"))
    (only,) = of_losses(NONE, losses(well, ill, NONE, [entry]), ill)
    assert f"{GPU}: GPU-gggg0 is unhealthy: Xid 79 (fault rule 'xid-drill')" == only.message


def test_an_unplugged_device_is_gone_and_comes_back(build):
    """What discovery no longer finds is lost while its entry is what it was, whatever the Node says of it."""
    entry = build.entry(conditions=(Condition(type="GpuHealthy"),))
    both, one = build.inventory(entry), build.inventory(entry, found={"gpu": build.raws(entry, count=1)})
    lost = losses(both, one, NONE, [entry])
    assert [("DeviceLost", f"{GPU}: GPU-gggg1 is gone")] == said(of_losses(NONE, lost, one))
    assert lost == losses(one, one, lost, [entry])
    back = losses(one, both, lost, [entry])
    assert [("DeviceHealthy", f"{GPU}: GPU-gggg1 is healthy again")] == said(of_losses(lost, back, both))


def test_an_edit_loses_nothing(build):
    """A device that the configuration gave up is no loss, also where it was broken."""
    entry, smaller = build.entry(), build.entry(count=1)
    both, one = build.inventory(entry), build.inventory(smaller)
    ill = sick(both, "GPU-gggg1")
    known = losses(both, ill, NONE, [entry])
    lost = losses(ill, one, known, [smaller])
    assert not lost
    assert () == of_losses(known, lost, one)


def test_an_entry_that_leaves_takes_its_losses_along(build):
    """Even though nothing of its resource changes any more."""
    entry = build.entry()
    ill = sick(build.inventory(entry), "GPU-gggg1")
    known = losses(EMPTY, ill, NONE, [entry])
    assert 1 == len(known)
    assert not losses(ill, EMPTY, known, [])


def test_replicas_of_one_device_are_one_loss(build):
    """An Event is about a device, not about each share of it."""
    entry = build.entry()
    shared = build.inventory(entry, sharing=build.sharing({"name": GPU, "replicas": 4}))
    ill = sick(shared, "GPU-gggg0")
    assert [(GPU, "GPU-gggg0")] == list(losses(shared, ill, NONE, [entry]))


def test_a_loss_that_gets_worse_is_said_again(build):
    """Broken first, then gone."""
    entry = build.entry()
    well, one = build.inventory(entry), build.inventory(entry, found={"gpu": build.raws(entry, count=1)})
    ill = sick(well, "GPU-gggg1")
    broken = losses(well, ill, NONE, [entry])
    gone = losses(ill, one, broken, [entry])
    assert [("DeviceLost", f"{GPU}: GPU-gggg1 is gone")] == said(of_losses(broken, gone, one))


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ({}, {0: ("1g.5gb", "1g.5gb", "3g.20gb")}, "device GPU-gggg0: whole -> 2x 1g.5gb, 1x 3g.20gb"),
        ({0: ("7g.40gb",)}, {}, "device GPU-gggg0: 1x 7g.40gb -> whole"),
        ({1: ("7g.40gb",)}, {1: ("3g.20gb",)}, "device GPU-gggg1: 1x 7g.40gb -> 1x 3g.20gb"),
    ],
)
def test_a_new_cut_is_said(build, before, after, message):
    """From what to what, in profiles."""
    old, new = (
        build.inventory(build.entry(partitions=each), mig_strategy=MigStrategy.MIXED) for each in (before, after)
    )
    assert [("Repartitioned", message)] == said(of_partitions(old, new))
    assert () == of_partitions(new, new)


def test_health_is_no_new_cut(build):
    """Only profiles count."""
    well = build.inventory(build.entry(partitions={0: ("7g.40gb",)}), mig_strategy=MigStrategy.MIXED)
    assert () == of_partitions(well, sick(well, "GPU-gggg0"))


def test_a_message_has_at_most_what_the_server_takes(build):
    """A reason of any length is cut."""
    entry = build.entry()
    well = build.inventory(entry)
    ill = sick(well, "GPU-gggg0", health=replace(DEAD, reason="x" * 5000))
    (only,) = of_losses(NONE, losses(well, ill, NONE, [entry]), ill)
    assert 1024 == len(only.message)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("all-9g", "nvidia.com/mig.config=all-9g"),
        (None, "the layout for a node without the label nvidia.com/mig.config"),
    ],
)
def test_a_layout_that_is_refused(value, what):
    """It is named by the label's value, or by the label that the node does not have."""
    why = "pod default/train holds it"
    failed = Progress(label="nvidia.com/mig.config", value=value, state=RepartitionState.FAILED, sentence=why)
    assert [("RepartitionFailed", f"{what} is refused: {why}")] == said(of_layouts({}, {failed.label: failed}))
