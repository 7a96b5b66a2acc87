"""How many devices an inventory offers: as numbers for the log, and as a line for people."""

from .resources import Inventory


def counts(inventory: Inventory) -> dict[str, int]:
    """The devices that are listed, by resource."""
    return {name: len(resource.slots) for name, resource in inventory.resources.items()}


def for_claims(inventory: Inventory) -> dict[str, int]:
    """The devices that claims can get whole or in parts, by driver."""
    return {driver: len(resource.raws) for driver, resource in inventory.claimable.items()}


def summary(inventory: Inventory) -> str:
    """`acme.dev/npu 2; for claims gpu.nvidia.com 4`"""
    parts = {"": counts(inventory), "for claims ": for_claims(inventory)}
    told = (what + ", ".join(f"{name} {count}" for name, count in of.items()) for what, of in parts.items() if of)
    return "; ".join(told) or "no devices"
