"""The devices that a layout is for, as far as a file of layouts asks."""

from collections.abc import Iterable
from dataclasses import dataclass

from ...core.partitions.choice import Parts
from ...core.partitions.geometry import Geometry, LayoutError
from ...core.partitions.placement import place


@dataclass(frozen=True, slots=True)
class Subject:
    """`count` devices of one model. `pci_id` is its PCI device id as presets write it, or empty."""

    geometry: Geometry
    count: int
    pci_id: str = ""

    def refusal(self, wanted: Iterable[Parts]) -> str:
        """Why a device cannot be cut into one of these, or the empty string."""
        for parts in dict.fromkeys(wanted):
            try:
                place(self.geometry, parts or ())
            except LayoutError as clash:
                return str(clash)
        return ""
