"""The answer to an Allocate, and CDI devices.

`allocate` grants or refuses the ids of a request. `container_edits` joins what its devices add to the container:
variables, device nodes, mounts, annotations and CDI names. `cdi_device` and `cdi_documents` give the same as CDI
devices, for the CDI strategies and for claims.
"""

import itertools
import operator
import posixpath
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from ..errors import AllocationError, InvalidRequest, UnhealthyDevice, UnknownDevice
from ..model import telemetry
from ..model.device import EMPTY, REPLICA_MARK, UNKNOWN_ENTRY, Device, DeviceNode, Mount, Slot, facts, grouped
from ..model.entry import ContainerNode, DeviceIdStrategy, DeviceListStrategy, Entry
from ..model.geometry import instance_id
from ..model.names import MAX_ID, visible_devices_env
from ..model.spec import Flags, SharingKind
from ..model.template import Template
from . import cdi
from .resources import Inventory, Resource
from .sharing import mps_share

Text = tuple[str, str, bool]
"""A variable or annotation: its key, its value for a device, and whether all devices of the entry have that value."""


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
    """The edits that a device adds to a container."""

    device: Device
    is_nvidia: bool
    listed: str
    """Its name in the list of devices."""
    variable: str
    """The variable that carries this list."""
    cdi_name: str
    """Empty if containers do not get CDI devices. If they get nothing else, there are no nodes and mounts."""
    env: tuple[Text, ...]
    annotations: tuple[Text, ...]
    nodes: tuple[DeviceNode, ...]
    mounts: tuple[Mount, ...]


def of_devices(resource: Resource, devices: Sequence[Device]) -> list[DeviceEdits]:
    # To render the templates of eight devices takes as long as the rest of an Allocate, so that is done once.
    known, found = resource.rendered, []
    for device in devices:
        if device.id not in known:
            known[device.id] = _made(resource, device)
        found.append(known[device.id])
    return found


def _made(resource: Resource, device: Device) -> DeviceEdits:
    entry, flags = resource.entries[device.raw.entry], resource.flags
    values = values_of(resource.name, entry, device)
    nodes, mounts = tuple[DeviceNode, ...](), tuple[Mount, ...]()
    by_cdi, strategies = any_cdi(flags), flags.plugin.device_list_strategy
    if not by_cdi or not _CDI.issuperset(strategies):
        nodes = nodes_of(entry, device, values, flags, driver=flags.plugin.gives_nodes)
        mounts = mounts_of(entry, device, values, flags)
    listed = list_name(device, flags)
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


def _texts(templates: Mapping[str, Template], values: Mapping[str, str]) -> tuple[Text, ...]:
    return tuple((key, template.render(values), template.is_constant) for key, template in templates.items())


# --- strategies -----------------------------------------------------------------------------------------------------


_CDI = frozenset(each for each in DeviceListStrategy if each.is_cdi)


def any_cdi(flags: Flags) -> bool:
    """Whether containers are given CDI devices; a node with its own numbers then need not exist on the host."""
    return not _CDI.isdisjoint(flags.plugin.device_list_strategy)


def list_name(device: Device, flags: Flags) -> str:
    return device.ordinal if flags.plugin.device_id_strategy is DeviceIdStrategy.INDEX else device.id


# --- the entry's own block ------------------------------------------------------------------------------------------


def placeholders(resource: str, device: Device) -> Mapping[str, str]:
    """The values of a device's `{placeholders}`: those of its raw device, and those of the partition."""
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


def values_of(resource: str, entry: Entry, device: Device) -> Mapping[str, str]:
    """The values of the device's `{placeholders}`; empty if no template of the entry's block needs them."""
    block = entry.container
    if block.env or block.annotations or block.device_nodes or block.mounts:
        return placeholders(resource, device)
    return EMPTY


def nodes_of(
    entry: Entry, device: Device, values: Mapping[str, str], flags: Flags, *, driver: bool
) -> tuple[DeviceNode, ...]:
    """The nodes of a device: from discovery, the entry's block, and with `driver` the preset's real driver."""
    root = flags.dev_root if entry.is_nvidia else "/"
    own = tuple(_below(root, render_node(template, values)) for template in entry.container.device_nodes)
    real = device.raw.driver_nodes if device.id == device.raw.id else device.raw.partition_nodes
    if device.is_partition and entry.geometry:
        real += device.raw.instance_nodes.get(instance_id(entry.geometry.slices, device.slices), ())
    preset = tuple(_below(root, node) for node in real) if driver else ()
    return (*preset, *device.raw.nodes, *own)


