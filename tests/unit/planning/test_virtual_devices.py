"""Ids of virtual devices."""

from vdev.model import names
from vdev.model.entry import EntrySpec
from vdev.model.sources import VirtualSource
from vdev.planning import virtual_devices


def ids(count: int) -> list[str]:
    source = VirtualSource(count=count)
    entry = EntrySpec(name="n" * 50, resource="acme.dev/r", source=source)
    return [device.id for device in virtual_devices.devices(entry, source, "node")]


def test_many_devices_with_a_long_name_have_ids_of_their_own():
    """Their ids are shortened, and stay what they are when there are more."""
    many = ids(10_000)
    assert 10_000 == len(set(many))
    assert many[:5_000] == ids(5_000)
    assert max(map(len, many)) <= names.MAX_ID - len("::200000")
