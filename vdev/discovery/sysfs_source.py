"""Devices of a class or bus in sysfs whose attributes meet every condition."""

import posixpath
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..errors import HostError
from ..hostfs import HostRoot
from ..model import names
from ..model.device import HEALTHY, DeviceNode, Health, RawDevice, facts
from ..model.entry import Container, Entry
from ..model.path_pattern import natural_key
from ..model.sources import AttributeTest, NodeKind, Sysfs, Usb, meets, wording
from .device_nodes import Danger, container_path, looked_at, node_key, numa_of_directory
from .found import Candidate, Check, Findings, Found, Numbering

_UP = "../"
_FUNCTION = "virtfn"
# Buses that name devices by where they are plugged in, not by the order of their discovery.
_PLACES = frozenset({"usb", "pci", "platform", "pnp", "i2c", "spi", "vmbus", "ccw"})
# The directory with the nodes of a subsystem, if it is not /dev.
_DIRECTORIES = {
    "input": "/dev/input",
    "drm": "/dev/dri",
    "sound": "/dev/snd",
    "vfio": "/dev/vfio",
    "vfio-dev": "/dev/vfio/devices",
}


class SysTree:
    """Reads sysfs below the host root, for one scan."""

    def __init__(self, host: HostRoot) -> None:
        self._host = host

    def members(self, directory: str) -> list[tuple[str, str]]:
        """Name and real directory of each device that a class or bus lists, in natural order. Raises HostError."""
        found = []
        for name, _ in self._host.entries(directory):
            info = looked_at(self._host, posixpath.join(directory, name)) if name.isprintable() else None
            if info is not None and info.kind is NodeKind.DIRECTORY:
                found.append((name, info.path))
        return sorted(found, key=lambda each: natural_key(each[0]))

    def subsystem(self, device: str) -> str:
        """The class or bus of the device; empty for a directory that is not a device."""
        return posixpath.basename(self._host.link(f"{device}/subsystem"))

    def attribute(self, device: str, path: str) -> str | None:
        """The value of an attribute, or None if the device does not have it.

        Each leading `../` goes to the parent device and skips directories that only group devices (`video4linux/` above
        `video0`). The value of a link is the name of its target (`driver`, `iommu_group`), that of a directory is
        empty. `virtfn` is the number of a virtual function. Raises HostError if the attribute cannot be read.
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
        """The number of a virtual function, from the link to it at its physical function."""
        physical = self._host.resolve(f"{device}/physfn")
        if not physical.startswith("/sys/") or not self._host.exists(physical):
            return None
        for name, _ in self._host.entries(physical):
            if name.startswith(_FUNCTION) and self._host.resolve(f"{physical}/{name}") == device:
                return name.removeprefix(_FUNCTION)
        return None

    def text(self, device: str, path: str) -> str:
        """The value of an attribute; empty if it is absent or cannot be read."""
        try:
            return self.attribute(device, path) or ""
        except HostError:
            return ""

    def parent(self, device: str) -> str:
        """The parent device; `/sys/devices` for a topmost device."""
        above = posixpath.dirname(device)
        grouping = posixpath.basename(above) == self.subsystem(device) and not self._host.exists(f"{above}/uevent")
        return posixpath.dirname(above) if grouping else above

    def place(self, device: str) -> str:
        """The name of the nearest device (or itself) whose bus names devices by where they are plugged in, or empty."""
        while device.startswith("/sys/devices/"):
            if self.subsystem(device) in _PLACES:
                return posixpath.basename(device)
            device = self.parent(device)
        return ""

    def node(self, device: str) -> str:
        """The host path of the device's node, as the kernel names it; empty for a device without one."""
        for line in self.text(device, "uevent").splitlines():
            key, _, value = line.partition("=")
            if key == "DEVNAME":
                return posixpath.join("/dev", value)
        return ""

    def children(self, device: str, wanted: str, *, bus: str = "") -> list[str]:
        """The devices of the `wanted` subsystem below the device, in natural order of their directories.

        Devices of `bus` further below (on a hub, behind a bridge) are left out, because they are separate devices.
        The interfaces of a USB device belong to it.
        """
        found = []
        try:
            below = [posixpath.join(device, name) for name, is_directory in self._host.entries(device) if is_directory]
        except HostError:
            return []
        for each in below:
            subsystem = self.subsystem(each)
            if bus and subsystem == bus and not self._host.exists(f"{each}/bInterfaceNumber"):
                continue
            if subsystem == wanted:
                found.append(each)
            found += self.children(each, wanted, bus=bus)
        return sorted(found, key=natural_key)


