"""What the engine remembers and counts: other seeds, and the resources that were hit."""

import pytest

from tests.kit.rules import rule as made
from vdev.aio.clock import ManualClock
from vdev.faults.engine import Engine
from vdev.model.device import Device, RawDevice, Slot
from vdev.observe.metrics import Metrics
from vdev.planning import resources


def sick(**fields):
    return made(health="Unhealthy", at=10, lasts=5, **fields)


def lots(seed, name):
    """A text's only rule, which draws lots."""
    return (sick(seed=seed, name=name, probability=0.9),)


def stock(*names):
    """A node with one device of each resource."""
    raws = {name: RawDevice(id=f"{name}-0", entry=name, index=0) for name in names}
    return resources.Inventory(
        {
            name: resources.Resource(name=name, slots=(Slot(raw.id, Device(id=raw.id, raw=raw, ordinal="0")),))
            for name, raw in raws.items()
        }
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, True),
        ({"jitter": 0.1}, False),
        ({"probability": 0.9}, False),
        ({"devices": {"pick": 1}}, False),
        ({"on_nodes": {"share": 0.9}}, False),
    ],
)
def test_another_seed_restarts_what_draws_lots(fields, expected):
    """A rule without chance goes on when the seed changes."""
    engine = Engine("node-a", ManualClock(100.0), Metrics(), on_change=lambda: None)
    engine.load("configuration", [sick(seed=1, **fields)])
    before = engine.runs["x"]
    engine.load("configuration", [sick(seed=2, **fields)])
    assert expected == (engine.runs["x"] is before)


def test_the_metric_names_the_resources_hit():
    """A device fault is counted once for each resource whose devices it hits."""
    clock, metrics = ManualClock(100.0), Metrics()
    engine = Engine("node-a", clock, metrics, on_change=lambda: None)
    engine.load("configuration", [sick()])
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


def test_what_comes_due_between_two_looks_is_looked_at():
    """A delay that is over once the look is, before anybody has asked when to look again, is not slept through."""
    clock = ManualClock(100.0)
    engine = Engine("node-a", clock, Metrics(), on_change=lambda: None)
    engine.load("configuration", [made(register={"delay": 5.0})])
    engine.look(stock("a.dev/x"))
    assert engine.on_register("a.dev/x")[1].never
    engine.look(stock("a.dev/x"))
    clock.advance(5)
    assert 105.0 == engine.next_change
    engine.look(stock("a.dev/x"))
    assert engine.stirred
    assert engine.next_change is None
