"""From the core's values to the kubelet's messages.

A protobuf message may be written in parts, one after the other. So each device of a list is encoded once, and its bytes
are kept: a list of tens of thousands of devices in which one changed costs one new part and a join.
"""

from collections.abc import Sequence

from ..core.allocation.edits import ContainerEdits
from ..core.model.device import Slot
from ..pb import deviceplugin_v1beta1_pb2 as pb


def slot_part(slot: Slot) -> bytes:
    """A `ListAndWatchResponse` with this slot alone."""
    message = pb.ListAndWatchResponse()
    device = message.devices.add(ID=slot.id, health="Healthy" if slot.health.healthy else "Unhealthy")
    for node in slot.device.raw.topology:
        device.topology.nodes.add(ID=node)
    return message.SerializeToString()


class ListEncoder:
    """Encodes one list of a resource after the other, and reuses the bytes of slots that stayed the same."""

    def __init__(self) -> None:
        self._slots: Sequence[Slot] = ()
        self._parts: list[bytes] = []

    def encode(self, slots: Sequence[Slot]) -> bytes:
        """A whole `ListAndWatchResponse`."""
        known = dict(zip(map(id, self._slots), self._parts, strict=True))  # `_slots` keeps them alive, so ids hold
        self._parts = [known.get(id(slot)) or slot_part(slot) for slot in slots]
        self._slots = slots
        return b"".join(self._parts)


def container_response(edits: ContainerEdits) -> pb.ContainerAllocateResponse:
    """One container's answer."""
    return pb.ContainerAllocateResponse(
        envs=edits.env,
        mounts=[
            pb.Mount(container_path=mount.container_path, host_path=mount.host_path, read_only=mount.read_only)
            for mount in edits.mounts.values()
        ],
        devices=[
            pb.DeviceSpec(container_path=node.container_path, host_path=node.host_path, permissions=node.permissions)
            for node in edits.nodes.values()
        ],
        annotations=edits.annotations,
        cdi_devices=[pb.CDIDevice(name=name) for name in edits.cdi_devices],
    )
