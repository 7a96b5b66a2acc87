"""The kernel log's lines about Xids, in the form of NVIDIA's driver.

Sources: open-gpu-kernel-modules (a line that names the GPU comes before its first Xid); logs of drivers 535 to 580.
Readers: node-problem-detector's rules for GPUs, NVSentinel (syslog-health-monitor), gpud.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from ..model.device import Key, bus_id
from ..planning.resources import Inventory, numbers
from .effects import XidError
from .xids import TEXTS

_ERROR = 3  # the level of the driver's messages


@dataclass(frozen=True, slots=True, order=True)
class Occurrence:
    """An Xid of a device now."""

    raw: str  # the device's id
    number: int
    rule: str
    address: str  # on the PCI bus

    @property
    def lines(self) -> tuple[str, str]:
        """The line that names the GPU, and the line of the Xid."""
        place = self.address.rpartition(".")[0]
        text = TEXTS.get(self.number, "unknown error")
        return (
            f"NVRM: GPU at PCI:{place}: {self.raw}",
            f"NVRM: Xid (PCI:{place}): {self.number}, pid='<unknown>', name=<unknown>, {text}.",
        )


def occurrences(xids: Mapping[Key, tuple[XidError, ...]], devices: Inventory, base: Inventory) -> frozenset[Occurrence]:
    """The Xids of all whole devices, each once."""
    if not xids:
        return frozenset()
    count = numbers(base)
    found = set()
    for (name, device), errors in xids.items():
        resource = devices.everything.get(name)
        known = resource.by_device.get(device) if resource is not None else None
        if known is not None:
            address = bus_id(known.raw, count.get(known.raw.id, known.raw.index))
            found |= {Occurrence(known.raw.id, error.number, error.rule, address) for error in errors}
    return frozenset(found)


def record(line: str) -> bytes:
    """The line in the form of /dev/kmsg."""
    return f"<{_ERROR}>{line}\n".encode()


def logged(line: str, node: str, wall: float, uptime: float) -> bytes:
    """The line in the form of a file of syslog."""
    when = datetime.fromtimestamp(wall, UTC).strftime("%b %e %H:%M:%S")
    return f"{when} {node} kernel: [{uptime:12.6f}] {line}\n".encode()
