"""Nodes that must never reach a container by accident: raw memory and ports, and disks that the host is using."""

import posixpath
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from ..core.spec import NodeKind
from ..errors import HostError
from ..hostfs import FileInfo, HostRoot
from .device_nodes import looked_at

# Major 1 of Documentation/admin-guide/devices.txt.
_RAW = {(1, 1): "the machine's physical memory", (1, 2): "the kernel's memory", (1, 4): "the machine's I/O ports"}


class Danger:
    """Checks nodes; the tables of mounts and swap are read once, when the first block device needs them."""

    def __init__(self, host: HostRoot) -> None:
        self._host = host

    def of(self, info: FileInfo) -> str:
        """Why the node is dangerous, in a few words; the empty string when it is not."""
        match info.kind:
            case NodeKind.CHAR:
                raw = _RAW.get((info.major, info.minor))
                return f"gives access to {raw}" if raw else ""
            case NodeKind.BLOCK:
                for number in self._with_dependents(f"{info.major}:{info.minor}", set()):
                    if number in self._used:
                        return f"is a disk in use: {self._used[number]}"
                return ""
            case _:
                return ""

    def _with_dependents(self, number: str, seen: set[str]) -> Iterator[str]:
        """The disk's own number, those of its partitions, and those of what is built on them (LVM, RAID, LUKS)."""
        if number in seen:
            return
        seen.add(number)
        yield number
        directory = f"/sys/dev/block/{number}"
        for name in self._names(directory):
            if self._host.exists(f"{directory}/{name}/partition"):
                yield from self._at(f"{directory}/{name}", seen)
        for name in self._names(f"{directory}/holders"):
            yield from self._at(f"/sys/class/block/{name}", seen)

    def _at(self, directory: str, seen: set[str]) -> Iterator[str]:
        try:
            number = self._host.read_text(f"{directory}/dev")
        except HostError:
            return
        if number:
            yield from self._with_dependents(number, seen)

    def _names(self, directory: str) -> list[str]:
        try:
            return sorted(name for name, _ in self._host.entries(directory))
        except HostError:
            return []

    @cached_property
    def _used(self) -> dict[str, str]:
        """What each block device in use is used for, by `major:minor`."""
        used: dict[str, str] = {}
        for line in self._table("/proc/1/mountinfo", "/proc/self/mountinfo").splitlines():
            mount, _, rest = line.partition(" - ")
            fields, source = mount.split(" "), rest.split(" ")
            if len(fields) > 4 and len(source) > 1:  # proc(5): number is field 3, mount point field 5
                purpose = f"{source[1]} is mounted at {fields[4]}"
                used.setdefault(fields[2], purpose)
                used.setdefault(self._number(source[1]), purpose)  # btrfs shows a number of its own
        for line in self._table("/proc/swaps").splitlines()[1:]:
            used.setdefault(self._number(line.split(" ")[0]), f"{line.split(' ')[0]} is swap space")
        used.pop("", None)
        return used

    def _table(self, path: str, ours: str = "") -> str:
        """A table of the host; where its /proc is not mounted here, this process's own view of it."""
        try:
            text = self._host.read_text(path, limit=16 * 2**20)
        except HostError:
            text = None
        if text is None:
            try:
                text = Path(ours or path).read_text(errors="replace")
            except OSError:
                text = ""
        return text

    def _number(self, device: str) -> str:
        if posixpath.dirname(device)[:4] != "/dev":
            return ""
        info = looked_at(self._host, device)
        return f"{info.major}:{info.minor}" if info is not None and info.kind is NodeKind.BLOCK else ""
