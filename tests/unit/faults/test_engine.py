"""The fault engine over time: rules are added, changed and removed, and the results are deterministic."""

from hypothesis import given
from hypothesis import strategies as st

from tests.kit.rules import rule
from vdev.aio.clock import ManualClock
from vdev.faults import targets
from vdev.faults.effects import Rpc
from vdev.faults.engine import Engine
from vdev.faults.rule_store import RuleStore
from vdev.model.device import Device, RawDevice, Slot
from vdev.observe.metrics import Metrics
from vdev.planning import resources

NPU = "acme.dev/npu"


def stock(count=4):
    raws = [RawDevice(id=f"acme-{index}", entry="acme", index=index) for index in range(count)]
    slots = tuple(Slot(raw.id, Device(id=raw.id, raw=raw, ordinal=str(raw.index))) for raw in raws)
    return resources.Inventory({NPU: resources.Resource(name=NPU, slots=slots)})


STOCK = stock()


class Node:
    def __init__(self, *rules, clock=None):
        self.clock = clock or ManualClock(100.0)
        self.engine = Engine("node-a", self.clock, Metrics(), on_change=lambda: None)
        self.store = RuleStore(lambda: {"node-a": self.engine}, self.clock, lambda text, name: ())
        self.configure(*rules)

    def configure(self, *rules):
        self.store.configure(rules)
        self.engine.load(self.store.rules)

    def look(self, inventory=None):
        return self.engine.look(inventory or STOCK)


def sick(name, index, **fields):
    """A rule that makes one device Unhealthy."""
    return rule(**{"name": name, "health": "Unhealthy", "reason": name, "devices": f"acme/{index}", **fields})


def seen(made):
    """The ids that are Unhealthy or removed now."""
    found = made.look()
    return {each for _, each in (*found.verdicts, *found.removed, *found.dropped)}


effects = st.sampled_from([{"health": "Unhealthy"}, {"flap": {"up": 3.0, "down": 2.0}}, {"remove": True}])
rules = st.lists(
    st.builds(
        lambda effect, **fields: rule(**effect, **fields),
        effects,
        name=st.sampled_from("abcdef"),
        devices=st.builds(lambda pick: {"pick": pick}, st.integers(1, 4)),
        at=st.integers(0, 30).map(float),
        lasts=st.integers(1, 9).map(float),
        every=st.just(20.0),
        jitter=st.sampled_from([0.0, 0.2]),
        probability=st.sampled_from([1.0, 0.5]),
    ),
    max_size=4,
    unique_by=lambda rule: rule.name,
)
steps = st.lists(st.floats(0.01, 40).map(lambda value: round(value, 2)), max_size=12)


@given(rules, steps)
def test_the_number_of_looks_does_not_matter(made, walk):
    """The same devices fail at a given time."""
    often, once = (Node(*made, clock=(ManualClock(100.0))) for _ in range(2))
    for step in walk:
        often.clock.advance(step)
        often.look()
    once.clock.advance(sum(walk))
    once.clock._now = often.clock.now()
    assert seen(once) == seen(often)


@given(rules, steps)
def test_without_rules_nothing_fails(made, walk):
    one = Node(*made)
    for step in walk:
        one.clock.advance(step)
        one.look()
    one.configure()
    assert targets.NONE == one.look()
    assert one.engine.next_change is None


@given(rules, st.floats(0.01, 60))
def test_nothing_changes_before_the_next_change(made, step):
    one = Node(*made)
    before = seen(one)
    due = one.engine.next_change
    moment = one.clock.now() + step
    if due is None or moment < due:
        one.clock.advance(step)
        assert before == seen(one)


def test_a_changed_rule_restarts_and_others_continue():
    one = Node(sick("a", 0, at=60.0), sick("b", 1, at=60.0))
    one.clock.advance(50)
    one.configure(sick("a", 0, at=60.0), sick("b", 1, at=61.0))
    one.clock.advance(10)
    assert {"acme-0"} == seen(one)
    one.clock.advance(51)
    assert {"acme-0", "acme-1"} == seen(one)


def test_another_seed_restarts_the_rules():
    one = Node(sick("a", 0, at=60.0, probability=0.999))
    one.clock.advance(60)
    one.configure(sick("a", 0, at=60.0, probability=0.999, seed=8))
    assert set() == seen(one)


def test_since_start_does_not_begin_again():
    """The times of a rule with `since: start` count from the plugin's start, even if it is read later."""
    one = Node()
    one.clock.advance(90)
    one.configure(sick("a", 0, since="start", at=60.0, lasts=60.0))
    assert {"acme-0"} == seen(one)
    one.clock.advance(30)
    assert set() == seen(one)


def test_a_past_event_is_not_made_up():
    """A process does not exit because of an event before its rule was read."""
    one = Node()
    one.clock.advance(90)
    one.configure(rule(process={"exit": 1}, since="start", at=60.0))
    one.look()
    assert [] == one.engine.take_one_shots()


def test_a_momentary_fault_happens_once():
    """The number of looks does not matter."""
    one = Node(rule(process={"exit": 137}, at=10.0))
    taken = []
    for _ in range(5):
        one.clock.advance(5)
        one.look()
        taken += one.engine.take_one_shots()
    assert [137] == [each.process.exit for each in taken]


def test_a_trigger_right_after_a_look_is_not_missed():
    one = Node(rule(process={"exit": 137}, at=1000.0))
    one.look()
    one.store.trigger("x")
    one.look()
    assert 1 == len(one.engine.take_one_shots())


def test_a_cleared_rule_is_inactive_until_triggered():
    """Even after reloads that do not change it."""
    often = sick("a", 0, lasts=10.0, every=20.0)
    one = Node(often)
    assert {"acme-0"} == seen(one)
    one.store.clear("a")
    one.configure(often)
    one.clock.advance(20)
    assert set() == seen(one)
    one.store.trigger("a")
    assert {"acme-0"} == seen(one)
    one.clock.advance(10)
    assert set() == seen(one)


def test_calls_are_counted_per_rpc_and_resource():
    """The third call of each resource is hit."""
    one = Node(rule(rpc="Allocate", error={"code": "INTERNAL"}, nth=3))
    one.look()
    answers = [one.engine.on_call(Rpc.ALLOCATE, name) for name in ("a/x", "b/x") for _ in range(4)]
    assert [2, 6] == [number for number, answer in enumerate(answers) if answer]
    assert one.engine.on_call(Rpc.PREFERRED, "a/x") is None


def test_on_allocate_affects_only_allocated_devices():
    """They fail for as long as the rule says."""
    one = Node(sick("a", 0, devices=None, on_allocate=True, at=5.0, lasts=10.0))
    assert set() == seen(one)
    one.engine.note_allocate(NPU, ["acme-2"])
    one.clock.advance(5)
    assert {"acme-2"} == seen(one)
    one.engine.note_allocate(NPU, ["acme-3"])
    one.clock.advance(10)
    assert {"acme-3"} == seen(one)


def test_a_rule_selects_devices_that_appear_later():
    one = Node(sick("a", 0, devices=None))
    assert 4 == len(seen(one))
    assert 6 == len(one.look(stock(6)).verdicts)
