"""What AMD's driver publishes (ROCm/k8s-gpu-dra-driver 2622427, cmd/gpu-kubeletplugin).

A GPU and a partition are both `gpu-<card>-<render>`, by the numbers of their DRM nodes. The first partition of a GPU
has the nodes of the GPU; those of the others come after the nodes of all GPUs. What nothing is known of has a likely
value: expressions that ask for an attribute which a device lacks are errors that stop the allocation.
"""

from ...model.device import Device
from ...model.dra import DeviceCapacity
from ...model.pci import bus_id, root
from ...model.syntax.names import digest, domain_and_name
from ...spec import EntrySpec, VirtualSource
from .attributes import PCI_BUS_ID, PCIE_ROOT, Attributes, number, standard, string, version
from .plain import Describer

FIRST_RENDER = 128
"""The number of the first render node, `/dev/dri/renderD128` (source: the amdgpu driver)."""
_CARDS = 64  # numbers of cards, in steps of which there is room for GPUs
_SIMDS = 4  # of a compute unit
DRIVER_VERSION = "6.14.14"
"""Of devices whose attribute driverVersion says nothing."""

_FULL = "spx"


def card(device: Device, index: int, gpus: int, slices: int) -> int:
    """The number of the device's card node; `index` is that of its GPU, of `gpus` on the node.

    The nodes of further partitions begin at a round number, so that one GPU more renames no partition.
    """
    start = device.slices.start if device.is_partition else 0
    first = -(-gpus // _CARDS) * _CARDS
    return index if start == 0 else first + index * (slices - 1) + start - 1


class Amd(Describer):
    """Describes the devices of one entry as AMD's driver does."""

    def _card(self, device: Device) -> int:
        slices = self.entry.geometry.slices if self.entry.geometry else 1
        return card(device, self.gpu(device), self.place.gpus, slices)

    def name(self, device: Device) -> str:
        card = self._card(device)
        return f"gpu-{card}-{FIRST_RENDER + card}"

    def attributes(self, device: Device) -> Attributes:
        """The device's attributes, under the names that they have in the driver's domain."""
        known, index, number_of_card = device.raw.attributes, self.gpu(device), self._card(device)
        full = not device.is_partition or device.profile.startswith(_FULL)
        unique = str(int(digest(device.raw.id, 16), 16))  # as the number that the kernel driver gives each GPU
        found = dict(standard(device))
        address = found.pop(PCI_BUS_ID, string(bus_id(device.raw, index)))
        return {
            "type": string("amdgpu" if full else "amdgpu-partition"),
            "pciAddr" if full else "parentPciAddr": address,
            "cardIndex": number(number_of_card),
            "renderIndex": number(FIRST_RENDER + number_of_card),
            "deviceID" if full else "parentDeviceID": string(unique),
            "family": string(known.get("family", "")),
            "productName": string(known.get("product") or known.get("model", "")),
            "driverVersion": version(known.get("driverVersion", ""), DRIVER_VERSION),
            "driverSrcVersion": string(known.get("driverSrcVersion", "")),
            "partitionProfile": string(device.profile),
            PCIE_ROOT: string(root(index)),
            **found,
        }

    def capacity(self, device: Device) -> dict[str, DeviceCapacity]:
        """With the compute units, where they are known."""
        amounts = {"memory": device.memory}
        units = device.attributes.get("computeUnits", "")
        if units.isdecimal():
            amounts |= {"computeUnits": int(units), "simdUnits": int(units) * _SIMDS}
        return {key: DeviceCapacity(value) for key, value in amounts.items()}


def is_amd(entry: EntrySpec) -> bool:
    """Whether the entry's devices are published as AMD's driver does: those of AMD's presets."""
    source = entry.source
    return isinstance(source, VirtualSource) and domain_and_name(source.maker_resource)[0] == "amd.com"
