"""Answers that are wrong on purpose: what a broken plugin might send."""

from collections.abc import Sequence
from typing import Any, assert_never

from ..core.inventory.list_size import LIST_LIMIT
from ..core.model.device import Slot
from ..core.model.faults.fault_effects import FaultyAnswer, StreamFault
from ..pb import deviceplugin_v1beta1_pb2 as pb

BOGUS = "vdev-bogus"  # the beginning of ids, variables and paths that exist nowhere


def answer(wrong: FaultyAnswer, request: object, right: Any) -> Any:
    """The answer that is sent instead of the right one to Allocate or GetPreferredAllocation."""
    match request:
        case pb.AllocateRequest():
            return _allocate(wrong, request, right)
        case pb.PreferredAllocationRequest():
            return _preferred(wrong, request)
    return right


def _allocate(wrong: FaultyAnswer, request: pb.AllocateRequest, right: pb.AllocateResponse) -> pb.AllocateResponse:
    match wrong:
        case FaultyAnswer.EMPTY:
            return pb.AllocateResponse()
        case FaultyAnswer.BOGUS_IDS:
            bogus = pb.ContainerAllocateResponse(
                envs=dict.fromkeys(right.container_responses[0].envs, f"{BOGUS}-0")
                if request.container_requests
                else {},
                devices=[pb.DeviceSpec(container_path=f"/dev/{BOGUS}", host_path=f"/dev/{BOGUS}", permissions="rw")],
            )
            return pb.AllocateResponse(container_responses=[bogus for _ in request.container_requests])
        case FaultyAnswer.OVERSIZED:
            large = pb.ContainerAllocateResponse(envs={"VDEV_OVERSIZED": "x" * (LIST_LIMIT + 1)})
            return pb.AllocateResponse(container_responses=[large for _ in request.container_requests])
        case _:
            assert_never(wrong)


def _preferred(wrong: FaultyAnswer, request: pb.PreferredAllocationRequest) -> pb.PreferredAllocationResponse:
    match wrong:
        case FaultyAnswer.EMPTY:
            return pb.PreferredAllocationResponse()
        case FaultyAnswer.BOGUS_IDS:
            sizes = [each.allocation_size for each in request.container_requests]
            answers = [[f"{BOGUS}-{number}" for number in range(size)] for size in sizes]
        case FaultyAnswer.OVERSIZED:
            answers = [["x" * (LIST_LIMIT + 1)] for _ in request.container_requests]
        case _:
            assert_never(wrong)
    return pb.PreferredAllocationResponse(
        container_responses=[pb.ContainerPreferredAllocationResponse(deviceIDs=ids) for ids in answers]
    )


def device_list(fault: StreamFault, slots: Sequence[Slot], right: bytes) -> bytes:
    """The list that a stream sends under this fault. Of duplicates there are no more than the kubelet receives."""
    match fault:
        case StreamFault.DUPLICATE_IDS:
            return right + _within(LIST_LIMIT - len(right), slots)
        case StreamFault.OVERSIZED:
            piece = _other(f"{BOGUS}-{0:030d}", healthy=False)
            extra = (_other(f"{BOGUS}-{number:030d}", healthy=False) for number in range(LIST_LIMIT // len(piece) + 1))
            return right + b"".join(extra)
        case StreamFault.FLOOD | StreamFault.STALL | StreamFault.CLOSE:
            return right
        case _:
            assert_never(fault)


def _within(room: int, slots: Sequence[Slot]) -> bytes:
    """The slots once more with the opposite health, as many as fit: only `oversized` may exceed the limit."""
    extra = bytearray()
    for slot in slots:
        piece = _other(slot.id, healthy=not slot.health.healthy)
        if len(extra) + len(piece) > room:
            break
        extra += piece
    return bytes(extra)


def _other(each: str, *, healthy: bool) -> bytes:
    device = pb.Device(ID=each, health="Healthy" if healthy else "Unhealthy")
    return pb.ListAndWatchResponse(devices=[device]).SerializeToString()
