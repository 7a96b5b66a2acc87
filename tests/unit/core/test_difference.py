"""What must be done to get from one inventory to the next."""

from vdev import config
from vdev.planning.inventory import inventory
from vdev.planning.resources import Added, ChangedResource, RemovedResource, diff


def arranged(*counts):
    """An inventory with a resource of each of these counts."""
    entries = (f"  - {{name: e{n}, resource: acme.dev/r{n}, virtual: {{count: {c}}}}}\n" for n, c in enumerate(counts))
    return inventory(config.load_text(f"version: v1\ndevices:\n{''.join(entries)}").spec, "n")


def test_resources_that_come_go_and_change():
    removed, changed = diff(arranged(2, 3, 4), arranged(2, 5))
    assert isinstance(removed, RemovedResource)
    assert isinstance(changed, ChangedResource)
    assert (("e1-3", "e1-4"), (), ()) == (changed.added, changed.removed, changed.health)
    back, added = diff(arranged(2, 5), arranged(2, 3, 4))
    assert isinstance(back, ChangedResource)
    assert ("e1-3", "e1-4") == back.removed
    assert isinstance(added, Added)


def test_equal_inventories():
    assert () == diff(arranged(2, 3), arranged(2, 3))
