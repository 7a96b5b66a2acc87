"""Devices that exist only in the configuration, or as the data of a preset."""

import posixpath
import uuid
from collections.abc import Iterable
from dataclasses import replace

from ..core import names, standin
from ..core.device import DeviceNode, IdStyle, RawDevice
from ..core.facts import facts
from ..core.spec import EntrySpec, NodeTemplate, VirtualSource
from ..hostfs import HostRoot
from .found import Found

_NAMESPACE = uuid.UUID("0d3a1c52-6f0e-5b1c-9a40-3f6de1c7b2a8")  # of ids made here; any constant would do, this for ever


def discover(
    entry: EntrySpec, source: VirtualSource, host: HostRoot, *, node: str, device_dir: str = standin.DIRECTORY
) -> Found:
    """The devices that the source describes. Of the real device's nodes, those that the host has.

    `device_dir` is where stand-ins for nodes are, or will be.
    """
    bare = (_device(entry, source, index, _id(entry, source, index, node)) for index in range(source.count))
    if source.node is not None:
        own = source.node
        bare = (standin.with_standin(each, own, facts(each, entry.resource), device_dir) for each in bare)
    if not source.driver_nodes and not source.partition_nodes:
        return Found(devices=tuple(bare))
    wanted = [
        (device, _nodes(entry, source.driver_nodes, device), _nodes(entry, source.partition_nodes, device))
        for device in bare
    ]
    paths = {each.host_path for _, whole, part in wanted for each in (*whole, *part)}
    there = {path for path in paths if host.exists(path)}
    devices = (
        replace(
            device,
            driver_nodes=tuple(each for each in whole if each.host_path in there),
            partition_nodes=tuple(each for each in part if each.host_path in there),
        )
        for device, whole, part in wanted
    )
    return Found(devices=tuple(devices), watch=frozenset(map(posixpath.dirname, paths)))


def _device(entry: EntrySpec, source: VirtualSource, index: int, device_id: str) -> RawDevice:
    return RawDevice(
        id=device_id,
        entry=entry.name,
        index=index,
        numa=source.numa[index : index + 1] if len(source.numa) > 1 else source.numa,
        memory=source.memory,
        attributes=source.attributes,
    )


def _nodes(entry: EntrySpec, templates: Iterable[NodeTemplate], device: RawDevice) -> list[DeviceNode]:
    def node(template: NodeTemplate) -> DeviceNode:
        values = {**facts(device, entry.resource), "index": str(device.index + template.first_index)}
        return DeviceNode(
            template.host_path.render(values), template.container_path.render(values), template.permissions
        )

    return [node(template) for template in templates]


def _id(entry: EntrySpec, source: VirtualSource, index: int, node: str) -> str:
    """`<name>-<index>`; or as NVIDIA's driver does, a UUID that no other node has."""
    if source.id_style is IdStyle.NVIDIA:
        return f"GPU-{uuid.uuid5(_NAMESPACE, f'{node}/{entry.name}/{index}')}"
    return names.device_id(entry.name, str(index))
