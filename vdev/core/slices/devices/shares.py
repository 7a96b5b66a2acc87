"""Devices that several claims may have at the same time: time slices are counted, shares of MPS have memory."""

from collections.abc import Mapping

from ...inventory.listed.sharing import Sharing, mps_clients
from ...model.device import Device
from ...model.dra import DeviceCapacity, RequestPolicy
from ...spec import SharingKind

_MIB = 2**20
MEMORY = "memory"


def shared(
    capacity: Mapping[str, DeviceCapacity], device: Device, sharing: Sharing, slots: str
) -> dict[str, DeviceCapacity]:
    """The capacity of a shared device, with `slots`, of which each claim takes one unless it asks for more.

    Without a policy, the first claim would take all of a capacity, so each has one. Memory that is not cut up, as under
    time-slicing, is no claim's alone: the default is none of it.
    """
    replicas = sharing.replicas[device.id]
    by_memory = sharing.kind is SharingKind.MPS and device.memory // replicas >= _MIB
    found = free(capacity)
    if by_memory and not capacity[MEMORY].policy:
        whole = device.memory // _MIB * _MIB
        share = device.memory // replicas // _MIB * _MIB
        found[MEMORY] = DeviceCapacity(whole, RequestPolicy(share, _MIB, whole, _MIB))
    count = mps_clients(device) if by_memory else replicas
    most = 1 if sharing.fail_requests_greater_than_one else count
    return {slots: DeviceCapacity(count, RequestPolicy(1, 1, most, 1)), **found}


def free(capacity: Mapping[str, DeviceCapacity]) -> dict[str, DeviceCapacity]:
    """The capacity of a shared device. Of what has no policy, a claim takes nothing unless it asks."""
    return {name: each if each.policy else _free(name, each.value) for name, each in capacity.items()}


def _free(name: str, value: int) -> DeviceCapacity:
    step = _MIB if name == MEMORY else 1
    whole = value // step * step
    return DeviceCapacity(whole, RequestPolicy(0, 0, whole, step)) if whole else DeviceCapacity(value)
