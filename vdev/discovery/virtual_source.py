"""Devices that exist only in the configuration, or as the data of a preset."""

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..core.inventory import virtual_devices
from ..core.model import smi_places, virtual_node
from ..core.model.device import DeviceNode, IdStyle, RawDevice
from ..core.model.facts import facts
from ..core.spec import EntrySpec, NodeTemplate, VirtualSource
from ..hostfs import HostRoot
from . import mig_nodes
from .found import Found


def discover(
    entry: EntrySpec,
    source: VirtualSource,
    host: HostRoot,
    *,
    node: str,
    device_dir: str = virtual_node.DIRECTORY,
    smi_dir: str = smi_places.DIRECTORY,
) -> Found:
    """The devices that the source describes. Of the real device's nodes, those that the host has.

    `device_dir` is where stand-ins for nodes are, or will be, `smi_dir` the same for the makers' tools.
    """
    bare: Iterable[RawDevice] = virtual_devices.devices(entry, source, node)
    if entry.smi is not None:
        bare = (replace(each, tools=smi_dir) for each in bare)
    if source.node is not None:
        own = source.node
        bare = (virtual_node.with_standin(each, own, facts(each, entry.resource_of(each)), device_dir) for each in bare)
    if not (source.driver_nodes or source.partition_nodes):
        return Found(devices=tuple(bare))
    wanted = []
    for device in bare:
        known = facts(device, entry.resource_of(device))
        whole, part = _nodes(source.driver_nodes, device, known), _nodes(source.partition_nodes, device, known)
        wanted.append((device, whole, part))
    paths = {each.host_path for _, whole, part in wanted for each in (*whole, *part)}
    there = {path for path in paths if host.exists(path)}
    watch = frozenset(map(posixpath.dirname, paths))
    instances: Mapping[int, Mapping[int, tuple[DeviceNode, ...]]] = {}
    if entry.geometry and source.id_style is IdStyle.NVIDIA:
        instances, watch = mig_nodes.of_instances(host), watch | {mig_nodes.DIRECTORY}
    devices = (
        replace(
            device,
            driver_nodes=tuple(each for each in whole if each.host_path in there),
            partition_nodes=tuple(each for each in part if each.host_path in there),
            instance_nodes=instances.get(device.index, {}),
        )
        for device, whole, part in wanted
    )
    return Found(devices=tuple(devices), watch=watch)


def _nodes(templates: Iterable[NodeTemplate], device: RawDevice, known: Mapping[str, str]) -> list[DeviceNode]:
    def node(template: NodeTemplate) -> DeviceNode:
        first = template.first_index
        values = {**known, "index": str(device.index + first)} if first else known
        return DeviceNode(
            template.host_path.render(values), template.container_path.render(values), template.permissions
        )

    return [node(template) for template in templates]
