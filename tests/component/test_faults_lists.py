"""Lists that are wrong on purpose: how large they may be."""

import pytest

from vdev.deviceplugin import servicer
from vdev.faults.effects import StreamFault
from vdev.model.device import Device, RawDevice, Slot
from vdev.pb import deviceplugin_v1beta1_pb2 as pb
from vdev.planning.refusal import LIST_LIMIT


def slots(number, width):
    """So many slots with ids of that length."""
    devices = (RawDevice(id=f"{index:0{width}d}", entry="a", index=index) for index in range(number))
    return [Slot(id=each.id, device=Device(id=each.id, raw=each, ordinal=str(each.index))) for each in devices]


def encoded(some):
    """The right list."""
    listed = [pb.Device(ID=slot.id, health="Healthy") for slot in some]
    return pb.ListAndWatchResponse(devices=listed).SerializeToString()


@pytest.mark.parametrize(("number", "expected"), [(10, 20), (3000, 4130)])
def test_duplicates_stop_at_what_the_kubelet_receives(number, expected):
    """Every id comes twice, until the list would pass 4 MiB."""
    some = slots(number, 1000)
    sent = servicer.device_list(StreamFault.DUPLICATE_IDS, some, encoded(some))
    assert expected == len(pb.ListAndWatchResponse.FromString(sent).devices)
    assert len(sent) <= LIST_LIMIT
