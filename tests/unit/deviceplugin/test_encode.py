"""Encoded device lists, and their size, which is computed without encoding."""

import string

from hypothesis import given
from hypothesis import strategies as st

from vdev.deviceplugin.servicer import list_response
from vdev.model.device import Device, Health, RawDevice, Slot
from vdev.pb import deviceplugin_v1beta1_pb2 as pb
from vdev.planning.resources import list_size


@st.composite
def slots(draw):
    raw = RawDevice(id="r", entry="e", index=0, numa=tuple(draw(st.lists(st.integers(0, 127), max_size=8))))
    text = draw(st.text(string.ascii_letters + string.digits + ":._-", min_size=1, max_size=63))
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
def test_lists_have_the_computed_size(members):
    response = list_response(members)
    assert message(members) == response
    assert list_size(members) == response.ByteSize()
