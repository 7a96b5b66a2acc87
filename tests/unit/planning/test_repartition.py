"""Layouts that a label selects: partitions that a pod holds are never removed, and states follow the protocol."""

import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.kit.specs import made_choice, made_spec
from tests.unit.conftest import Build
from vdev.intervals import PRODUCTION
from vdev.model.entry import MigStrategy
from vdev.model.geometry import NamedLayout, generated
from vdev.model.spec import Flags
from vdev.planning import repartition
from vdev.planning.in_use import Holder, InUse
from vdev.planning.repartition import Progress, RepartitionState, RepartitionView

MIG = "nvidia.com/mig.config"
COUNT = 2
LAYOUTS = {
    **generated(Build.geometry, COUNT),
    "first": NamedLayout({0: ("3g.20gb", "1g.5gb")}),
    "balanced": NamedLayout(dict.fromkeys(range(COUNT), ("1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb"))),
    "too-much": NamedLayout({}, "a device holds at most 7"),
}
NAMES = st.sampled_from([*LAYOUTS, "unknown", None])


class Node:
    """A node whose label changes. The layouts in force decide what is listed, as in the agent."""

    def __init__(self, *, label=MIG, value=None, default="", layouts=None, strategy=MigStrategy.MIXED):
        self.build = Build()
        choice = made_choice(label, default, layouts or LAYOUTS)
        entry = self.build.entry(count=COUNT, choice=choice, partitions=choice.initial)
        self.spec = made_spec(entry, flags=Flags(migStrategy=strategy))
        self.found = {entry.name: self.build.raws(entry)}
        self.progresses = {}
        self.labels = {label: value} if value else {}
        self.label, self.now, self.listed, self.holders, self.complete = label, 0.0, None, {}, True
        self.read_at = float("inf")
        self.look()

    @property
    def progress(self):
        return self.progresses[self.label]

    @property
    def state(self):
        return self.progress.state

    @property
    def state_label(self):
        """The label with the state, as in the plan."""
        return repartition.state_labels(self.progresses, self.spec.entries).get(self.choice.state_label, "")

    @property
    def choice(self):
        return self.spec.entries[0].choice

    @property
    def keys(self):
        """The keys of all listed devices."""
        return sorted((name, slot) for name, each in self.listed.resources.items() for slot in each.by_id)

    @property
    def counts(self):
        """The number of listed devices of each resource."""
        return {name.partition("/")[2]: len(each.slots) for name, each in self.listed.resources.items() if each.slots}

    def choose(self, value):
        """Set the label, or remove it."""
        self.labels.pop(self.label, None)
        if value:
            self.labels[self.label] = value
        self.look()

    def look(self, *, known=True):
        """One reconciliation of the agent."""
        seen = RepartitionView(
            labels=dict(self.labels) if known else None,
            found=self.found,
            in_use=InUse(
                devices={key: Holder(who and f"default/{who}") for key, who in self.holders.items()},
                is_complete=self.complete,
                answered_at=self.read_at,
            ),
            now=self.now,
            **({"listed": self.listed} if self.listed else {}),
        )
        self.progresses, _ = repartition.advance(self.progresses, self.spec, "n", seen)
        served = repartition.in_force(self.spec, self.progresses)
        self.listed = self.build.inventory(*served.entries, found=self.found, mig_strategy=served.flags.mig_strategy)

    def write(self):
        if self.state_label:
            self.labels[self.choice.state_label] = self.state_label
        self.look()

    def restart(self, *, known=True):
        """Forget everything except the recorded state."""
        was = self.progress
        recorded = Progress(label=self.label, value=was.value, state=was.state, sentence=was.sentence, parts=was.parts)
        self.progresses = {self.label: recorded}
        self.look(known=known)


