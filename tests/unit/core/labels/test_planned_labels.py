"""Labels as a part of the plan: where they go, what they follow, and when they are not made again."""

from dataclasses import replace

import pytest

from vdev import config
from vdev.core.decide import Decider, World
from vdev.core.faults.targets import Afflictions
from vdev.core.inventory.virtual_devices import devices
from vdev.core.labels.values import Machine
from vdev.core.model.device import Health

TEXT = """
node: {labels: %s}
sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}
devices: [{name: a, resource: nvidia.com/gpu, virtual: {preset: t4, count: 3}, labels: {a.b/i: "{index}"}}]
"""
COUNT, SICK = "nvidia.com/gpu.count", Health(healthy=False, reason="hot")


def world(decider, text="true", **changes):
    spec = config.load_text(TEXT % text).spec
    found = {entry.name: tuple(devices(entry, entry.source, "n")) for entry in spec.entries}
    base = decider.arrange(spec, "n", found)
    return World(spec=spec, node="n", machine=Machine("Box", 7), found=found, base=base, **changes)


@pytest.fixture
def decider():
    return Decider()


def slots(base, index):
    """The keys of a device's replicas."""
    (resource,) = base.resources.values()
    return frozenset((resource.name, slot.id) for slot in resource.slots if slot.device.raw.index == index)


def test_the_node_gets_them(decider):
    plan = decider.decide(world(decider))
    assert ("3", "Box", "7", "Tesla-T4-SHARED", "0") == tuple(
        plan.labels[key]
        for key in (COUNT, "nvidia.com/gpu.machine", "nvidia.com/gfd.timestamp", "nvidia.com/gpu.product", "a.b/i")
    )
    assert plan.features is None
    assert ["the devices of 'a' want different values for the label a.b/i: '0', which is used, and '1', '2'"] == [
        each.message for each in plan.problems
    ]


def test_node_feature_discovery_gets_them(decider):
    plan = decider.decide(world(decider, "nfd"))
    assert ({}, "3") == (plan.labels, plan.features[COUNT])


def test_nobody_asks(decider):
    plan = decider.decide(world(decider, "false"))
    assert ({}, None, ()) == (plan.labels, plan.features, plan.problems)


def test_health_makes_nothing_anew(decider):
    """A verdict, a fault of health, what pods hold: the very same object."""
    before = world(decider)
    first = decider.decide(before)
    raw = before.found["a"][1].id
    for after in (
        replace(before, verdicts={raw: SICK}),
        replace(before, undeliverable={raw: SICK}),
        replace(before, afflictions=Afflictions(verdicts=dict.fromkeys(slots(before.base, 1), SICK)), now=5.0),
        replace(before, found=dict(before.found), listed=first.inventory),
    ):
        plan = decider.decide(after)
        assert plan.labels is first.labels
        assert plan.problems is first.problems


def test_what_faults_take_away_is_not_counted(decider):
    """Unplugged or dropped, and back; one replica of a device that is left keeps the device."""
    before = world(decider)
    first = decider.decide(before)
    for index, taken in (("0", "removed"), ("1", "dropped")):
        after = replace(before, afflictions=Afflictions(**{taken: slots(before.base, int(index))}))
        plan = decider.decide(after)
        again = decider.decide(replace(after, afflictions=Afflictions(**{taken: slots(before.base, int(index))})))
        assert "2" == plan.labels[COUNT]
        assert again.labels is plan.labels
    assert "1" == decider.decide(replace(after, afflictions=Afflictions(removed=slots(before.base, 0)))).labels["a.b/i"]
    assert first.labels == decider.decide(before).labels
    one = frozenset(sorted(slots(before.base, 0))[:1])
    assert "3" == decider.decide(replace(before, afflictions=Afflictions(removed=one))).labels[COUNT]


def test_equal_labels_stay_the_same_object(decider):
    """An edit elsewhere in the file, or a scan that found the same."""
    first = decider.decide(world(decider))
    assert decider.decide(world(decider)).labels is first.labels
