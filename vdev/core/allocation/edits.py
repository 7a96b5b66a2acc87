"""What a container gets for an allocation: variables, nodes, mounts, annotations and CDI names.

The formats are the NVIDIA plugin's, byte for byte for NVIDIA presets: the device list through the strategies that are
on, real nodes whatever the strategy (as device specs, or in the CDI specification where only CDI strategies are on),
and the entry's own `container` block.
"""

import posixpath
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ...errors import AllocationError
from ..inventory.listed.sharing import mps_share
from ..inventory.resources import Inventory, Resource
from ..model import smi_places
from ..model.device import EMPTY, UNKNOWN_ENTRY, Device, DeviceNode, Mount
from ..model.syntax.names import visible_devices_env
from ..spec import DeviceIdStrategy, DeviceListStrategy, EntrySpec, Flags, NodeTemplate, SharingKind
from . import cdi
from .request import Allocation

_NAMESPACE = uuid.UUID("d1a3c3c2-0c0e-5d8e-8f55-6a9c1b7f2f4e")  # of annotation keys made here
_NOT_TWICE = {"NVIDIA_VISIBLE_DEVICES": "void"}  # keeps NVIDIA's runtime from injecting what comes by CDI again
_NVIDIA_LIST_ROOT = "/var/run/nvidia-container-devices"
_LIST_ROOT = "/var/run/vdev-container-devices"


@dataclass(slots=True)
class ContainerEdits:
    """The answer to one container's request, in a deterministic order; nodes and mounts by container path."""

    env: dict[str, str] = field(default_factory=dict)
    mounts: dict[str, Mount] = field(default_factory=dict)
    nodes: dict[str, DeviceNode] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    cdi_devices: list[str] = field(default_factory=list)


def container_edits(allocation: Allocation) -> ContainerEdits:
    """What the container of an allocation gets.

    Raises AllocationError when two of its devices want the same container path for different things.
    """
    edits = ContainerEdits()
    resource, flags = allocation.resource, allocation.resource.flags
    strategies = flags.device_list_strategies
    groups = _by_entry(allocation)
    by_cdi, also_by_cdi = only_cdi(flags), any_cdi(flags)
    if also_by_cdi:
        _cdi_names(edits, allocation, groups)
    if resource.sharing and resource.sharing.kind is SharingKind.MPS:
        _mps(edits, allocation)
    if DeviceListStrategy.ENVVAR in strategies:
        for variable, devices in _by_variable(groups).items():
            edits.env[variable] = ",".join(_list_name(device, flags) for device in devices)
    if DeviceListStrategy.VOLUME_MOUNTS in strategies:
        _volume_mounts(edits, groups, flags)
    if any(entry.is_nvidia for entry, _ in groups):
        edits.env |= _features(flags)
    for entry, devices in groups:
        values = _values(resource.name, entry, devices)
        _container_texts(edits, entry, values)
        if not by_cdi:
            for device, its in zip(devices, values, strict=True):
                nodes = nodes_of(entry, device, its, flags, driver=flags.pass_device_specs)
                on_host = [node for node in nodes if not node.type] if also_by_cdi else nodes
                _merge(edits.nodes, on_host, device, _same_node)
                _merge(edits.mounts, mounts_of(entry, device, its, flags), device, _same_mount)
    return edits


def _features(flags: Flags) -> dict[str, str]:
    """Variables that ask NVIDIA's runtime for more than devices, under every strategy."""
    asked = {
        "NVIDIA_GDRCOPY": flags.gdrcopy_enabled,
        "NVIDIA_GDS": flags.gds_enabled,
        "NVIDIA_MOFED": flags.mofed_enabled,
    }
    return {variable: "enabled" for variable, is_on in asked.items() if is_on}


def only_cdi(flags: Flags) -> bool:
    """Whether devices reach containers by CDI alone."""
    strategies = flags.device_list_strategies
    return bool(strategies) and all(each.is_cdi for each in strategies)


def any_cdi(flags: Flags) -> bool:
    """Whether containers are given CDI devices; a node with its own numbers then need not exist on the host."""
    return any(each.is_cdi for each in flags.device_list_strategies)


def _by_entry(allocation: Allocation) -> list[tuple[EntrySpec, list[Device]]]:
    groups: dict[str, list[Device]] = {}
    for device in allocation.devices:
        groups.setdefault(device.raw.entry, []).append(device)
    return [(allocation.resource.entries[name], devices) for name, devices in groups.items()]


def list_variable(entry: EntrySpec) -> str:
    """The variable that carries the device list of an entry's devices."""
    return entry.visible_devices_env or visible_devices_env(entry.resource)


