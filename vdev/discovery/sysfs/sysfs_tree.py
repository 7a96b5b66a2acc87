"""The kernel's device tree in sysfs: devices by class and bus, their attributes, parents, nodes and children.

A device is named by its real directory below `/sys/devices`. What vanishes while it is read counts as absent.
"""

import posixpath
from collections.abc import Collection, Iterator

from ...core.model.syntax.path_pattern import natural_key
from ...core.spec import NodeKind
from ...errors import HostError
from ...hostfs import HostRoot
from ..device_nodes import looked_at
from ..found import is_usable

_UP = "../"
_FUNCTION = "virtfn"
# Buses whose names for devices follow from where they are plugged in, not from the order in which they were found.
_PLACES = frozenset({"usb", "pci", "platform", "pnp", "i2c", "spi", "vmbus", "ccw"})
# Where udev puts nodes whose device says no name of its own (`DEVNAME`).
_DIRECTORIES = {"input": "input/", "drm": "dri/", "sound": "snd/", "vfio": "vfio/", "vfio-dev": "vfio/devices/"}


class SysTree:
    """Reads sysfs below the host root, for one scan."""

    def __init__(self, host: HostRoot) -> None:
        self._host = host

    def members(self, directory: str) -> list[tuple[str, str]]:
        """Name and real directory of each device that a class or bus lists, in natural order. Raises HostError."""
        found = []
        for name, _ in self._host.entries(directory):
            if is_usable(name) and (real := self._real(posixpath.join(directory, name))):
                found.append((name, real))
        return sorted(found, key=lambda each: natural_key(each[0]))

    def _real(self, path: str) -> str:
        info = looked_at(self._host, path)
        return info.path if info is not None and info.kind is NodeKind.DIRECTORY else ""

    def subsystem(self, device: str) -> str:
        """The class or bus that the device belongs to; empty for a directory that is no device."""
        return posixpath.basename(self._host.link(f"{device}/subsystem"))

    def attribute(self, device: str, path: str) -> str | None:
        """The value of an attribute, None when it is not there.

        Each leading `../` climbs to the parent *device*: directories that only group (`video4linux/` above `video0`) do
        not count. A link's value is its target's name (`driver`, `iommu_group`), a directory's is empty. `virtfn` is
        the number of a virtual function. Raises
        HostError when it is there and cannot be read.
        """
        while path.startswith(_UP):
            device, path = self.parent(device), path.removeprefix(_UP)
        if path == _FUNCTION:
            return self._function(device)
        place = self._host.resolve(posixpath.join(device, path), follow=False)
        if not place.startswith("/sys/"):
            return None
        target = self._host.link(place)
        if target:
            return posixpath.basename(target)
        info = looked_at(self._host, place)
        if info is None:
            return None
        return "" if info.kind is NodeKind.DIRECTORY else self._host.read_text(place)

    def _function(self, device: str) -> str | None:
        """The number of a virtual function: that of the link to it at its physical function."""
        physical = self._host.resolve(f"{device}/physfn")
        if not physical.startswith("/sys/") or not self._host.exists(physical):
            return None
        links = (name for name, _ in self._host.entries(physical) if name.startswith(_FUNCTION))
        return next(
            (name.removeprefix(_FUNCTION) for name in links if self._host.resolve(f"{physical}/{name}") == device), None
        )

    def text(self, device: str, path: str) -> str:
        """The value of an attribute; empty when it is absent or cannot be read."""
        try:
            return self.attribute(device, path) or ""
        except HostError:
            return ""

    def parent(self, device: str) -> str:
        """The parent device; `/sys/devices` above the topmost."""
        above = posixpath.dirname(device)
        grouping = posixpath.basename(above) == self.subsystem(device) and not self._host.exists(f"{above}/uevent")
        return posixpath.dirname(above) if grouping else above

    def ancestors(self, device: str) -> Iterator[str]:
        while device.startswith("/sys/devices/"):
            yield device
            device = self.parent(device)

    def place(self, device: str) -> str:
        """The name of the nearest device (itself included) whose bus names it by where it is plugged in; else empty."""
        for each in self.ancestors(device):
            if self.subsystem(each) in _PLACES:
                return posixpath.basename(each)
        return ""

    def node(self, device: str) -> str:
        """The host path of the device's node, as the kernel names it; empty for a device without one.

        A USB device has its node by the numbers of bus and device, also where sysfs shows no `dev` and `uevent`.
        """
        has_number = bool(self.text(device, "dev"))
        for line in self.text(device, "uevent").splitlines() if has_number else ():
            key, _, value = line.partition("=")
            if key == "DEVNAME":
                return posixpath.join("/dev", value)
        bus, number = self.text(device, "busnum"), self.text(device, "devnum")
        if bus.isdecimal() and number.isdecimal():
            return f"/dev/bus/usb/{int(bus):03}/{int(number):03}"
        if not has_number:
            return ""
        return f"/dev/{_DIRECTORIES.get(self.subsystem(device), '')}{posixpath.basename(device)}"

    def node_directory(self, subsystem: str) -> str:
        return f"/dev/{_DIRECTORIES.get(subsystem, '')}".rstrip("/")

    def children(self, device: str, subsystems: Collection[str], *, bus: str = "") -> list[str]:
        """The devices of these subsystems below the device, in natural order of their directories.

        Other devices of `bus` that hang below (on a hub, behind a bridge) are devices of their own and left out; a USB
        device's interfaces belong to it.
        """
        found = []
        pending = [device]
        while pending:
            here = pending.pop()
            try:
                below = [posixpath.join(here, name) for name, is_directory in self._host.entries(here) if is_directory]
            except HostError:
                continue
            for each in below:
                subsystem = self.subsystem(each)
                if bus and subsystem == bus and not self._host.exists(f"{each}/bInterfaceNumber"):
                    continue
                if subsystem in subsystems:
                    found.append(each)
                pending.append(each)
        return sorted(found, key=natural_key)
