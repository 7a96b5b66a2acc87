"""What NVIDIA's driver writes to the kernel log about an Xid.

Sources: open-gpu-kernel-modules (the line that names the GPU comes before its first Xid); logs of drivers 535 to 580.
Readers that the form must suit: node-problem-detector's rules for GPUs, NVSentinel (syslog-health-monitor), gpud.
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
    """An Xid that a device has: by which rule, and where the device is."""

    raw: str
    number: int
    rule: str
    address: str

    @property
    def lines(self) -> tuple[str, str]:
        """Which GPU it is, and what it has."""
        place = self.address.rpartition(".")[0]
        text = TEXTS.get(self.number, "unknown error")
        return (
            f"NVRM: GPU at PCI:{place}: {self.raw}",
            f"NVRM: Xid (PCI:{place}): {self.number}, pid='<unknown>', name=<unknown>, {text}.",
        )


def occurrences(xids: Mapping[Key, tuple[XidError, ...]], devices: Inventory, base: Inventory) -> frozenset[Occurrence]:
    """The Xids of all devices; one of a device that is cut or shared is one."""
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
    """A line as the kernel takes it from a program."""
    return f"<{_ERROR}>{line}\n".encode()


def logged(line: str, node: str, wall: float, uptime: float) -> bytes:
    """A line as syslog writes it to a file."""
    when = datetime.fromtimestamp(wall, UTC).strftime("%b %e %H:%M:%S")
    return f"{when} {node} kernel: [{uptime:12.6f}] {line}\n".encode()
