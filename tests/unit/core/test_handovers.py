"""What changed hands between two readings of who holds what."""

from hypothesis import given
from hypothesis import strategies as st

from vdev.core.retention.handovers import handovers

A, B = ("x.dev/a", "a-0"), ("x.dev/a", "a-1")
READING = st.dictionaries(st.tuples(st.just("r"), st.sampled_from(["a", "b", "a::0", "a::1"])), st.sampled_from("pqr"))


def told(before, after, granted=()):
    """Each change as `+pod device` or `-pod device`."""
    changes = handovers(before, after, granted)
    return [f"{'+' if each.gained else '-'}{each.owner.pod} {each.owner.device}" for each in changes]


def test_a_new_holder_is_a_gain():
    """A device that nobody had is gained."""
    assert ["+n/p a-0"] == told({}, {A: "n/p"})


def test_another_holder_is_a_release_and_a_gain():
    """The old pod's release comes before the new one's gain."""
    assert ["-n/p a-0", "+n/q a-0"] == told({A: "n/p"}, {A: "n/q"})


def test_who_holds_it_still_is_no_change():
    """Nothing happens twice for the same holder."""
    assert [] == told({A: "n/p", B: "n/q"}, {A: "n/p", B: "n/q"})


def test_at_first_nothing_is_known():
    """Pods that held devices before this process are no news."""
    assert [] == told(None, {A: "n/p"})


def test_what_was_granted_here_is_news_at_the_first_reading_too():
    """A pod that this process gave a device to before it could read is told of."""
    assert ["+n/q a-1"] == told(None, {A: "n/p", B: "n/q"}, granted=[B])


def test_a_pod_that_was_replaced_under_its_name_is_a_change():
    """A set's pod keeps its name; that its device was granted again tells that it is another one."""
    assert ["-n/p a-0", "+n/p a-0"] == told({A: "n/p"}, {A: "n/p"}, granted=[A])


def test_replicas_of_one_pod_are_one_holding():
    """A pod holds a device once, however many replicas of it."""
    one, two = ("r", "a-0::0"), ("r", "a-0::1")
    assert ["+n/p a-0"] == told({}, {one: "n/p", two: "n/p"})
    assert [] == told({one: "n/p", two: "n/p"}, {two: "n/p"})
    assert ["-n/p a-0"] == told({one: "n/p", two: "n/q"}, {two: "n/q"})


@given(READING, READING)
def test_changes_lead_from_one_reading_to_the_other(before, after):
    """Applied to the old owners, the changes give the new ones; each is told once."""
    changes = handovers(before, after)
    owners = {each.owner for each in handovers({}, before)}
    for change in changes:
        (owners.add if change.gained else owners.remove)(change.owner)
    assert {each.owner for each in handovers({}, after)} == owners
    assert len(set(changes)) == len(changes)