@pytest.mark.parametrize(
    ("value", "default", "state", "counts"),
    [
        ("balanced", "", "success", {"mig-1g.5gb": 4, "mig-2g.10gb": 2, "mig-3g.20gb": 2}),
        (None, "", "", {"gpu": 2}),
        (None, "all-3g.20gb", "", {"mig-3g.20gb": 4}),
        ("nothing", "all-3g.20gb", "failed", {"mig-3g.20gb": 4}),
    ],
)
def test_the_initial_layout(value, default, state, counts):
    """Without the label, or with an unknown name, it is the default."""
    node = Node(value=value, default=default)
    assert (state, counts) == (node.state_label, node.counts)


def test_a_new_value_is_pending_until_the_state_is_written():
    """The layout comes into force after the label with the state is written."""
    node = Node(value="all-disabled")
    node.choose("all-1g.5gb")
    assert ("pending", {"gpu": 2}) == (node.state_label, node.counts)
    node.look()
    assert RepartitionState.PENDING is node.state
    node.write()
    assert ("success", {"mig-1g.5gb": 14}) == (node.state_label, node.counts)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nothing", "there is no layout 'nothing'; known: all-disabled"),
        ("too-much", "the layout 'too-much' does not fit the devices of gpu: a device holds at most 7"),
    ],
)
def test_an_impossible_layout_fails_and_changes_nothing(name, why):
    """The layout is unknown or does not fit."""
    node = Node(value="balanced")
    before = node.listed
    node.choose(name)
    assert ("failed", before) == (node.state_label, node.listed)
    assert node.progress.sentence.startswith(why)
    node.choose("balanced")
    assert "success" == node.state_label


@pytest.mark.parametrize("way", ["before", "while it is pending"])
def test_a_held_partition_is_not_removed(way):
    """The reason names the pod. The state is failed, even after the pod ends, until the value changes."""
    node = Node(value="all-1g.5gb")
    before = node.listed
    held = next(key for key in node.keys if key[1] == before.resources["nvidia.com/mig-1g.5gb"].slots[3].id)
    if way == "before":
        node.holders[held] = "holder"
    node.choose("all-3g.20gb")
    node.holders[held] = "holder"
    node.write()
    assert ("failed", before) == (node.state_label, node.listed)
    assert "pod default/holder holds 1g.5gb at slice 3 of device 0 of gpu" in node.progress.sentence
    node.holders.clear()
    node.look()
    assert "failed" == node.state_label
    node.choose("all-2g.10gb")
    node.write()
    assert {"mig-2g.10gb": 6} == node.counts


def test_a_held_partition_may_be_in_the_new_layout():
    """The new layout does not change the other device."""
    node = Node(value="all-3g.20gb")
    slots = node.listed.resources["nvidia.com/mig-3g.20gb"].slots
    stays = next(slot.id for slot in slots if slot.device.raw.index == 0 and slot.device.slices.start == 4)
    alone = next(slot.id for slot in slots if slot.device.raw.index == 1)
    node.holders = {("nvidia.com/mig-3g.20gb", stays): "a", ("nvidia.com/mig-3g.20gb", alone): "b"}
    node.choose("first")
    node.write()
    assert ("success", {"mig-3g.20gb": 3, "mig-1g.5gb": 1}) == (node.state_label, node.counts)


def test_nothing_changes_while_holders_are_unknown():
    """The state is pending."""
    node = Node(value="all-3g.20gb")
    node.complete = False
    node.choose("balanced")
    node.write()
    node.now += 100
    node.look()
    assert "pending" == node.state_label
    assert "waiting for the kubelet to say which pods hold which devices" == node.progress.sentence
    node.complete = True
    node.look()
    assert "success" == node.state_label


def test_a_holder_without_a_name():
    """The state is pending. If the kubelet names no pod after a while, the layout fails."""
    node = Node(value="all-3g.20gb")
    node.holders[node.keys[0]] = ""
    node.choose("balanced")
    node.write()
    assert "pending" == node.state_label
    node.holders.clear()
    node.look()
    assert "success" == node.state_label
    node.holders[node.keys[0]] = ""
    node.choose("all-7g.40gb")
    node.now += PRODUCTION.repartition_holder
    node.look()
    assert ("failed", "a pod holds") == (node.state_label, node.progress.sentence[:11])


