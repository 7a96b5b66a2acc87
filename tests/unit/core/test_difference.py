"""What was found out ahead is not found out again, and is never said of other inventories."""

import pytest

from vdev import config
from vdev.core.inventory.difference import Added, ChangedResource, Differences, RemovedResource, diff
from vdev.core.inventory.imagined_nodes import inventory


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
    """Whoever asks gets the same object."""
    old, new = arranged(2), arranged(3)
    differences.find(old, new)
    (first,), (second,) = differences(old, new), differences(old, new)
    assert first is second
    assert ("e0-2",) == first.added


def test_not_for_others(differences):
    """Other inventories with resources of the same names have other differences, and nothing is kept for ever."""
    old, new = arranged(2), arranged(3)
    differences.find(old, new)
    (known,) = differences(old, new)
    (other,) = differences(old, arranged(4))
    assert ("e0-2", "e0-3") == other.added
    differences.forget()
    (again,) = differences(old, new)
    assert again is not known
