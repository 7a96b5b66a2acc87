"""The size of a device list as a gRPC message: the kubelet receives at most 4 MiB (source: grpc-go's default)."""

from collections.abc import Iterable

from ..model.device import Slot

LIST_LIMIT = 4 * 1024 * 1024  # bytes; a message of exactly this size still passes
_HEALTHY, _UNHEALTHY = len("Healthy"), len("Unhealthy")


def varint_size(value: int) -> int:
    """Bytes of an unsigned varint."""
    return max(1, (value.bit_length() + 6) // 7)


def _field(length: int) -> int:
    return 1 + varint_size(length) + length


def numa_size(numa: tuple[int, ...]) -> int:
    """Bytes of the topology field. Node 0 is the default value, which is an empty message."""
    if not numa:
        return 0
    nodes = sum(_field(1 + varint_size(node) if node else 0) for node in numa)
    return _field(nodes)


def slot_size(slot: Slot, *, healthy: bool | None = None) -> int:
    """Bytes that one slot adds to a list, with its own health or a given one."""
    works = slot.health.healthy if healthy is None else healthy
    health = _HEALTHY if works else _UNHEALTHY
    return _field(_field(len(slot.id.encode())) + _field(health) + numa_size(slot.device.raw.topology))


def list_size(slots: Iterable[Slot], *, healthy: bool | None = None) -> int:
    """Bytes of the whole list."""
    return sum(slot_size(slot, healthy=healthy) for slot in slots)
