"""Where the tools and their data are: on the node, and in a container.

    <root>/bin/nvidia-smi               mounted where the maker's tool is
    <root>/devices/<device id>/nvidia   its directory mounted as /run/vdev/smi/<order>/

The directory is mounted, never the file: a file that is replaced under a mount of its own would stay the old one.
"""

import posixpath
from collections.abc import Mapping
from types import MappingProxyType

from .device import Device, Mount
from .telemetry import SmiTool

DIRECTORY = "/var/lib/vdev/smi"
"""The root on the node, unless it is told otherwise."""

IN_CONTAINER = "/run/vdev/smi"

TOOLS: Mapping[SmiTool, str] = MappingProxyType({SmiTool.NVIDIA: "nvidia-smi", SmiTool.AMD: "amd-smi"})


def tool_path(root: str, name: str) -> str:
    """Where a tool is on the node."""
    return posixpath.join(root, "bin", name)


def device_directory(root: str, device: str) -> str:
    """Where the data of a device is on the node, by its id."""
    return posixpath.join(root, "devices", device)


def mounts(root: str, tool: SmiTool, device: Device) -> tuple[Mount, ...]:
    """What a container mounts for a device; the tool is the same for all."""
    name = TOOLS[tool]
    program = Mount(tool_path(root, name), f"/usr/bin/{name}", read_only=True)
    data = Mount(device_directory(root, device.id), posixpath.join(IN_CONTAINER, order(device)), read_only=True)
    return program, data


def order(device: Device) -> str:
    """The name of a device's directory in a container: sorted by it, partitions of one device stand together."""
    number, *part = device.sort_key
    return f"{number:05}.{device.raw.id}" + "".join(f".{each:03}" for each in part)
