"""From a device in sysfs to what a container gets: its own node and those of its children."""

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...core.model.device import HEALTHY, DeviceNode, Health, RawDevice
from ...core.model.facts import facts
from ...core.spec import ContainerSpec, EntrySpec, SysfsSource, UsbSource
from ...hostfs import HostRoot
from ..device_nodes import Numa, container_path, looked_at, node_key
from .sysfs_tree import SysTree

_GROUP_OWNER = "/dev/vfio/vfio"  # opened together with every VFIO group


@dataclass(slots=True)
class NodeFinder:
    """Gathers nodes for one scan; `watched` are the directories in which nodes may appear or vanish."""

    entry: EntrySpec
    source: SysfsSource | UsbSource
    host: HostRoot
    tree: SysTree
    numa: Numa
    watched: set[str]

    def device(self, device_id: str, index: int, directory: str, attributes: Mapping[str, str], bus: str) -> RawDevice:
        """The raw device at a sysfs directory.

        It owns its own node; without one, the nodes of its children; without these, its place in sysfs. It is unhealthy
        while a node that it should have is missing, or when a container would get nothing. With children,
        `container_path` renames the first child's node, otherwise the device's own; a directory takes all of them.
        """
        own = self.tree.node(directory)
        wanted = [own] if own else []
        first_child = len(wanted)
        facts_found = dict(attributes)
        lacking = ""
        for subsystem in self.source.children:
            nodes, names = self._child(directory, subsystem, bus)
            wanted += nodes
            if names:
                facts_found[subsystem] = ",".join(names)
            else:
                lacking = lacking or f"no {subsystem} device below {posixpath.basename(directory)}"
                self.watched.add(self.tree.node_directory(subsystem))
        lacking = lacking or self._without_use(directory, wanted)
        numa = self.numa.of_directory(directory)
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
            self.watched.add(posixpath.dirname(path))
            info = looked_at(self.host, path)
            if info is None or not info.is_device:
                lacking = lacking or f"{path} is {'missing' if info is None else 'not a device node'}"
                continue
            to = self.source.container_path
            values = facts(bare, self.entry.resource_of(bare)) | {
                "path": path,
                "attributes.base": posixpath.basename(path),
            }
            inside = container_path(to, path, values) if path == renamed or to.endswith("/") else path
            nodes_found.append(DeviceNode(info.path, inside, self.source.permissions))
            if path != _GROUP_OWNER:
                keys[path] = node_key(info)
        health = Health(healthy=False, reason=lacking) if lacking else HEALTHY
        owns = (keys.pop(own),) if own in keys else tuple(keys.values()) or (directory,)
        uses = tuple(key for key in keys.values() if key not in owns)
        return replace(bare, nodes=tuple(nodes_found), health=health, owns=owns, uses=uses)

    def _without_use(self, directory: str, wanted: list[str]) -> str:
        """Why a container would get nothing of the device; empty when it gets a node, or needs none.

        A network interface needs no node, and neither does an entry that has a `container` block.
        """
        name = posixpath.basename(directory)
        if wanted:
            return ""
        if isinstance(self.source, UsbSource):
            return f"{name} has no device node: sysfs shows neither its name nor its bus and device numbers"
        is_net = "net" in (self.source.subsystem, *self.source.children)
        if is_net or self.entry.container != ContainerSpec():
            return ""
        return f"{name} has no device node; give children or container, so that a pod gets something"

    def _child(self, directory: str, subsystem: str, bus: str) -> tuple[list[str], list[str]]:
        """Nodes and names of what a child subsystem has below the device."""
        if subsystem == "vfio":
            group = self.tree.text(directory, "iommu_group")
            return ([f"/dev/vfio/{group}", _GROUP_OWNER], [group]) if group else ([], [])
        devices = self.tree.children(directory, (subsystem,), bus=bus)
        nodes = [node for device in devices if (node := self.tree.node(device))]
        if subsystem == "net":  # an interface has a name and no node
            return nodes, [posixpath.basename(device) for device in devices]
        return nodes, [posixpath.basename(node) for node in nodes]
