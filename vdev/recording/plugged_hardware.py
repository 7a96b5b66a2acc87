"""What is plugged into a node, from sysfs and NVIDIA's part of procfs: accelerators on PCI, and USB devices."""

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..discovery.sysfs.sysfs_tree import SysTree
from ..errors import HostError
from ..hostfs import HostRoot

_PCI, _USB = "/sys/bus/pci/devices", "/sys/bus/usb/devices"
_NVIDIA = "/proc/driver/nvidia/gpus"
_ACCELERATORS = ("0x03", "0x12", "0x0b40")  # display, processing accelerators, co-processors
_HUB = "09"
ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@dataclass(frozen=True, slots=True)
class HardwarePiece:
    """A piece of hardware. `kind` is pci or usb, `place` its address or port; ids are four hexadecimal digits.

    `serial` tells it from others alike: a serial number, or the UUID of a GPU. `model` and `maker` are names, where
    known. `is_accelerator`: somebody may want it for what it computes.
    """

    kind: str
    place: str
    vendor: str
    product: str
    serial: str = ""
    maker: str = ""
    model: str = ""
    driver: str = ""
    numa: int | None = None
    is_accelerator: bool = False

    @property
    def says(self) -> tuple[str, ...]:
        """What names it among others, in an order of preference."""
        return tuple(each for each in (self.serial, self.place) if each)


def pieces(host: HostRoot) -> list[HardwarePiece]:
    """All pieces of the host, as far as they can be read. Blocks."""
    tree = SysTree(host)
    gpus = dict(_gpus(host))
    found = []
    for each in (*_pci(tree), *_usb(tree)):
        uuid, model = gpus.get(each.place, ("", ""))
        found.append(replace(each, serial=each.serial or uuid, model=each.model or model))
    return found


def _members(tree: SysTree, listing: str) -> list[tuple[str, str]]:
    try:
        return tree.members(listing)
    except HostError:
        return []


def _pci(tree: SysTree) -> Iterator[HardwarePiece]:
    for address, directory in _members(tree, _PCI):
        node = tree.text(directory, "numa_node")
        yield HardwarePiece(
            "pci",
            address,
            tree.text(directory, "vendor").removeprefix("0x"),
            tree.text(directory, "device").removeprefix("0x"),
            driver=tree.text(directory, "driver"),
            numa=int(node) if node.isdecimal() else None,
            is_accelerator=tree.text(directory, "class").startswith(_ACCELERATORS),
        )


def _usb(tree: SysTree) -> Iterator[HardwarePiece]:
    for port, directory in _members(tree, _USB):
        if ":" in port or tree.text(directory, "bDeviceClass") == _HUB:
            continue
        yield HardwarePiece(
            "usb",
            port,
            tree.text(directory, "idVendor").lower(),
            tree.text(directory, "idProduct").lower(),
            serial=tree.text(directory, "serial"),
            maker=tree.text(directory, "manufacturer"),
            model=tree.text(directory, "product"),
            driver=tree.text(directory, "driver"),
        )


def _gpus(host: HostRoot) -> Iterator[tuple[str, tuple[str, str]]]:
    """UUID and model of NVIDIA's GPUs by PCI address, as the driver tells them."""
    try:
        names = [name for name, _ in host.entries(_NVIDIA)]
    except HostError:
        return
    for name in names:
        try:
            text = host.read_text(posixpath.join(_NVIDIA, name, "information"))
        except HostError:
            continue
        known = {
            key.strip(): value.strip() for key, _, value in (line.partition(":") for line in (text or "").splitlines())
        }
        yield name.lower(), (known.get("GPU UUID", ""), known.get("Model", ""))
