"""Device nodes of the host: their path in the container, their NUMA node, and whether they are dangerous.

`Danger` refuses memory devices and disks that the host uses.
"""

import contextlib
import posixpath
from collections.abc import Iterable, Iterator
from functools import cached_property

from ..errors import HostError
from ..hostfs import FileInfo, HostRoot
from ..model.sources import NodeKind
from ..model.template import Template


def container_path(wanted: Template | None, host_path: str, values: dict[str, str]) -> str:
    """The path in the container for a path of the host.

    If `wanted` is None, the path stays the same. If it ends in "/", it is the directory. Otherwise, it is the new path.
    """
    if wanted is None:
        return host_path
    rendered = wanted.render(values)
    return posixpath.join(rendered, posixpath.basename(host_path)) if rendered.endswith("/") else rendered


def nodes_below(host: HostRoot, directory: str) -> Iterator[tuple[str, FileInfo]]:
    """The device nodes in a directory and in those below it, each with its path as found; links to nodes count too."""
    for name, is_directory in sorted(host.entries(directory)):
        path = posixpath.join(directory, name)
        if not name.isprintable():  # it could not be shown in a message
            continue
        if is_directory:
            yield from nodes_below(host, path)
        elif (info := looked_at(host, path)) is not None and info.is_device:
            yield path, info


def looked_at(host: HostRoot, path: str) -> FileInfo | None:
    """The file at the path; None if it does not exist or cannot be accessed."""
    try:
        return host.info(path)
    except HostError:
        return None


def node_key(info: FileInfo) -> str:
    """The kind and numbers of a device node, which identify it under any name.

    Devices with major 1, such as /dev/null, are identified by their path. They are not hardware, and also serve as
    placeholders for missing nodes.
    """
    is_software = info.kind is NodeKind.CHAR and info.major == 1
    return info.path if is_software else f"{info.kind} {info.major}:{info.minor}"


def numa_of_node(host: HostRoot, info: FileInfo) -> int | None:
    """The NUMA node of a device node, or None if the kernel does not know it."""
    kind = f"/sys/dev/{info.kind}"
    link = host.link(f"{kind}/{info.major}:{info.minor}")
    return numa_of_directory(host, posixpath.normpath(posixpath.join(kind, link))) if link else None


def numa_of_directory(host: HostRoot, directory: str) -> int | None:
    """The NUMA node of a sysfs device or of its nearest ancestor that has one, or None."""
    while directory.startswith("/sys/devices/"):
        try:
            number = int(host.read_text(f"{directory}/numa_node") or -1)
        except (HostError, ValueError):
            number = -1
        if number >= 0:
            return number
        directory = posixpath.dirname(directory)
    return None


def read_table(host: HostRoot, path: str, *, ours: str = "") -> str:
    """A table in /proc of the host; if that is not mounted here, the table of this process, at `ours`."""
    for root, table in ((host, path), (HostRoot(), ours or path)):
        with contextlib.suppress(HostError):
            text = root.read_text(table, limit=16 * 2**20)
            if text is not None:
                return text
    return ""


# Major 1 of Documentation/admin-guide/devices.txt.
_RAW = {(1, 1): "the machine's physical memory", (1, 2): "the kernel's memory", (1, 4): "the machine's I/O ports"}


class Danger:
    """Checks nodes. The tables of mounts and swap are read once, when the first block device needs them."""

    def __init__(self, host: HostRoot) -> None:
        self._host = host

    def of(self, info: FileInfo) -> str:
        """Why the node is dangerous, in a few words, or an empty text."""
        if info.kind is NodeKind.CHAR and (info.major, info.minor) in _RAW:
            return f"gives access to {_RAW[info.major, info.minor]}"
        if info.kind is NodeKind.BLOCK:
            for number in self._with_dependents(f"{info.major}:{info.minor}"):
                if number in self._used:
                    return f"is a disk in use: {self._used[number]}"
        return ""

    def _with_dependents(self, disk: str) -> Iterable[str]:
        """The numbers of the disk, of its partitions, and of the devices built on them (LVM, RAID, LUKS)."""
        found: dict[str, None] = {}
        pending = [disk]
        while pending:
            number = pending.pop(0)
            if number in found:
                continue
            found[number] = None
            directory = f"/sys/dev/block/{number}"
            built = [f"/sys/class/block/{name}" for name in self._names(f"{directory}/holders")]
            below = [f"{directory}/{name}" for name in self._names(directory)]
            partitions = [each for each in below if self._host.exists(f"{each}/partition")]
            for each in (*partitions, *built):
                with contextlib.suppress(HostError):
                    pending.append(self._host.read_text(f"{each}/dev") or disk)
        return found

    def _names(self, directory: str) -> list[str]:
        try:
            return sorted(name for name, _ in self._host.entries(directory))
        except HostError:
            return []

    @cached_property
    def _used(self) -> dict[str, str]:
        """The use of each block device that the host uses, by `major:minor`."""
        used: dict[str, str] = {}
        for line in read_table(self._host, "/proc/1/mountinfo", ours="/proc/self/mountinfo").splitlines():
            mount, _, rest = line.partition(" - ")
            fields, source = mount.split(" "), rest.split(" ")
            if len(fields) > 4 and len(source) > 1:  # proc(5): number is field 3, mount point field 5
                purpose = f"{source[1]} is mounted at {fields[4]}"
                used.setdefault(fields[2], purpose)
                used.setdefault(self._number(source[1]), purpose)  # not field 3, which is an anonymous number for btrfs
        for line in read_table(self._host, "/proc/swaps").splitlines()[1:]:
            used.setdefault(self._number(line.split(" ")[0]), f"{line.split(' ')[0]} is swap space")
        used.pop("", None)
        return used

    def _number(self, device: str) -> str:
        if posixpath.dirname(device)[:4] != "/dev":
            return ""
        info = looked_at(self._host, device)
        return f"{info.major}:{info.minor}" if info is not None and info.kind is NodeKind.BLOCK else ""
