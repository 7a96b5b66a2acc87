"""Labels as a part of the plan: where they go, what they follow, and when they are not made again."""

from dataclasses import replace

from vdev import config
from vdev.faults.targets import Afflictions
from vdev.model.device import Health
from vdev.node.label_values import Machine
from vdev.planning.inventory import arrange
from vdev.planning.plan import World, decide
from vdev.planning.virtual_devices import devices

TEXT = """
node: {labels: %s}
sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}
devices: [{name: a, resource: nvidia.com/gpu, virtual: {preset: t4, count: 3}, labels: {a.b/i: "{index}"}}]
"""
COUNT, SICK = "nvidia.com/gpu.count", Health(healthy=False, reason="hot")


def world(text="true", **changes):
    spec = config.load_text(TEXT % text).spec
    found = {entry.name: tuple(devices(entry, entry.source, "n")) for entry in spec.entries}
    base = arrange(spec, "n", found)
    return World(spec=spec, node="n", machine=Machine("Box", 7), found=found, base=base, **changes)


def slots(base, index):
    """The keys of a device's replicas."""
    (resource,) = base.resources.values()
    return frozenset((resource.name, slot.id) for slot in resource.slots if slot.device.raw.index == index)


def test_the_node_gets_them():
    plan = decide(world())
    assert ("3", "Box", "7", "Tesla-T4-SHARED", "0") == tuple(
        plan.labels[key]
        for key in (COUNT, "nvidia.com/gpu.machine", "nvidia.com/gfd.timestamp", "nvidia.com/gpu.product", "a.b/i")
    )
    assert plan.features is None
    assert ["the devices of 'a' want different values for the label a.b/i: '0', which is used, and '1', '2'"] == [
        each.message for each in plan.problems
    ]


def test_node_feature_discovery_gets_them():
    plan = decide(world("nfd"))
    assert ({}, "3") == (plan.labels, plan.features[COUNT])


def test_nobody_asks():
    plan = decide(world("false"))
    assert ({}, None, ()) == (plan.labels, plan.features, plan.problems)


def test_what_faults_take_away_is_not_counted():
    """Unplugged or dropped, and back; one replica of a device that is left keeps the device."""
    before = world()
    first = decide(before)
    for index, taken in (("0", "removed"), ("1", "dropped")):
        after = replace(before, afflictions=Afflictions(**{taken: slots(before.base, int(index))}))
        plan = decide(after)
        again = decide(replace(after, afflictions=Afflictions(**{taken: slots(before.base, int(index))})))
        assert "2" == plan.labels[COUNT]
        assert again.labels == plan.labels
    assert "1" == decide(replace(after, afflictions=Afflictions(removed=slots(before.base, 0)))).labels["a.b/i"]
    assert first.labels == decide(before).labels
    one = frozenset(sorted(slots(before.base, 0))[:1])
    assert "3" == decide(replace(before, afflictions=Afflictions(removed=one))).labels[COUNT]
