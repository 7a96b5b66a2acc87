"""The number of each device among those of its maker on the node, as a driver counts them."""

from ..spec import VirtualSource
from .resources import Inventory


def numbers(inventory: Inventory) -> dict[str, int]:
    """By raw device id: entry after entry, in the order of their indices."""
    indices: dict[tuple[str, str], dict[str, int]] = {}
    for resource in inventory.everything.values():
        for device in resource.by_device.values():
            entry = resource.entries.get(device.raw.entry)
            source = entry.source if entry is not None else None
            maker = source.maker_resource if isinstance(source, VirtualSource) else ""
            indices.setdefault((maker, device.raw.entry), {})[device.raw.id] = device.raw.index
    found: dict[str, int] = {}
    first: dict[str, int] = {}
    for (maker, _), mine in indices.items():
        offset = first.get(maker, 0)
        found |= {raw: offset + index for raw, index in mine.items()}
        first[maker] = offset + max(mine.values()) + 1
    return found