def render_node(node: ContainerNode, values: Mapping[str, str]) -> DeviceNode:
    return DeviceNode(node.host_path.render(values), node.inside.render(values), node.permissions)


def mounts_of(entry: Entry, device: Device, values: Mapping[str, str], flags: Flags) -> tuple[Mount, ...]:
    """The bind mounts of a device: from discovery, for its maker's tools, and from the entry's block."""
    root = flags.nvidia_driver_root if entry.is_nvidia else "/"
    own = (
        Mount(_join(root, mount.host_path.render(values)), mount.inside.render(values), mount.read_only)
        for mount in entry.container.mounts
    )
    tools = telemetry.mounts(device.raw.tools, entry.smi_tool, device) if entry.smi_tool and device.raw.tools else ()
    return (*device.raw.mounts, *tools, *own)


def _below(root: str, node: DeviceNode) -> DeviceNode:
    return node if root == "/" else replace(node, host_path=_join(root, node.host_path))


def _join(root: str, path: str) -> str:
    return path if root == "/" else posixpath.join(root, path.lstrip("/"))


class Allocation(NamedTuple):
    """A granted request: the slots in the order asked for, and the distinct devices behind them."""

    resource: Resource
    slots: tuple[Slot, ...]
    devices: tuple[Device, ...]


def allocate(resource: Resource, ids: Sequence[str]) -> Allocation:
    """Grant a container's request, or raise the AllocationError that says why not."""
    if not ids:
        raise InvalidRequest(f"invalid request for {resource.name}: it names no device")
    try:
        slots = tuple(map(resource.by_id.__getitem__, ids))
    except KeyError as unknown:
        raise UnknownDevice(
            f"invalid request: unknown device: {_short(unknown.args[0])} is not one of the "
            f"{len(resource.slots)} devices of {resource.name}"
        ) from None
    if len(ids) > 1:
        _check_together(resource, ids)
    devices: dict[str, Device] = {}
    for slot in slots:
        if not slot.health.healthy:
            raise UnhealthyDevice(
                f"device {slot.id!r} of {resource.name} is unhealthy: {slot.health.reason or 'no reason given'}"
            )
        devices[slot.device.id] = slot.device
    return Allocation(resource, slots, tuple(devices.values()))


def _check_together(resource: Resource, ids: Sequence[str]) -> None:
    if len(set(ids)) != len(ids):
        twice = next(each for each in ids if list(ids).count(each) > 1)
        raise InvalidRequest(f"invalid request for {resource.name}: it names device {_short(twice)} twice")
    sharing = resource.sharing
    one_alone = sharing is not None and sharing.fail_requests_greater_than_one
    if one_alone and any(REPLICA_MARK in each for each in ids):
        raise InvalidRequest(
            f'invalid allocation request for "{resource.name}": invalid request: '
            f"maximum request size for shared resources is 1; found {len(ids)}"
        )


def _short(slot_id: str) -> str:
    """An id for a message. If it is longer than any real id, it is cut, so that it cannot flood a status or a log."""
    return repr(slot_id if len(slot_id) <= 2 * MAX_ID else f"{slot_id[:MAX_ID]}…")


_NAMESPACE = uuid.UUID("d1a3c3c2-0c0e-5d8e-8f55-6a9c1b7f2f4e")  # of annotation keys made here
_NOT_TWICE = {"NVIDIA_VISIBLE_DEVICES": "void"}  # keeps NVIDIA's runtime from injecting what comes by CDI again
_NVIDIA_LIST_ROOT = "/var/run/nvidia-container-devices"
_LIST_ROOT = "/var/run/vdev-container-devices"
_is_nvidia = operator.attrgetter("is_nvidia")


