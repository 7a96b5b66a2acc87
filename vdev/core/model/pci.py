"""Where devices that do not exist are on the PCI bus: each below a root of its own, sixteen buses apart."""

import re

from .device import RawDevice

_BUSES = 16  # of a domain that have a device
_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def bus_id(raw: RawDevice, number: int) -> str:
    """The address of the maker's n-th device on the node, such as `0000:31:00.0`, or what its attributes say."""
    given = raw.attributes.get("pciBusID", "").lower()
    domain, slot = divmod(number, _BUSES)
    return given if _ADDRESS.fullmatch(given) else f"{domain:04x}:{slot * 16 + 1:02x}:00.0"


def root(number: int) -> str:
    """The root that the maker's n-th device is below, as Kubernetes names it: `pci0000:30`."""
    domain, slot = divmod(number, _BUSES)
    return f"pci{domain:04x}:{slot * 16:02x}"
