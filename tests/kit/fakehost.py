"""A host's `/dev` and `/sys` from YAML, with links as the kernel makes them.

    devices:                                   # below /sys/devices, parents first or not
      pci0000:00/0000:00:14.0:
        bus: pci                            # or class: video4linux; below a bus, class is an attribute
        driver: xhci_hcd
        numa_node: 1                           # every other key is an attribute
      pci0000:00/0000:00:14.0/usb1/1-4:
        bus: usb
        idVendor: 046d
        node: {path: bus/usb/001/004, number: "189:3"}   # and kind: block for a disk
    links: {/dev/serial/by-id/usb-x: ../../ttyUSB0}
    files: {/proc/swaps: ""}

So that no root is needed, a device node is a plain file with its type and numbers (`char 189:3`), which `FakeHost.host`
understands. With `real_nodes=True` it is a clone of /dev/null (1:3), which is safe to open.
"""

import os
import shutil
import stat
from pathlib import Path
from typing import Any

import yaml

from vdev.hostfs import HostRoot
from vdev.hostfs.root import inspect
from vdev.model.sources import NodeKind

_OWN = {"driver", "node", "links"}


def inspect_marked(path: str) -> tuple[NodeKind, int, int]:
    """Return the type of a path. Plain files may stand in for device nodes."""
    kind, major, minor = inspect(path)
    if kind is NodeKind.FILE and Path(path).stat().st_size < 32:
        word, _, numbers = Path(path).read_text(errors="replace").partition(" ")
        if word in (NodeKind.CHAR, NodeKind.BLOCK):
            major, minor = map(int, numbers.split(":"))
            return NodeKind(word), major, minor
    return kind, major, minor


class FakeHost:
    """A host below a temporary directory. `plug` and `unplug` add and remove devices."""

    def __init__(self, root: Path, *, real_nodes: bool = False) -> None:
        self.root = root
        self.host = HostRoot(root, inspect=inspect if real_nodes else inspect_marked)
        self._real_nodes = real_nodes
        for directory in ("dev", "sys/devices", "sys/bus", "sys/class", "sys/dev/char", "sys/dev/block", "proc/1"):
            (root / directory).mkdir(parents=True, exist_ok=True)
        (root / "proc/1/mountinfo").touch()
        (root / "proc/swaps").write_text("Filename\tType\tSize\tUsed\tPriority\n")

    def add(self, text: str) -> "FakeHost":
        """Create the files of a YAML text. If libyaml is installed, reading takes a tenth of the time."""
        described = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        for path, device in (described.get("devices") or {}).items():
            self.plug(path, **(device or {}))
        for path, target in (described.get("links") or {}).items():
            self.link(path, target)
        for path, content in (described.get("files") or {}).items():
            self.file(path, content)
        return self

    def file(self, path: str, content: str) -> None:
        """Create a plain file."""
        place = self._place(path)
        place.write_text(content)

    def link(self, path: str, target: str) -> None:
        """Create a symbolic link."""
        self._place(path).symlink_to(target)

    def node(self, path: str, number: str = "1:3", kind: str = "char") -> None:
        """Create a device node below /dev."""
        place = self._place(f"/dev/{path}")
        if self._real_nodes:
            os.mknod(place, 0o666 | (stat.S_IFCHR if kind == "char" else stat.S_IFBLK), os.makedev(1, 3))
        else:
            place.write_text(f"{kind} {number}")

    def remove(self, path: str) -> None:
        """Remove a file, link or directory of the host."""
        place = self.root / path.lstrip("/")
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink()

    def plug(self, path: str, **described: Any) -> None:
        """Create a device in sysfs, with the links to it and its node."""
        directory = self.root / "sys/devices" / path
        directory.mkdir(parents=True, exist_ok=True)
        uevent = []
        bus, member = described.pop("bus", ""), ""
        if not bus:
            member = described.pop("class", "")
        if bus:
            self._relative(self.root / "sys/bus" / bus / "devices" / directory.name, directory)
            self._relative(directory / "subsystem", self.root / "sys/bus" / bus)
        elif member:
            self._relative(self.root / "sys/class" / member / directory.name, directory)
            self._relative(directory / "subsystem", self.root / "sys/class" / member)
            if (parent := self._parent(directory)) is not None:
                self._relative(directory / "device", parent)
        if "driver" in described:
            driver = self.root / "sys/bus" / (bus or "platform") / "drivers" / described["driver"]
            driver.mkdir(parents=True, exist_ok=True)
            self._relative(directory / "driver", driver)
            uevent.append(f"DRIVER={described['driver']}")
        if "node" in described:
            node = {"kind": "char", **described["node"]}
            (directory / "dev").write_text(node["number"] + "\n")
            self._relative(self.root / "sys/dev" / node["kind"] / node["number"], directory)
            uevent += [*zip_numbers(node["number"]), f"DEVNAME={node['path']}"]
            self.node(**node)
        for name, target in (described.get("links") or {}).items():
            place = self.root / target.lstrip("/")
            place.mkdir(parents=True, exist_ok=True)
            self._relative(directory / name, place)
        for name, value in described.items():
            if name not in _OWN:
                (directory / name).write_text(f"{value}\n")
        (directory / "uevent").write_text("".join(f"{line}\n" for line in uevent))

    def unplug(self, path: str) -> None:
        """Remove the device with everything below it, their nodes, and the links to them."""
        directory = self.root / "sys/devices" / path
        for uevent in directory.rglob("uevent"):
            for line in uevent.read_text().splitlines():
                if line.startswith("DEVNAME="):
                    (self.root / "dev" / line.partition("=")[2]).unlink(missing_ok=True)
        shutil.rmtree(directory)
        for listing in ("sys/bus", "sys/class", "sys/dev"):
            for link in (self.root / listing).rglob("*"):
                if link.is_symlink() and not link.exists():
                    link.unlink()

    def _place(self, path: str) -> Path:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def _parent(self, directory: Path) -> Path | None:
        for above in directory.parents:
            if (above / "uevent").exists():
                return above
            if above.name == "devices":
                return None
        return None

    @staticmethod
    def _relative(link: Path, target: Path) -> None:
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.relpath(target, link.parent))


def zip_numbers(number: str) -> list[str]:
    """Return the MAJOR and MINOR lines of a uevent."""
    major, _, minor = number.partition(":")
    return [f"MAJOR={major}", f"MINOR={minor}"]
