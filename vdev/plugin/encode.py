"""From the core's values to the kubelet's messages.

Device lists are written as bytes, one piece per device and pieces kept: a list of tens of thousands of devices in
which one changed costs one new piece and a join. Tests hold the pieces against the generated messages.
"""

from collections.abc import Sequence

from ..core.allocation.edits import ContainerEdits
from ..core.model.device import Slot
from ..pb import deviceplugin_v1beta1_pb2 as pb

_LEN = 2  # protobuf wire type: length-delimited
_MORE = 0x80  # the bit of a varint's byte that says that another follows
_HEALTHY = b"\x12\x07Healthy"
_UNHEALTHY = b"\x12\x09Unhealthy"


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= _MORE:
        out.append(value % _MORE + _MORE)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, body: bytes) -> bytes:
    return bytes((number << 3 | _LEN,)) + _varint(len(body)) + body


def _topology(numa: tuple[int, ...]) -> bytes:
    if not numa:
        return b""
    nodes = b"".join(_field(1, b"\x08" + _varint(node) if node else b"") for node in numa)
    return _field(3, nodes)


def slot_piece(slot: Slot) -> bytes:
    """One slot as an element of `ListAndWatchResponse.devices`."""
    health = _HEALTHY if slot.health.healthy else _UNHEALTHY
    return _field(1, _field(1, slot.id.encode()) + health + _topology(slot.device.raw.topology))


class ListEncoder:
    """Encodes a resource's lists, one after the other, reusing the pieces of slots that stayed the same."""

    def __init__(self) -> None:
        self._slots: Sequence[Slot] = ()
        self._pieces: list[bytes] = []

    def encode(self, slots: Sequence[Slot]) -> bytes:
        """A whole `ListAndWatchResponse`."""
        known = dict(zip(map(id, self._slots), self._pieces, strict=True))  # ids hold: the slots are kept with them
        self._pieces = [known.get(id(slot)) or slot_piece(slot) for slot in slots]
        self._slots = slots
        return b"".join(self._pieces)


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
