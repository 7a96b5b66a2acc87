"""The size of a device list as a gRPC message: the kubelet receives at most 4 MiB (source: grpc-go's default)."""

from collections.abc import Iterable

from ..model.device import Slot

LIST_LIMIT = 4 * 1024 * 1024  # bytes; a message of exactly this size still passes
_HEALTHY, _UNHEALTHY = len("Healthy"), len("Unhealthy")


def _varint(value: int) -> int:
    """Bytes of an unsigned varint."""
    return max(1, (value.bit_length() + 6) // 7)


def _field(length: int) -> int:
    """Bytes of a field with a text or message of this length."""
    return 1 + _varint(length) + length


def list_size(slots: Iterable[Slot], *, healthy: bool | None = None) -> int:
    """Bytes of the whole list, with the health of each slot or a given one."""
    size = 0
    for slot in slots:
        works = slot.health.healthy if healthy is None else healthy
        device = _field(len(slot.id.encode())) + _field(_HEALTHY if works else _UNHEALTHY)
        if numa := slot.device.raw.topology:  # node 0 is the default value, which is an empty message
            device += _field(sum(_field(1 + _varint(node) if node else 0) for node in numa))
        size += _field(device)
    return size
