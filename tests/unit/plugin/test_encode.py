"""Lists that are encoded in parts against whole messages."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from vdev.core.inventory import list_size
from vdev.core.model.device import Device, Health, RawDevice, Slot
from vdev.pb import deviceplugin_v1beta1_pb2 as pb
from vdev.plugin.encode import ListEncoder


@st.composite
def slots(draw):
    raw = RawDevice(id="r", entry="e", index=0, numa=tuple(draw(st.lists(st.integers(0, 300), max_size=3))))
    text = draw(st.text(min_size=1, max_size=63))
    return Slot(text, Device(id=text, raw=raw, ordinal="0"), None, Health(healthy=draw(st.booleans())))


def message(members):
    return pb.ListAndWatchResponse(
        devices=[
            pb.Device(
                ID=slot.id,
                health="Healthy" if slot.health.healthy else "Unhealthy",
                topology=pb.TopologyInfo(nodes=[pb.NUMANode(ID=node) for node in slot.device.raw.numa])
                if slot.device.raw.numa
                else None,
            )
            for slot in members
        ]
    )


@given(st.lists(slots(), max_size=8, unique_by=lambda slot: slot.id))
def test_lists_are_what_protobuf_would_write(members):
    """The joined parts, their computed size and the whole message agree, also when parts are reused."""
    encoder = ListEncoder()
    assert message(members).SerializeToString() == encoder.encode(members)
    assert list_size.list_size(members) == len(encoder.encode(members))
    flipped = [replace(slot, health=Health(healthy=not slot.health.healthy)) for slot in members[:1]] + members[1:]
    assert message(flipped).SerializeToString() == encoder.encode(flipped)


def test_encoded_ahead():
    """A list that was asked for before is not encoded again; one of equal slots in another place is."""
    raw = RawDevice(id="r", entry="e", index=0)
    members = tuple(Slot(name, Device(id=name, raw=raw, ordinal="0")) for name in ("a", "b"))
    encoder = ListEncoder()
    first = encoder.encode(members)
    assert encoder.encode(members) is first
    assert message(members[::-1]).SerializeToString() == encoder.encode(members[::-1])
