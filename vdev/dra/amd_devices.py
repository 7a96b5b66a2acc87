"""AMD devices as AMD's DRA driver publishes them: names, attributes and capacity."""

from ..model.device import Device, bus_id, root
from ..model.dra import DeviceCapacity
from ..model.entry import Entry
from ..model.names import digest, domain_and_name
from .attributes import (
    PCI_BUS_ID,
    PCIE_ROOT,
    Attributes,
    Describer,
    semantic_version,
    standard_attributes,
)

FIRST_RENDER = 128
"""The number of the first render node, `/dev/dri/renderD128` (source: the amdgpu driver)."""
_CARDS = 64  # the card numbers of GPUs grow in steps of this
_SIMDS = 4  # of a compute unit
DRIVER_VERSION = "6.14.14"
"""The default of the attribute driverVersion."""

_FULL = "spx"


def card(device: Device, index: int, gpus: int, slices: int) -> int:
    """The number of the device's card node; `index` is the number of its GPU, of `gpus` on the node.

    The numbers of additional partitions begin at a round number, so that adding a GPU does not rename partitions.
    """
    start = device.slices.start if device.is_partition else 0
    first = -(-gpus // _CARDS) * _CARDS
    return index if start == 0 else first + index * (slices - 1) + start - 1


class Amd(Describer):
    """Describes the devices of one entry as AMD's driver does."""

    def _card(self, device: Device) -> int:
        slices = self.entry.geometry.slices if self.entry.geometry else 1
        return card(device, self.gpu(device), self.gpus, slices)

    def name(self, device: Device) -> str:
        card = self._card(device)
        return f"gpu-{card}-{FIRST_RENDER + card}"

    def attributes(self, device: Device) -> Attributes:
        known, index, number_of_card = device.raw.attributes, self.gpu(device), self._card(device)
        full = not device.is_partition or device.profile.startswith(_FULL)
        unique = str(int(digest(device.raw.id, 16), 16))  # the kernel driver has such a number for each GPU
        found = dict(standard_attributes(device))
        address = found.pop(PCI_BUS_ID, bus_id(device.raw, index))
        return {
            "type": "amdgpu" if full else "amdgpu-partition",
            "pciAddr" if full else "parentPciAddr": address,
            "cardIndex": number_of_card,
            "renderIndex": FIRST_RENDER + number_of_card,
            "deviceID" if full else "parentDeviceID": unique,
            "family": known.get("family", ""),
            "productName": known.get("product") or known.get("model", ""),
            "driverVersion": semantic_version(known.get("driverVersion", ""), DRIVER_VERSION),
            "driverSrcVersion": known.get("driverSrcVersion", ""),
            "partitionProfile": device.profile,
            PCIE_ROOT: root(index),
            **found,
        }

    def capacity(self, device: Device) -> dict[str, DeviceCapacity]:
        """Memory, and the compute units if they are known."""
        amounts = {"memory": device.memory}
        units = device.attributes.get("computeUnits", "")
        if units.isdecimal():
            amounts |= {"computeUnits": int(units), "simdUnits": int(units) * _SIMDS}
        return {key: DeviceCapacity(value) for key, value in amounts.items()}


def is_amd(entry: Entry) -> bool:
    """Whether AMD's driver would publish the entry's devices: those of AMD's presets."""
    return entry.virtual is not None and domain_and_name(entry.virtual.model.resource)[0] == "amd.com"
