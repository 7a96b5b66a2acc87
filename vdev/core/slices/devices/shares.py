"""Devices that several claims may have at the same time: time slices are counted, shares of MPS have memory."""

from collections.abc import Mapping

from ...inventory.listed.sharing import Sharing, mps_clients
from ...model.device import Device
from ...spec import SharingKind
from .published import DeviceCapacity, RequestPolicy

_MIB = 2**20
MEMORY = "memory"


def shared(
    capacity: Mapping[str, DeviceCapacity], device: Device, sharing: Sharing, slots: str
) -> dict[str, DeviceCapacity]:
    """The capacity of a shared device, with `slots`, of which each claim takes one unless it asks for more.

    A capacity that nothing is said about goes to the first claim as a whole, so there is something said about each.
    Memory that is not cut up, as under time-slicing, is no claim's alone: the default is none of it.
    """
    replicas = sharing.replicas[device.id]
    by_memory = sharing.kind is SharingKind.MPS and device.memory // replicas >= _MIB
    found = {name: _free(name, each.value) for name, each in capacity.items()}
    if by_memory:
        whole = device.memory // _MIB * _MIB
        share = device.memory // replicas // _MIB * _MIB
        found[MEMORY] = DeviceCapacity(whole, RequestPolicy(share, _MIB, whole, _MIB))
    count = mps_clients(device) if by_memory else replicas
    most = 1 if sharing.fail_requests_greater_than_one else count
    return {**found, slots: DeviceCapacity(count, RequestPolicy(1, 1, most, 1))}


def _free(name: str, value: int) -> DeviceCapacity:
    step = _MIB if name == MEMORY else 1
    whole = value // step * step
    return DeviceCapacity(whole, RequestPolicy(0, 0, whole, step)) if whole else DeviceCapacity(value)