def container_edits(allocation: Allocation) -> ContainerEdits:
    """The edits for the container of an allocation.

    Raises AllocationError when two of its devices want the same container path for different things.
    """
    resource = allocation.resource
    devices: Sequence[DeviceEdits] = of_devices(resource, allocation.devices)
    groups = [devices]
    if len(resource.entries) > 1:
        groups = [*grouped((each.device.raw.entry, each) for each in devices).values()]
    devices = list(itertools.chain.from_iterable(groups))
    edits = ContainerEdits()
    _device_lists(edits, allocation, devices)
    for members in groups:
        _join_texts(edits.env, [each.env for each in members])
        _join_texts(edits.annotations, [each.annotations for each in members])
    for each in devices:
        for node in each.nodes:
            if edits.nodes.setdefault(node.container_path, node) is not node:
                _merge(edits.nodes, node, each.device, _same_node)
        for mount in each.mounts:
            if edits.mounts.setdefault(mount.container_path, mount) is not mount:
                _merge(edits.mounts, mount, each.device, _same_mount)
    return edits


def _device_lists(edits: ContainerEdits, allocation: Allocation, devices: Sequence[DeviceEdits]) -> None:
    """Add the list of the devices in the form that each strategy wants."""
    resource = allocation.resource
    strategies = resource.flags.plugin.device_list_strategy
    if devices[0].cdi_name:
        _cdi_names(edits, allocation, devices)
    if resource.sharing and resource.sharing.kind is SharingKind.MPS:
        _mps(edits, allocation)
    if DeviceListStrategy.ENVVAR in strategies:
        _variables(edits, devices)
    if DeviceListStrategy.VOLUME_MOUNTS in strategies:
        _volume_mounts(edits, devices)
    if any(map(_is_nvidia, devices)):
        edits.env |= _features(resource.flags)


def _features(flags: Flags) -> dict[str, str]:
    """Variables that ask NVIDIA's runtime for more than devices, under every strategy."""
    asked = {
        "NVIDIA_GDRCOPY": flags.gdrcopy_enabled,
        "NVIDIA_GDS": flags.gds_enabled,
        "NVIDIA_MOFED": flags.mofed_enabled,
    }
    return {variable: "enabled" for variable, is_on in asked.items() if is_on}


def _variables(edits: ContainerEdits, devices: Iterable[DeviceEdits]) -> None:
    for variable, names in grouped((each.variable, each.listed) for each in devices).items():
        edits.env[variable] = ",".join(names)


def _volume_mounts(edits: ContainerEdits, devices: Iterable[DeviceEdits]) -> None:
    for each in devices:
        root = _NVIDIA_LIST_ROOT if each.is_nvidia else _LIST_ROOT
        edits.env[each.variable] = root
        path = posixpath.join(root, each.listed)
        edits.mounts[path] = Mount("/dev/null", path)


def _cdi_names(edits: ContainerEdits, allocation: Allocation, devices: Sequence[DeviceEdits]) -> None:
    flags = allocation.resource.flags
    strategies = flags.plugin.device_list_strategy
    names = [each.cdi_name for each in devices]
    if DeviceListStrategy.CDI_ANNOTATIONS in strategies:
        owner = "nvidia-device-plugin" if any(map(_is_nvidia, devices)) else "vdev"
        # NVIDIA draws this id at random. Ours is made from the request, so the same request gets the same answer.
        unique = uuid.uuid5(_NAMESPACE, "\n".join((allocation.resource.name, *(slot.id for slot in allocation.slots))))
        edits.annotations[f"{flags.plugin.cdi_annotation_prefix}{owner}_{unique}"] = ",".join(names)
    if DeviceListStrategy.CDI_CRI in strategies:
        edits.cdi_devices += names


def _join_texts(target: dict[str, str], of_devices: Sequence[Sequence[Text]]) -> None:
    """Variables or annotations of an entry's devices: joined with commas over the devices, constants once."""
    for number, (key, text, is_constant) in enumerate(of_devices[0]):
        if is_constant:
            target[key] = text
        else:
            joined = text if len(of_devices) == 1 else ",".join([texts[number][1] for texts in of_devices])
            target[key] = f"{target[key]},{joined}" if key in target else joined


_Edit = TypeVar("_Edit", DeviceNode, Mount)


def _merge(target: dict[str, _Edit], wanted: _Edit, device: Device, same: Any) -> None:
    """Merge an edit with the one that has the same container path. Raises AllocationError if they contradict."""
    present = target[wanted.container_path]
    merged = same(present, wanted)
    if merged is None:
        raise AllocationError(
            f"the container path {wanted.container_path} would be both {present.host_path} and {wanted.host_path} "
            f"(device {device.id}); end containerPath with '/', or put {{index}} in it"
        )
    target[wanted.container_path] = merged


