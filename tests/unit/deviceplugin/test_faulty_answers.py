"""Wrong device lists for fault rules."""

import pytest

from vdev.deviceplugin.servicer import faulty_list
from vdev.faults.effects import StreamFaults


def test_an_unknown_fault_is_an_error():
    with pytest.raises(ValueError, match="stall"):
        faulty_list(StreamFaults(stall=True), (), b"")
