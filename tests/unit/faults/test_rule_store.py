"""Rules of all sources for several nodes."""

import pytest

from tests.kit.rules import rule
from vdev.aio.clock import ManualClock
from vdev.errors import UsageError
from vdev.faults.engine import Engine
from vdev.faults.rule_store import RuleStore
from vdev.observe.metrics import Metrics


def test_nodes_that_load_rules_later():
    """The times of a rule count from the same moment on all nodes, and a cleared rule stays cleared on each."""
    clock = ManualClock(100.0)
    first, second = (Engine(name, clock, Metrics(), on_change=lambda: None) for name in ("a", "b"))
    store = RuleStore(lambda: {"a": first, "b": second}, clock, lambda text, name: ())
    store.configure([rule(name="late", at=60.0), rule(name="cleared")])
    first.load(store.rules)
    store.clear("cleared")
    clock.advance(50)
    second.load(store.rules)
    for _ in range(2):  # a node that is removed and added again loads the rules again
        assert [160.0] == [activation.at + 60.0 for activation in second.runs["late"].activations]
        assert second.runs["cleared"].loaded.cleared
        second.load({})
        second.load(store.rules)
    store.trigger("cleared")
    assert not first.runs["cleared"].loaded.cleared
    assert not second.runs["cleared"].loaded.cleared
    store.configure([rule(name="late", at=60.0), rule(name="cleared"), rule(name="late", at=1.0)])
    assert 60.0 == store.rules["late"].rule.at, "the first one of a name counts"
    with pytest.raises(UsageError, match="there is no fault rule 'nope'; the rules are: cleared, late"):
        store.clear("nope")