def _by_variable(groups: Iterable[tuple[EntrySpec, list[Device]]]) -> dict[str, list[Device]]:
    variables: dict[str, list[Device]] = {}
    for entry, devices in groups:
        variables.setdefault(list_variable(entry), []).extend(devices)
    return variables


def _list_name(device: Device, flags: Flags) -> str:
    return device.ordinal if flags.device_id_strategy is DeviceIdStrategy.INDEX else device.id


def _volume_mounts(edits: ContainerEdits, groups: Iterable[tuple[EntrySpec, list[Device]]], flags: Flags) -> None:
    for entry, devices in groups:
        root = _NVIDIA_LIST_ROOT if entry.is_nvidia else _LIST_ROOT
        edits.env[list_variable(entry)] = root
        for device in devices:
            path = posixpath.join(root, _list_name(device, flags))
            edits.mounts[path] = Mount("/dev/null", path)


def _cdi_names(edits: ContainerEdits, allocation: Allocation, groups: Iterable[tuple[EntrySpec, list[Device]]]) -> None:
    flags = allocation.resource.flags
    strategies = flags.device_list_strategies
    names = [
        cdi.qualified(cdi.kind(entry.resource), _list_name(device, flags))
        for entry, devices in groups
        for device in devices
    ]
    if DeviceListStrategy.CDI_ANNOTATIONS in strategies:
        owner = "nvidia-device-plugin" if any(entry.is_nvidia for entry, _ in groups) else "vdev"
        # NVIDIA draws this id at random. Ours is made from the request, so the same request gets the same answer.
        unique = uuid.uuid5(_NAMESPACE, "\n".join((allocation.resource.name, *(slot.id for slot in allocation.slots))))
        edits.annotations[f"{flags.cdi_annotation_prefix}{owner}_{unique}"] = ",".join(names)
    if DeviceListStrategy.CDI_CRI in strategies:
        edits.cdi_devices += names


def _mps(edits: ContainerEdits, allocation: Allocation) -> None:
    """The share of the device that MPS replicas stand for, per device, in the order of the device list.

    As on GKE, n replicas give n shares of memory and threads.
    """
    sharing = allocation.resource.sharing
    assert sharing is not None
    taken: dict[str, int] = {}
    for slot in allocation.slots:
        if slot.device.id in sharing.replicas:
            taken[slot.device.id] = taken.get(slot.device.id, 0) + 1
    shares = []
    for position, device in enumerate(allocation.devices):
        if device.id in taken:
            mib, percent = mps_share(sharing, device)
            shares.append(MpsShare(position, mib * taken[device.id], min(100, percent * taken[device.id])))
    mps_edits(edits, allocation.resource, shares)


@dataclass(frozen=True, slots=True)
class MpsShare:
    """What a container gets of the device at a position of its device list: memory in MiB, and per cent of the threads.

    0 is no limit.
    """

    position: int
    mib: int
    percent: int


def mps_edits(edits: ContainerEdits, resource: Resource, shares: Sequence[MpsShare]) -> None:
    """Shares of devices, as the variables that CUDA's MPS client reads."""
    if not shares:
        return
    limits = [f"{share.position}={share.mib}M" for share in shares if share.mib]
    threads = [share.percent for share in shares if share.percent]
    if limits:
        edits.env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = ",".join(limits)
    if threads:
        edits.env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(min(threads))
    root = resource.flags.mps_root
    if root:
        name = resource.name
        edits.env["CUDA_MPS_PIPE_DIRECTORY"] = f"/mps/{name}/pipe"
        edits.mounts[f"/mps/{name}/pipe"] = Mount(posixpath.join(root, name, "pipe"), f"/mps/{name}/pipe")
        edits.mounts["/dev/shm"] = Mount(posixpath.join(root, "shm"), "/dev/shm")  # noqa: S108 - a path of the container


# --- the entry's own block ------------------------------------------------------------------------------------------