def test_a_changed_layout_of_the_same_name():
    """It is handled like a new value."""
    node = Node(value="first")
    (entry,) = node.spec.entries
    layouts = LAYOUTS | {"first": NamedLayout({0: ("7g.40gb",)})}
    choice = entry.choice.model_copy(update={"layouts": layouts})
    node.spec = made_spec(entry.model_copy(update={"wanted_partitions": choice}), flags=node.spec.flags)
    node.look()
    assert "pending" == node.state_label
    node.write()
    assert {"mig-7g.40gb": 1, "gpu": 1} == node.counts


def test_amd_has_no_pending_state():
    node = Node(label="dcm.amd.com/gpu-config-profile", value="all-disabled")
    assert {"dcm.amd.com/gpu-config-profile-state": "success"} == repartition.state_labels(
        node.progresses, node.spec.entries
    )
    node.choose("all-1g.5gb")
    assert ("success", {"mig-1g.5gb": 14}) == (node.state_label, node.counts)
    node.holders[node.keys[0]] = "holder"
    node.choose("all-disabled")
    assert "failure" == node.state_label


def test_mig_strategy_none():
    """The kubelet sees whole devices, so a held one does not prevent a layout."""
    node = Node(value="all-disabled", strategy=MigStrategy.NONE)
    node.holders[node.keys[0]] = "holder"
    node.choose("all-1g.5gb")
    assert ("success", {"gpu": 2}) == (node.state_label, node.counts)


def test_entries_with_one_label_change_together():
    """An entry that does not have the named layout stays as it is."""
    build = Build()
    small = {"both": NamedLayout({0: ("1g.5gb",)}), "one": NamedLayout({0: ("2g.10gb",)})}
    entries = tuple(
        build.entry(name, count=1, choice=made_choice(MIG, "both", layouts))
        for name, layouts in (("a", small), ("b", {"both": NamedLayout({0: ("7g.40gb",)})}))
    )
    spec = made_spec(*entries, flags=Flags(migStrategy=MigStrategy.MIXED))
    found = {entry.name: build.raws(entry) for entry in entries}
    cut, _ = repartition.chosen(spec, "n", {MIG: "both"}, found)
    assert [{0: ("1g.5gb",)}, {0: ("7g.40gb",)}] == [each.partitions for each in cut.entries]
    cut, (_, *_) = repartition.chosen(spec, "n", {MIG: "one"}, found)
    assert {0: ("2g.10gb",)} == cut.entries[0].partitions


@pytest.mark.parametrize("other", ["all-2g.10gb", ""])
def test_labels_of_one_resource_with_mig_strategy_single(other):
    """A layout fails if the resource would have devices of different kinds."""
    build = Build()
    layouts = generated(Build.geometry, 1)
    entries = [
        build.entry(name, count=1, choice=made_choice(label, "", layouts))
        for name, label in (("a", "x.dev/one"), ("b", "x.dev/two"))
    ]
    spec = made_spec(*entries, flags=Flags(migStrategy=MigStrategy.SINGLE))
    found = {entry.name: build.raws(entry) for entry in entries}
    progresses, _ = repartition.advance({}, spec, "n", RepartitionView(labels={}, found=found))
    values = {"x.dev/one": "all-1g.5gb", **({"x.dev/two": other} if other else {})}
    wanted = {f"{label}.state": "failed" for label in values}
    labels = values
    for _ in range(2):  # first pending
        seen = RepartitionView(labels=labels, found=found, listed=build.inventory(*entries, found=found))
        progresses, inventory = repartition.advance(progresses, spec, "n", seen)
        labels = {**values, **repartition.state_labels(progresses, entries)}
    assert wanted == {label: word for label, word in labels.items() if label not in values}
    assert inventory is None
    assert progresses["x.dev/two"].value == (other or None)
    cut, first = repartition.chosen(spec, "n", values, found)
    assert wanted == repartition.state_labels(first, entries)
    assert cut == spec


