"""What the engine remembers and counts: the resources that were hit."""

from vdev.core import inventory
from vdev.core.device import Device, RawDevice, Slot
from vdev.core.faults import FaultSpec, Rule, Verdict, When
from vdev.faults import Engine, ManualClock
from vdev.observe.metrics import Metrics

SICK = Rule(name="x", effect=Verdict(healthy=False), when=When(at=10, lasts=5))


def stock(*names):
    """A node with one device of each resource."""
    raws = {name: RawDevice(id=f"{name}-0", entry=name, index=0) for name in names}
    return inventory.Inventory(
        {
            name: inventory.Resource(name=name, slots=(Slot(raw.id, Device(id=raw.id, raw=raw, ordinal="0")),))
            for name, raw in raws.items()
        }
    )


def test_the_metric_names_the_resources_hit():
    """A device fault is counted once for each resource whose devices it hits."""
    clock, metrics = ManualClock(100.0), Metrics()
    engine = Engine("node-a", clock, metrics, on_change=lambda: None)
    engine.load("configuration", FaultSpec(rules=(SICK,)))
    devices = stock("a.dev/x", "b.dev/y")
    engine.look(devices)
    clock.advance(10)
    engine.look(devices)
    counted = {
        sample.labels["resource"]: sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "vdev_faults_injected_total"
    }
    assert {"a.dev/x": 1, "b.dev/y": 1} == counted
