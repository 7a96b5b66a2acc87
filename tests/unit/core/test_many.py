"""Values that are made many at a time are those that are made one by one."""

import pytest

from vdev.core.many import many
from vdev.core.model.device import EMPTY, HEALTHY, Device, Health, RawDevice, Slot


@pytest.mark.parametrize("count", [0, 1, 999, 1000, 2500])
def test_raw_devices(count):
    """Of every piece that they are made in; what nobody gives is the default, and the same object for all."""
    names, numbers = [f"d-{number}" for number in range(count)], range(count)
    made = many(RawDevice, count, each={"id": names, "index": numbers}, same={"entry": "d", "memory": 5})
    assert made == [RawDevice(id=f"d-{number}", entry="d", index=number, memory=5) for number in range(count)]
    assert all(each.attributes is EMPTY and each.health is HEALTHY for each in made)


def test_devices_and_slots():
    """What a resource is made of."""
    raws = [RawDevice(id=f"d-{number}", entry="d", index=number) for number in range(3)]
    devices = many(Device, 3, each={"id": ["a", "b", "c"], "raw": raws}, same={"ordinal": "1"})
    assert devices == [Device(id=name, raw=raw, ordinal="1") for name, raw in zip("abc", raws, strict=True)]
    broken = Health(healthy=False)
    slots = many(Slot, 3, each={"id": ["a", "b", "c"], "device": devices}, same={"health": broken})
    assert slots == [Slot(device.id, device, None, broken) for device in devices]


def test_a_value_needs_all_of_its_fields():
    """One that has no default and is not given is said, not left out."""
    with pytest.raises(AssertionError, match="needs device"):
        many(Slot, 1, each={"id": ["a"]}, same={})