class HeldIsNeverRemoved(RuleBasedStateMachine):
    """Labels, pods, writes, restarts and time, in any order."""

    @initialize(value=NAMES, default=st.sampled_from(["", "balanced", "all-enabled"]))
    def begin(self, value, default):
        self.node = Node(value=value, default=default)
        self.pods = itertools.count()

    @rule(value=NAMES)
    def label(self, value):
        """Nothing changes while the state is pending or failed."""
        before = self.node.listed
        self.node.choose(value)
        if self.node.state in (RepartitionState.PENDING, RepartitionState.FAILED):
            assert self.node.counts == {
                name.partition("/")[2]: len(r.slots) for name, r in before.resources.items() if r.slots
            }

    @precondition(lambda self: self.node.keys)
    @rule(data=st.data())
    def start_pod(self, data):
        """A pod gets a device."""
        key = data.draw(st.sampled_from(self.node.keys))
        self.node.holders.setdefault(key, data.draw(st.sampled_from([f"pod-{next(self.pods)}", ""])))
        self.node.look()

    @precondition(lambda self: self.node.holders)
    @rule(data=st.data())
    def end_pod(self, data):
        """The end of a pod does not change a failed state."""
        before = self.node.state
        del self.node.holders[data.draw(st.sampled_from(sorted(self.node.holders)))]
        self.node.look()
        assert (self.node.state is RepartitionState.FAILED) == (before is RepartitionState.FAILED)

    @rule()
    def write(self):
        self.node.write()

    @rule(seconds=st.sampled_from([0.5, PRODUCTION.repartition_pending, PRODUCTION.repartition_holder]))
    def wait(self, seconds):
        self.node.now += seconds
        self.node.look()

    @rule(known=st.booleans())
    def restart(self, known):
        """A restart changes nothing, no matter whether the label is seen at once."""
        counts, state = self.node.counts, self.node.state
        sentence = self.node.progress.sentence if state is RepartitionState.FAILED else ""
        self.node.restart(known=known)
        assert counts == self.node.counts
        assert state is self.node.state
        assert sentence in self.node.progress.sentence

    @rule(complete=st.booleans())
    def kubelet(self, complete):
        self.node.complete = complete
        self.node.look()

    @invariant()
    def what_is_held_is_listed(self):
        assert self.node.holders.keys() <= set(self.node.keys)

    @invariant()
    def success_means_in_force(self):
        """The chosen layout is in force, and a failure has a reason."""
        progress, (entry,) = self.node.progress, self.node.spec.entries
        assert (progress.state is RepartitionState.FAILED) <= bool(progress.sentence)
        layout = entry.choice.layouts.get(progress.value or entry.choice.default)
        if progress.state is RepartitionState.SUCCESS and layout:
            in_force = progress.parts[entry.name]
            assert {k: sorted(v or ()) for k, v in layout.parts.items()} == {
                k: sorted(each.partition("@")[0] for each in in_force[k] or ()) for k in layout.parts
            }


TestHeldIsNeverCut = HeldIsNeverRemoved.TestCase
TestHeldIsNeverCut.settings = settings(stateful_step_count=30, deadline=None)


def test_a_value_that_changed_during_a_restart():
    node = Node(value="balanced")
    node.choose("nothing")
    node.labels[MIG] = "all-1g.5gb"
    node.restart()
    assert "pending" == node.state_label


def test_a_held_whole_device_is_not_partitioned():
    """Other devices of the entry do not change either."""
    node = Node(value="all-disabled")
    node.holders[node.keys[1]] = "holder"
    node.choose("all-1g.5gb")
    assert ("failed", {"gpu": 2}) == (node.state_label, node.counts)
    assert "holds device 1 of gpu" in node.progress.sentence
