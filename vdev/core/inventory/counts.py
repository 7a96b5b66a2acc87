"""How many devices an inventory offers, for the log and for people; and which number each has."""

from ..spec import VirtualSource
from .resources import Inventory


def counts(inventory: Inventory) -> dict[str, int]:
    """The devices that are listed, by resource."""
    return {name: len(resource.slots) for name, resource in inventory.resources.items()}


def for_claims(inventory: Inventory) -> dict[str, int]:
    """The devices that claims can get whole or in parts, by driver."""
    return {driver: len(resource.raws) for driver, resource in inventory.claimable.items()}


def summary(inventory: Inventory) -> str:
    """The counts in a line, as in `acme.dev/npu 2; for claims gpu.nvidia.com 4`."""
    parts = {"": counts(inventory), "for claims ": for_claims(inventory)}
    told = (what + ", ".join(f"{name} {count}" for name, count in of.items()) for what, of in parts.items() if of)
    return "; ".join(told) or "no devices"


def numbers(inventory: Inventory) -> dict[str, int]:
    """The number of each device among those of its maker on the node, as a driver counts them, by raw device id.

    Entry after entry, in the order of their indices.
    """
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
