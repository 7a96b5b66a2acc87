"""Wrong answers that fault rules ask for."""

import pytest

from vdev.deviceplugin.servicer import faulty_allocate, faulty_list, faulty_preferred
from vdev.faults.effects import Answer, StreamFaults
from vdev.pb import deviceplugin_v1beta1_pb2 as pb


def test_a_fault_that_the_call_does_not_know_is_an_error():
    """It is not taken for another one."""
    wrong = Answer(wrongDevice=True)
    with pytest.raises(ValueError, match="wrongDevice"):
        faulty_allocate(wrong, pb.AllocateRequest(), pb.AllocateResponse())
    with pytest.raises(ValueError, match="wrongDevice"):
        faulty_preferred(wrong, pb.PreferredAllocationRequest())
    with pytest.raises(ValueError, match="stall"):
        faulty_list(StreamFaults(stall=True), (), b"")