def placeholders(resource: str, entry: EntrySpec, device: Device) -> Mapping[str, str]:
    """The values of a device's `{placeholders}`."""
    return {
        "id": device.id,
        "index": device.ordinal,
        "name": entry.name,
        "resource": resource,
        "numa": ",".join(str(node) for node in device.raw.numa),
        "profile": device.profile,
        "memory.mib": str(device.memory // 2**20),
        "memory.bytes": str(device.memory),
        "path": device.raw.paths[0] if device.raw.paths else "",
        **{f"attributes.{key}": value for key, value in device.attributes.items()},
    }


def _values(resource: str, entry: EntrySpec, devices: Sequence[Device]) -> Sequence[Mapping[str, str]]:
    """The values of each device's `{placeholders}`; none where the entry's block is empty."""
    block = entry.container
    if block.env or block.annotations or block.nodes or block.mounts:
        return [placeholders(resource, entry, device) for device in devices]
    return [EMPTY] * len(devices)


def _container_texts(edits: ContainerEdits, entry: EntrySpec, values: Sequence[Mapping[str, str]]) -> None:
    """Variables and annotations: joined with commas over the devices, constants once."""
    for target, templates in ((edits.env, entry.container.env), (edits.annotations, entry.container.annotations)):
        for key, template in templates:
            shown = values[:1] if template.is_constant else values
            text = ",".join(template.render(each) for each in shown)
            target[key] = f"{target[key]},{text}" if key in target and not template.is_constant else text


def nodes_of(
    entry: EntrySpec, device: Device, values: Mapping[str, str], flags: Flags, *, driver: bool
) -> tuple[DeviceNode, ...]:
    """The nodes of a device: those found, those of the entry's block, and with `driver` those of the preset's real
    driver.
    """
    root = flags.dev_root if entry.is_nvidia else "/"
    own = tuple(_below(root, render_node(template, values)) for template in entry.container.nodes)
    real = device.raw.driver_nodes if device.id == device.raw.id else device.raw.partition_nodes
    preset = tuple(_below(root, node) for node in real) if driver else ()
    return (*preset, *device.raw.nodes, *own)


def render_node(template: NodeTemplate, values: Mapping[str, str]) -> DeviceNode:
    """A device node of one device."""
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


_Edit = TypeVar("_Edit", DeviceNode, Mount)


def _merge(target: dict[str, _Edit], wanted: Iterable[_Edit], device: Device, same: Any) -> None:
    for each in wanted:
        present = target.get(each.container_path)
        merged = each if present is None else same(present, each)
        if merged is None:
            raise AllocationError(
                f"the container path {each.container_path} would be both {target[each.container_path].host_path} "
                f"and {each.host_path} "
                f"(device {device.id}); end containerPath with '/', or put {{index}} in it"
            )
        target[each.container_path] = merged


def _same_node(one: DeviceNode, other: DeviceNode) -> DeviceNode | None:
    if replace(one, permissions=other.permissions) != other:
        return None
    return replace(one, permissions="".join(flag for flag in "rwm" if flag in one.permissions + other.permissions))


def _same_mount(one: Mount, other: Mount) -> Mount | None:
    return one if one.host_path == other.host_path and one.read_only == other.read_only else None


# --- the CDI specification ------------------------------------------------------------------------------------------


def cdi_documents(inventory: Inventory) -> dict[str, cdi.Document]:
    """The CDI specifications that the inventory needs, by kind; none where no CDI strategy is on."""
    kinds: dict[str, dict[str, cdi.CdiDevice]] = {}
    nvidias: set[str] = set()
    for kind, name, resource, device in _cdi_members(inventory):
        members, entry = kinds.setdefault(kind, {}), resource.entries[device.raw.entry]
        if entry.is_nvidia:
            nvidias.add(kind)
        if name not in members:
            members[name] = cdi_device(name, resource, entry, device)
    return {
        kind: cdi.document(kind, members.values(), env=_NOT_TWICE if kind in nvidias else EMPTY)
        for kind, members in kinds.items()
    }


def cdi_names(inventory: Inventory) -> Iterator[tuple[str, str, str]]:
    """Kind, name and raw device id of everything in the specifications that the inventory needs."""
    return ((kind, name, device.raw.id) for kind, name, _, device in _cdi_members(inventory))


def _cdi_members(inventory: Inventory) -> Iterator[tuple[str, str, Resource, Device]]:
    """Kind and name of each slot's device; the same for all replicas of one."""
    for resource in inventory.resources.values():
        if not any_cdi(resource.flags):
            continue
        for slot in resource.slots:
            device = slot.device
            # For a device of an unknown entry, an earlier process wrote what a container may need.
            if device.raw.entry != UNKNOWN_ENTRY and not device.raw.refused:
                entry = resource.entries[device.raw.entry]
                yield cdi.kind(entry.resource), _list_name(device, resource.flags), resource, device


def cdi_device(name: str, resource: Resource, entry: EntrySpec, device: Device) -> cdi.CdiDevice:
    """A device's edits for CDI. The variable names the device, because a CDI device without any edit is invalid."""
    prefix = visible_devices_env(entry.resource).removesuffix("_VISIBLE_DEVICES")
    variable = f"{prefix}_DEVICE_{device.ordinal.replace(':', '_')}"
    (values,) = _values(resource.name, entry, [device])
    return cdi.CdiDevice(
        name=name,
        nodes=nodes_of(entry, device, values, resource.flags, driver=True),
        mounts=mounts_of(entry, device, values, resource.flags),
        env={variable: device.id},
    )
