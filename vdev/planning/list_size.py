"""The size of a device list as a gRPC message: the kubelet receives at most 4 MiB (source: grpc-go's default)."""

from collections.abc import Iterable

from ..model.device import Slot

LIST_LIMIT = 4 * 1024 * 1024  # bytes; a message of exactly this size still passes
_HEALTHY, _UNHEALTHY = len("Healthy"), len("Unhealthy")


def _field(length: int) -> int:
    """Bytes of a field with a text or message of this length: its key, the length as a varint, and the content."""
    return 1 + max(1, (length.bit_length() + 6) // 7) + length


def list_size(slots: Iterable[Slot], *, healthy: bool | None = None) -> int:
    """Bytes of the whole list, with the health of each slot or a given one."""
    size = 0
    for slot in slots:
        works = slot.health.healthy if healthy is None else healthy
        device = _field(len(slot.id.encode())) + _field(_HEALTHY if works else _UNHEALTHY)
        if numa := slot.device.raw.topology:  # node 0 is the default value, which is an empty message
            varints = ((node.bit_length() + 6) // 7 for node in numa)
            device += _field(sum(_field(1 + varint if varint else 0) for varint in varints))
        size += _field(device)
    return size
