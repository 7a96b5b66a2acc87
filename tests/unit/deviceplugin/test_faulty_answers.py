"""Wrong lists that fault rules ask for."""

import pytest

from vdev.deviceplugin.servicer import faulty_list
from vdev.faults.effects import StreamFaults


def test_a_fault_that_the_list_does_not_know_is_an_error():
    """It is not taken for another one."""
    with pytest.raises(ValueError, match="stall"):
        faulty_list(StreamFaults(stall=True), (), b"")
