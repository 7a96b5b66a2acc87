"""Whether a container's request can be granted, and which devices it means.

The kubelet may call Allocate several times for one container, does not say for which pod, and never announces a
release. So granting keeps no state, and the same request always gets the same answer.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ...errors import InvalidRequest, UnhealthyDevice, UnknownDevice
from ..inventory.resources import Resource
from ..model.device import REPLICA_MARK, Device, Slot
from ..model.syntax.names import MAX_ID


class Allocation(NamedTuple):
    """A granted request: the slots in the order asked for, and the distinct devices behind them."""

    resource: Resource
    slots: tuple[Slot, ...]
    devices: tuple[Device, ...]


def allocate(resource: Resource, ids: Sequence[str]) -> Allocation:
    """Grant a container's request, or raise the AllocationError that says why not."""
    if not ids:
        raise InvalidRequest(f"invalid request for {resource.name}: it names no device")
    try:
        slots = tuple(map(resource.by_id.__getitem__, ids))
    except KeyError as unknown:
        raise UnknownDevice(
            f"invalid request: unknown device: {_short(unknown.args[0])} is not one of the "
            f"{len(resource.slots)} devices of {resource.name}"
        ) from None
    if len(ids) > 1:
        _check_together(resource, ids)
    devices: dict[str, Device] = {}
    for slot in slots:
        if not slot.health.healthy:
            raise UnhealthyDevice(
                f"device {slot.id!r} of {resource.name} is unhealthy: {slot.health.reason or 'no reason given'}"
            )
        devices[slot.device.id] = slot.device
    return Allocation(resource, slots, tuple(devices.values()))


def _check_together(resource: Resource, ids: Sequence[str]) -> None:
    if len(set(ids)) != len(ids):
        twice = next(each for each in ids if list(ids).count(each) > 1)
        raise InvalidRequest(f"invalid request for {resource.name}: it names device {_short(twice)} twice")
    sharing = resource.sharing
    one_alone = sharing is not None and sharing.fail_requests_greater_than_one
    if one_alone and any(REPLICA_MARK in each for each in ids):
        raise InvalidRequest(
            f'invalid allocation request for "{resource.name}": invalid request: '
            f"maximum request size for shared resources is 1; found {len(ids)}"
        )


def _short(slot_id: str) -> str:
    """An id for a message, cut where it is longer than any real id, so that it cannot flood a status or a log."""
    return repr(slot_id if len(slot_id) <= 2 * MAX_ID else f"{slot_id[:MAX_ID]}…")
