"""What was found out ahead is not found out again, and is never said of other inventories."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdev import config
from vdev.core.inventory.difference import Added, ChangedResource, Differences, RemovedResource, diff
from vdev.core.inventory.imagined_nodes import inventory
from vdev.core.inventory.resources import Resource
from vdev.core.model.device import HEALTHY, Device, RawDevice, Slot


def arranged(*counts):
    """An inventory with a resource of each of these counts."""
    entries = (f"  - {{name: e{n}, resource: acme.dev/r{n}, virtual: {{count: {c}}}}}\n" for n, c in enumerate(counts))
    return inventory(config.load_text(f"version: v1\ndevices:\n{''.join(entries)}").spec, "n")


@pytest.fixture
def differences():
    return Differences()


def test_the_same_as_without(differences):
    """Resources that come, go and change."""
    old, new = arranged(2, 3, 4), arranged(2, 5)
    differences.find(old, new)
    found = differences(old, new)
    assert diff(old, new) == found
    assert [RemovedResource, ChangedResource] == [type(each) for each in found]
    assert [Added] == [type(each) for each in differences(new, old) if not isinstance(each, ChangedResource)]


def test_found_once(differences):
    """All who ask get the same object."""
    old, new = arranged(2), arranged(3)
    differences.find(old, new)
    (first,), (second,) = differences(old, new), differences(old, new)
    assert first is second
    assert ("e0-2",) == first.added


def test_not_for_others(differences):
    """Other inventories with resources of the same names have other differences, and nothing is kept forever."""
    old, new = arranged(2), arranged(3)
    differences.find(old, new)
    (known,) = differences(old, new)
    (other,) = differences(old, arranged(4))
    assert ("e0-2", "e0-3") == other.added
    differences.forget()
    (again,) = differences(old, new)
    assert again is not known


SOME = st.lists(st.sampled_from("abcd"), max_size=3, unique=True)
MANY = [f"n{number}" for number in range(1500)]  # more than are compared in one go


def resource(ids):
    """One that lists these ids."""
    device = Device(id="d", raw=RawDevice(id="d", entry="e", index=0), ordinal="0")
    return Resource("acme.dev/r", tuple(Slot(id=each, device=device, health=HEALTHY) for each in ids))


@given(SOME, SOME, st.sampled_from([[], MANY]), st.sampled_from([[], MANY, MANY[::-1]]))
def test_which_ids_one_has_of_another(own, other, more, others):
    """In whatever order, and wherever they stand."""
    one, two = [*own, *more], [*other, *others]
    assert (set(one) >= set(two)) == resource(one).has_all_of(resource(two))
    assert resource(one).has_all_of(resource([*more, *own]))