_GROUP_OWNER = "/dev/vfio/vfio"  # opened together with every VFIO group


@dataclass(slots=True)
class NodeFinder:
    """Finds the nodes of devices. `findings` collects the directories in which nodes may appear or vanish."""

    entry: Entry
    source: Sysfs | Usb
    host: HostRoot
    tree: SysTree
    findings: Findings

    def device(self, device_id: str, index: int, directory: str, attributes: Mapping[str, str]) -> RawDevice:
        """The raw device at a sysfs directory.

        It owns its node, or without one the nodes of its children, or without any its place in sysfs. It is unhealthy
        if a node is missing, or if a container would get nothing. If `container_path` is a directory, it takes all
        nodes; otherwise, it renames the node of the first child, or the device's own node if no child has one.
        """
        own = self.tree.node(directory)
        wanted = [own] if own else []
        first_child = len(wanted)
        facts_found = dict(attributes)
        lacking = ""
        for subsystem in self.source.children:
            nodes, names = self._child(directory, subsystem)
            wanted += nodes
            if names:
                facts_found[subsystem] = ",".join(names)
            else:
                lacking = lacking or f"no {subsystem} device below {posixpath.basename(directory)}"
                self.findings.watch.add(_DIRECTORIES.get(subsystem, "/dev"))
        if not wanted:
            lacking = lacking or self._without_use(directory)
        numa = numa_of_directory(self.host, directory)
        bare = RawDevice(
            id=device_id,
            entry=self.entry.name,
            index=index,
            numa=() if numa is None else (numa,),
            attributes=facts_found,
            paths=tuple(dict.fromkeys(wanted)) or (directory,),
        )
        renamed = wanted[first_child] if len(wanted) > first_child else own
        nodes_found = []
        keys: dict[str, str] = {}  # by path
        for path in bare.paths if wanted else ():
            self.findings.watch.add(posixpath.dirname(path))
            info = looked_at(self.host, path)
            if info is None or not info.is_device:
                lacking = lacking or f"{path} is {'missing' if info is None else 'not a device node'}"
                continue
            to = self.source.container_path
            values = facts(bare, self.entry.resource_of(bare)) | {
                "path": path,
                "attributes.base": posixpath.basename(path),
            }
            is_directory = to is not None and to.source.endswith("/")
            inside = container_path(to, path, values) if path == renamed or is_directory else path
            nodes_found.append(DeviceNode(info.path, inside, self.source.permissions))
            if path != _GROUP_OWNER:
                keys[path] = node_key(info)
        health = Health(healthy=False, reason=lacking) if lacking else HEALTHY
        owns = (keys.pop(own),) if own in keys else tuple(keys.values()) or (directory,)
        uses = tuple(key for key in keys.values() if key not in owns)
        return replace(bare, nodes=tuple(nodes_found), health=health, owns=owns, uses=uses)

    def _without_use(self, directory: str) -> str:
        """Why a container would get nothing of a device without nodes; empty if it does not need one.

        A network interface needs no node, and neither does an entry that has a `container` block.
        """
        name = posixpath.basename(directory)
        if isinstance(self.source, Usb):
            return f"{name} has no device node"
        is_net = "net" in (self.source.subsystem, *self.source.children)
        if is_net or self.entry.container != Container():
            return ""
        return f"{name} has no device node; give children or container, so that a pod gets something"

    def _child(self, directory: str, subsystem: str) -> tuple[list[str], list[str]]:
        """The nodes and names of the devices of a child subsystem below the device."""
        if subsystem == "vfio":
            group = self.tree.text(directory, "iommu_group")
            return ([f"/dev/vfio/{group}", _GROUP_OWNER], [group]) if group else ([], [])
        bus = "usb" if isinstance(self.source, Usb) else self.source.bus or ""
        devices = self.tree.children(directory, subsystem, bus=bus)
        nodes = [node for device in devices if (node := self.tree.node(device))]
        if subsystem == "net":  # an interface has a name and no node
            return nodes, [posixpath.basename(device) for device in devices]
        return nodes, [posixpath.basename(node) for node in nodes]