def _same_node(one: DeviceNode, other: DeviceNode) -> DeviceNode | None:
    if replace(one, permissions=other.permissions) != other:
        return None
    return replace(one, permissions="".join(flag for flag in "rwm" if flag in one.permissions + other.permissions))


def _same_mount(one: Mount, other: Mount) -> Mount | None:
    return one if one.host_path == other.host_path and one.read_only == other.read_only else None


# --- shares of memory and threads -----------------------------------------------------------------------------------


def _mps(edits: ContainerEdits, allocation: Allocation) -> None:
    """Add the limits of MPS for the shared devices. As on GKE, n replicas give n shares of memory and threads."""
    sharing = allocation.resource.sharing
    assert sharing is not None
    taken = Counter(slot.device.id for slot in allocation.slots if slot.device.id in sharing.replicas)
    shares = []
    for position, device in enumerate(allocation.devices):
        if device.id in taken:
            mib, percent = mps_share(sharing, device)
            shares.append(MpsShare(position, mib * taken[device.id], min(100, percent * taken[device.id])))
    mps_limits(edits, shares)
    root, name = allocation.resource.flags.mps_directory, allocation.resource.name
    if shares and root:
        edits.env["CUDA_MPS_PIPE_DIRECTORY"] = f"/mps/{name}/pipe"
        edits.mounts[f"/mps/{name}/pipe"] = Mount(posixpath.join(root, name, "pipe"), f"/mps/{name}/pipe")
        edits.mounts["/dev/shm"] = Mount(posixpath.join(root, "shm"), "/dev/shm")  # a path of the container


@dataclass(frozen=True, slots=True)
class MpsShare:
    """The share of a device that a container gets; 0 is no limit."""

    position: int
    """The device's position in the list of the container's devices."""
    mib: int
    """The share of the memory."""
    percent: int
    """The share of the threads."""


def mps_limits(edits: ContainerEdits, shares: Sequence[MpsShare]) -> None:
    """Add the variables that CUDA's MPS client reads."""
    limits = [f"{share.position}={share.mib}M" for share in shares if share.mib]
    threads = [share.percent for share in shares if share.percent]
    if limits:
        edits.env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = ",".join(limits)
    if threads:
        edits.env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(min(threads))


# --- the CDI specification ------------------------------------------------------------------------------------------


def cdi_documents(inventory: Inventory) -> dict[str, cdi.Document]:
    """The CDI specifications that the inventory needs, by kind; empty without a CDI strategy."""
    kinds: dict[str, dict[str, cdi.CdiDevice]] = {}
    nvidias: set[str] = set()
    for kind, name, resource, device in cdi_members(inventory):
        members, entry = kinds.setdefault(kind, {}), resource.entries[device.raw.entry]
        if entry.is_nvidia:
            nvidias.add(kind)
        if name not in members:
            members[name] = cdi_device(name, resource, entry, device)
    return {
        kind: cdi.document(kind, members.values(), env=_NOT_TWICE if kind in nvidias else EMPTY)
        for kind, members in kinds.items()
    }


def cdi_members(inventory: Inventory) -> Iterator[tuple[str, str, Resource, Device]]:
    """The kind and name of each slot's device in the specifications. All replicas of a device have the same."""
    for resource in inventory.resources.values():
        if not any_cdi(resource.flags):
            continue
        for slot in resource.slots:
            device = slot.device
            # For a device of an unknown entry, an earlier process wrote what a container may need.
            if device.raw.entry != UNKNOWN_ENTRY and not device.raw.refused:
                entry = resource.entries[device.raw.entry]
                yield cdi.kind(entry.resource), list_name(device, resource.flags), resource, device


def cdi_device(name: str, resource: Resource, entry: Entry, device: Device) -> cdi.CdiDevice:
    """A device's edits for CDI. The variable names the device, because a CDI device without any edit is invalid."""
    prefix = visible_devices_env(entry.resource).removesuffix("_VISIBLE_DEVICES")
    variable = f"{prefix}_DEVICE_{device.ordinal.replace(':', '_')}"
    values = values_of(resource.name, entry, device)
    return cdi.CdiDevice(
        name=name,
        nodes=nodes_of(entry, device, values, resource.flags, driver=True),
        mounts=mounts_of(entry, device, values, resource.flags),
        env={variable: device.id},
    )
