"""What one device adds to its container, whatever else the container gets.

It follows from the configuration and the device alone, so it is worked out once for each device of a resource.
"""

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..inventory.resources import Resource
from ..model import smi_places
from ..model.device import EMPTY, Device, DeviceNode, Mount
from ..model.facts import facts
from ..model.syntax.names import visible_devices_env
from ..model.syntax.template import Template
from ..partitions.geometry import instance_id
from ..spec import DeviceIdStrategy, EntrySpec, Flags, NodeTemplate
from . import cdi

Text = tuple[str, str, bool]
"""A key, its value for a device, and whether that is the same for every device of the entry."""


@dataclass(slots=True)
class ContainerEdits:
    """The answer to one container's request, in a deterministic order; nodes and mounts by container path."""

    env: dict[str, str] = field(default_factory=dict)
    mounts: dict[str, Mount] = field(default_factory=dict)
    nodes: dict[str, DeviceNode] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    cdi_devices: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DeviceEdits:
    """What a device adds: its name in the device list, the entry's texts, nodes and mounts.

    `variable` carries the list. `cdi_name` is empty where containers are given no CDI devices; where they are given
    nothing else, there are no nodes and mounts.
    """

    device: Device
    is_nvidia: bool
    listed: str
    variable: str
    cdi_name: str
    env: tuple[Text, ...]
    annotations: tuple[Text, ...]
    nodes: tuple[DeviceNode, ...]
    mounts: tuple[Mount, ...]


def of_devices(resource: Resource, devices: Sequence[Device]) -> list[DeviceEdits]:
    # To render the templates of eight devices takes as long as the rest of an Allocate, so that is done once.
    known = resource.rendered
    for device in devices:
        if device.id not in known:
            known[device.id] = _made(resource, device)
    return [known[device.id] for device in devices]


def _made(resource: Resource, device: Device) -> DeviceEdits:
    entry, flags = resource.entries[device.raw.entry], resource.flags
    values = values_of(resource.name, entry, device)
    nodes, mounts = tuple[DeviceNode, ...](), tuple[Mount, ...]()
    if not only_cdi(flags):
        nodes = nodes_of(entry, device, values, flags, driver=flags.pass_device_specs)
        mounts = mounts_of(entry, device, values, flags)
    by_cdi, listed = any_cdi(flags), list_name(device, flags)
    return DeviceEdits(
        device=device,
        is_nvidia=entry.is_nvidia,
        listed=listed,
        variable=entry.visible_devices_env or visible_devices_env(entry.resource),
        cdi_name=cdi.qualified(cdi.kind(entry.resource), listed) if by_cdi else "",
        env=_texts(entry.container.env, values),
        annotations=_texts(entry.container.annotations, values),
        nodes=tuple(node for node in nodes if not node.type) if by_cdi else nodes,
        mounts=mounts,
    )


def _texts(templates: tuple[tuple[str, Template], ...], values: Mapping[str, str]) -> tuple[Text, ...]:
    return tuple((key, template.render(values), template.is_constant) for key, template in templates)


# --- strategies -----------------------------------------------------------------------------------------------------


def only_cdi(flags: Flags) -> bool:
    strategies = flags.device_list_strategies
    return bool(strategies) and all(each.is_cdi for each in strategies)


def any_cdi(flags: Flags) -> bool:
    """Whether containers are given CDI devices; a node with its own numbers then need not exist on the host."""
    return any(each.is_cdi for each in flags.device_list_strategies)


def list_name(device: Device, flags: Flags) -> str:
    return device.ordinal if flags.device_id_strategy is DeviceIdStrategy.INDEX else device.id


# --- the entry's own block ------------------------------------------------------------------------------------------


def placeholders(resource: str, device: Device) -> Mapping[str, str]:
    """The values of a device's `{placeholders}`: those of its raw device, and what a partition has of its own."""
    own = {} if device.attributes is device.raw.attributes else device.attributes
    return {
        **facts(device.raw, resource),
        "id": device.id,
        "index": device.ordinal,
        "profile": device.profile,
        "memory.mib": str(device.memory // 2**20),
        "memory.bytes": str(device.memory),
        **{f"attributes.{key}": value for key, value in own.items()},
    }


def values_of(resource: str, entry: EntrySpec, device: Device) -> Mapping[str, str]:
    """The values of the device's `{placeholders}`; none where the entry's block is empty."""
    block = entry.container
    if block.env or block.annotations or block.nodes or block.mounts:
        return placeholders(resource, device)
    return EMPTY


def nodes_of(
    entry: EntrySpec, device: Device, values: Mapping[str, str], flags: Flags, *, driver: bool
) -> tuple[DeviceNode, ...]:
    """The nodes of a device: those found, those of the entry's block, and with `driver` those of the preset's real
    driver.
    """
    root = flags.dev_root if entry.is_nvidia else "/"
    own = tuple(_below(root, render_node(template, values)) for template in entry.container.nodes)
    real = device.raw.driver_nodes if device.id == device.raw.id else device.raw.partition_nodes
    if device.is_partition and entry.geometry:
        real += device.raw.instance_nodes.get(instance_id(entry.geometry.slices, device.slices), ())
    preset = tuple(_below(root, node) for node in real) if driver else ()
    return (*preset, *device.raw.nodes, *own)


def render_node(template: NodeTemplate, values: Mapping[str, str]) -> DeviceNode:
    return DeviceNode(template.host_path.render(values), template.container_path.render(values), template.permissions)


def mounts_of(entry: EntrySpec, device: Device, values: Mapping[str, str], flags: Flags) -> tuple[Mount, ...]:
    """The bind mounts of a device: those found, its maker's tools, and those of the entry's block."""
    root = flags.driver_root if entry.is_nvidia else "/"
    own = (
        Mount(
            _join(root, template.host_path.render(values)), template.container_path.render(values), template.read_only
        )
        for template in entry.container.mounts
    )
    tools = smi_places.mounts(device.raw.tools, entry.smi, device) if entry.smi and device.raw.tools else ()
    return (*device.raw.mounts, *tools, *own)


def _below(root: str, node: DeviceNode) -> DeviceNode:
    return node if root == "/" else replace(node, host_path=_join(root, node.host_path))


def _join(root: str, path: str) -> str:
    return path if root == "/" else posixpath.join(root, path.lstrip("/"))