_ABSENT = "(absent)"


def discover(entry: Entry, source: Sysfs, host: HostRoot, *, numbering: Numbering) -> Found:
    findings, tree, danger = Findings(entry), SysTree(host), Danger(host)
    listing = f"/sys/class/{source.subsystem}" if source.kind == "class" else f"/sys/bus/{source.subsystem}/devices"
    members = tree.members(listing)
    identities = _identities(source, tree, members)
    findings.watch.add(listing)
    matched = []
    for name, directory in members:
        checks = [_check(tree, directory, attribute, test) for attribute, test in source.match.items()]
        reason = ""
        if not entry.allow_dangerous and all(check.ok for check in checks) and (node := tree.node(directory)):
            info = looked_at(host, node)
            reason = danger.of(info) if info is not None else ""
        if reason:
            findings.warn(name, f"is not handed out because it {reason}", "allowDangerous: true permits it")
            checks.append(Check("is not dangerous", reason, ok=False))
        findings.candidates.append(Candidate(posixpath.join(listing, name), tuple(checks)))
        if findings.candidates[-1].matched:
            matched.append((name, directory))
    if not host.exists(listing):
        findings.warn(f"{source.kind} {source.subsystem}", "does not exist on this node")
    elif not matched:
        findings.warn(f"{source.kind} {source.subsystem}", "has no device on this node that meets the conditions")
    finder = NodeFinder(entry, source, host, tree, findings)
    ids = [names.device_id(entry.name, identities[name]) for name, _ in matched]
    devices = tuple(
        finder.device(device_id, index, directory, _attributes(tree, source, name, directory))
        for device_id, index, (name, directory) in zip(ids, numbering.assign(ids), matched, strict=True)
    )
    return findings.with_devices(devices)


def _check(tree: SysTree, directory: str, attribute: str, test: AttributeTest) -> Check:
    try:
        value = tree.attribute(directory, attribute)
    except HostError as broken:
        return Check(wording(attribute, test), f"({broken})", ok=False)
    return Check(wording(attribute, test), _ABSENT if value is None else value, ok=meets(test, value))


def _attributes(tree: SysTree, source: Sysfs, name: str, directory: str) -> dict[str, str]:
    """Values for templates: the device's name, its driver, and the attributes in the entry's conditions."""
    asked = {attribute: tree.text(directory, attribute) for attribute in source.match}
    driver = tree.text(directory, "driver") or tree.text(directory, "device/driver")
    return {"name": name, "driver": driver, **asked}


def _identities(source: Sysfs, tree: SysTree, members: list[tuple[str, str]]) -> dict[str, str]:
    """The text that each member's id is made of: where it is plugged in, and its number among the members there.

    `video2` may be `video0` after it was plugged in again, but `1-1.4:1.0` is the same port. Members that do not meet
    the conditions are also counted, so that ids do not change when the conditions are edited.
    """
    if source.kind == "bus":
        return {name: name.replace(":", "-") for name, _ in members}
    identities: dict[str, str] = {}
    used: Counter[str] = Counter()
    for name, directory in members:
        place = tree.place(tree.parent(directory)).replace(":", "-")
        if not place:
            identities[name] = name
            continue
        identities[name] = f"{place}.{used[place]}" if used[place] else place
        used[place] += 1
    return identities
