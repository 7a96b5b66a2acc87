"""The response to Allocate, and CDI devices.

`allocate` grants or refuses the ids of a request. `container_edits` merges the edits of the devices of a container:
variables, device nodes, mounts, annotations and CDI names. `device_for_cdi` and `cdi_documents` return the same edits
as CDI devices, for the CDI strategies and for claims.
"""

import posixpath
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..errors import AllocationError, InvalidRequest, UnknownDevice
from ..model import telemetry
from ..model.device import EMPTY, REPLICA_MARK, UNKNOWN_ENTRY, Device, DeviceNode, Mount, Slot, facts, grouped
from ..model.entry import CDI_STRATEGIES, Container, DeviceIdStrategy, DeviceListStrategy, Entry
from ..model.geometry import instance_id
from ..model.names import visible_devices_env
from ..model.problem import listed
from ..model.spec import Flags, SharingKind
from ..model.template import Template
from . import cdi
from .resources import Inventory, Resource
from .sharing import mps_share

_NO_BLOCK = Container()
_NAMESPACE = uuid.UUID("d1a3c3c2-0c0e-5d8e-8f55-6a9c1b7f2f4e")  # for generated annotation keys
_NOT_TWICE = {"NVIDIA_VISIBLE_DEVICES": "void"}  # prevents NVIDIA's runtime from injecting CDI devices a second time
_NVIDIA_LIST_ROOT = "/var/run/nvidia-container-devices"
_LIST_ROOT = "/var/run/vdev-container-devices"
_MPS_ROOT = "/run/nvidia/mps"  # of NVIDIA's Helm chart; its plugin has no default


# --- granting a request -----------------------------------------------------------------------------------------------


def allocate(resource: Resource, ids: Sequence[str]) -> tuple[Slot, ...]:
    """Return the slots for a container's request. Raises AllocationError if it is refused."""
    if not ids:
        raise InvalidRequest(f"invalid request for {resource.name}: it names no device")
    try:
        slots = tuple(map(resource.by_id.__getitem__, ids))
    except KeyError as unknown:
        known = listed(resource.by_id, lead="its devices:")
        raise UnknownDevice(
            f"invalid request: unknown device: {unknown.args[0]!r} is not a device of {resource.name}; {known}"
        ) from None
    if len(set(ids)) != len(ids):
        twice = next(each for each in ids if list(ids).count(each) > 1)
        raise InvalidRequest(f"invalid request for {resource.name}: it names device {twice!r} twice")
    one_alone = resource.sharing is not None and resource.sharing.fail_requests_greater_than_one
    if len(ids) > 1 and one_alone and any(REPLICA_MARK in each for each in ids):
        raise InvalidRequest(
            f'invalid allocation request for "{resource.name}": invalid request: '
            f"maximum request size for shared resources is 1; found {len(ids)}"
        )
    for slot in slots:
        if not slot.health.healthy:
            raise AllocationError(
                f"device {slot.id!r} of {resource.name} is unhealthy: {slot.health.reason or 'no reason given'}"
            )
    return slots


# --- what one device adds to a container ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceEdits:
    device: Device
    entry: Entry
    listed: str
    """Its name in the list of devices."""
    env: Mapping[str, str]
    annotations: Mapping[str, str]
    nodes: tuple[DeviceNode, ...]
    """Like `mounts`, these are empty if containers get only CDI devices."""
    mounts: tuple[Mount, ...]


def _device_edits(resource: Resource, device: Device) -> DeviceEdits:
    # Cached: rendering the templates of eight devices takes as long as the rest of an Allocate.
    known: dict[str, DeviceEdits] = resource.rendered
    if device.id not in known:
        entry, flags = resource.entries[device.raw.entry], resource.flags
        values, strategies = _values(resource, entry, device), frozenset(flags.plugin.device_list_strategy)
        nodes, mounts = tuple[DeviceNode, ...](), tuple[Mount, ...]()
        if not strategies or not strategies <= CDI_STRATEGIES:
            # As in NVIDIA's plugin, nodes of the real driver require a strategy.
            nodes = _nodes(entry, device, values, flags, driver=flags.plugin.pass_device_specs and bool(strategies))
            mounts = _mounts(entry, device, values, flags)
        known[device.id] = DeviceEdits(
            device=device,
            entry=entry,
            listed=_list_name(device, flags),
            env=_rendered(entry.container.env, values),
            annotations=_rendered(entry.container.annotations, values),
            nodes=tuple(node for node in nodes if not node.type) if any_cdi(flags) else nodes,
            mounts=mounts,
        )
    return known[device.id]


def any_cdi(flags: Flags) -> bool:
    """Whether containers get CDI devices. A device node with configured numbers then need not exist on the host."""
    return not CDI_STRATEGIES.isdisjoint(flags.plugin.device_list_strategy)


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


def _values(resource: Resource, entry: Entry, device: Device) -> Mapping[str, str]:
    """The values for the templates of the entry's block; empty without a block, which is the common case."""
    return EMPTY if entry.container == _NO_BLOCK else placeholders(resource.name, device)


def _rendered(templates: Mapping[str, Template], values: Mapping[str, str]) -> Mapping[str, str]:
    return {key: template.render(values) for key, template in templates.items()}


def _list_name(device: Device, flags: Flags) -> str:
    return device.ordinal if flags.plugin.device_id_strategy is DeviceIdStrategy.INDEX else device.id


def _nodes(
    entry: Entry, device: Device, values: Mapping[str, str], flags: Flags, *, driver: bool
) -> tuple[DeviceNode, ...]:
    """The nodes of a device: from discovery, the entry's block, and with `driver` the preset's real driver."""
    root = (flags.nvidia_dev_root or flags.nvidia_driver_root) if entry.is_nvidia else "/"
    own = (
        DeviceNode(_below(root, node.host_path.render(values)), node.inside.render(values), node.permissions)
        for node in entry.container.device_nodes
    )
    real = tuple[DeviceNode, ...]()
    if driver:
        real = device.raw.driver_nodes if device.id == device.raw.id else device.raw.partition_nodes
        if device.is_partition and entry.geometry:
            real += device.raw.instance_nodes.get(instance_id(entry.geometry.slices, device.slices), ())
    return (*(replace(node, host_path=_below(root, node.host_path)) for node in real), *device.raw.nodes, *own)


def _mounts(entry: Entry, device: Device, values: Mapping[str, str], flags: Flags) -> tuple[Mount, ...]:
    """The bind mounts of a device: from discovery, for its vendor's tools, and from the entry's block."""
    root = flags.nvidia_driver_root if entry.is_nvidia else "/"
    own = (
        Mount(_below(root, mount.host_path.render(values)), mount.inside.render(values), mount.read_only)
        for mount in entry.container.mounts
    )
    tools = telemetry.mounts(device.raw.tools, entry.smi_tool, device) if entry.smi_tool and device.raw.tools else ()
    return (*device.raw.mounts, *tools, *own)


def _below(root: str, path: str) -> str:
    return path if root == "/" else posixpath.join(root, path.lstrip("/"))


# --- what a container gets --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ContainerEdits:
    """The edits for one container, in a deterministic order; nodes and mounts are sorted by container path."""

    env: dict[str, str] = field(default_factory=dict)
    mounts: dict[str, Mount] = field(default_factory=dict)
    nodes: dict[str, DeviceNode] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    cdi_devices: list[str] = field(default_factory=list)


def container_edits(resource: Resource, slots: Sequence[Slot]) -> ContainerEdits:
    """The edits for a container that gets these slots.

    Raises AllocationError if two of its devices use the same container path for different things.
    """
    distinct = {slot.device.id: slot.device for slot in slots}
    by_entry = grouped((each.raw.entry, _device_edits(resource, each)) for each in distinct.values())
    devices = [each for members in by_entry.values() for each in members]
    edits = ContainerEdits()
    if resource.sharing and resource.sharing.kind is SharingKind.MPS:
        _add_mps(edits, resource, slots)  # before the lists, as NVIDIA's plugin orders the mounts
    _add_lists(edits, resource, slots, devices)
    for each in devices:
        _join(edits.env, each.entry.container.env, each.env)
        _join(edits.annotations, each.entry.container.annotations, each.annotations)
        for node in each.nodes:
            there = edits.nodes.setdefault(node.container_path, node)
            if there is not node:
                if replace(there, permissions=node.permissions) != node:
                    raise _contradiction(there, node, each.device)
                both = "".join(flag for flag in "rwm" if flag in there.permissions + node.permissions)
                edits.nodes[node.container_path] = replace(node, permissions=both)
        for mount in each.mounts:
            present = edits.mounts.setdefault(mount.container_path, mount)
            if present != mount:
                raise _contradiction(present, mount, each.device)
    return edits


def _contradiction(one: DeviceNode | Mount, other: DeviceNode | Mount, device: Device) -> AllocationError:
    return AllocationError(
        f"the container path {one.container_path} would be both {one.host_path} and {other.host_path} "
        f"(device {device.id}); end containerPath with '/', or put {{index}} in it"
    )


def _join(target: dict[str, str], templates: Mapping[str, Template], texts: Mapping[str, str]) -> None:
    """Add variables or annotations of a device: joined with commas over the devices, constants once."""
    for key, text in texts.items():
        is_joined = key in target and not templates[key].is_constant
        target[key] = f"{target[key]},{text}" if is_joined else text


def _add_lists(
    edits: ContainerEdits, resource: Resource, slots: Sequence[Slot], devices: Sequence[DeviceEdits]
) -> None:
    """Add the list of the devices in the form of each strategy."""
    flags = resource.flags
    strategies = flags.plugin.device_list_strategy
    is_nvidia = any(each.entry.is_nvidia for each in devices)
    by_variable = grouped(
        (each.entry.visible_devices_env or visible_devices_env(each.entry.resource), each) for each in devices
    )
    if any_cdi(flags):
        names = [cdi.qualified(cdi.kind(each.entry.resource), each.listed) for each in devices]
        if DeviceListStrategy.CDI_ANNOTATIONS in strategies:
            owner = "nvidia-device-plugin" if is_nvidia else "vdev"
            # NVIDIA's plugin uses a random id. This one is derived from the request, so that it is reproducible.
            unique = uuid.uuid5(_NAMESPACE, "\n".join((resource.name, *(slot.id for slot in slots))))
            edits.annotations[f"{flags.plugin.cdi_annotation_prefix}{owner}_{unique}"] = ",".join(names)
        if DeviceListStrategy.CDI_CRI in strategies:
            edits.cdi_devices += names
    for variable, members in by_variable.items():
        if DeviceListStrategy.ENVVAR in strategies:
            edits.env[variable] = ",".join(each.listed for each in members)
        if DeviceListStrategy.VOLUME_MOUNTS in strategies:
            for each in members:
                root = _NVIDIA_LIST_ROOT if each.entry.is_nvidia else _LIST_ROOT
                path = posixpath.join(root, each.listed)
                edits.env[variable] = root
                edits.mounts[path] = Mount("/dev/null", path)
    if is_nvidia:  # requests to NVIDIA's runtime, with every strategy
        asked = {
            "NVIDIA_GDRCOPY": flags.gdrcopy_enabled,
            "NVIDIA_GDS": flags.gds_enabled,
            "NVIDIA_MOFED": flags.mofed_enabled,
        }
        edits.env |= {variable: "enabled" for variable, is_on in asked.items() if is_on}


# --- shares of memory and threads -------------------------------------------------------------------------------------


class MpsShare(NamedTuple):
    """A container's share of the device at `position` in the container's list; 0 means no limit."""

    position: int
    mib: int  # of memory
    percent: int  # of threads


def _add_mps(edits: ContainerEdits, resource: Resource, slots: Sequence[Slot]) -> None:
    """Add the limits of MPS for the shared devices. As on GKE, n replicas give n shares of memory and threads."""
    taken = Counter(slot.device.id for slot in slots)
    shares = []
    for position, device in enumerate({slot.device.id: slot.device for slot in slots}.values()):
        if device.replicas:
            shares.append(MpsShare(position, *mps_share(device, taken[device.id])))
    mps_limits(edits, shares)
    if shares:
        root, name = resource.flags.mps_root or _MPS_ROOT, resource.name
        edits.env["CUDA_MPS_PIPE_DIRECTORY"] = f"/mps/{name}/pipe"
        edits.mounts[f"/mps/{name}/pipe"] = Mount(posixpath.join(root, name, "pipe"), f"/mps/{name}/pipe")
        edits.mounts["/dev/shm"] = Mount(posixpath.join(root, "shm"), "/dev/shm")  # the target is in the container


def mps_limits(edits: ContainerEdits, shares: Sequence[MpsShare]) -> None:
    """Add the variables that CUDA's MPS client reads."""
    limits = [f"{share.position}={share.mib}M" for share in shares if share.mib]
    threads = [share.percent for share in shares if share.percent]
    if limits:
        edits.env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = ",".join(limits)
    if threads:
        edits.env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(min(threads))


# --- the CDI specification --------------------------------------------------------------------------------------------


def cdi_documents(inventory: Inventory) -> dict[str, cdi.Document]:
    """The CDI specifications that the inventory needs, by kind; empty without a CDI strategy."""
    kinds: dict[str, dict[str, cdi.CdiDevice]] = {}
    for kind, name, resource, device in cdi_members(inventory):
        members = kinds.setdefault(kind, {})
        if name not in members:
            is_nvidia = resource.entries[device.raw.entry].is_nvidia
            members[name] = device_for_cdi(name, resource, device, _NOT_TWICE if is_nvidia else EMPTY)
    return {kind: cdi.document(kind, members.values()) for kind, members in kinds.items()}


def cdi_members(inventory: Inventory) -> Iterator[tuple[str, str, Resource, Device]]:
    """The kind and name of each slot's device in the specifications. They are equal for all replicas of a device."""
    for resource in inventory.resources.values():
        if not any_cdi(resource.flags):
            continue
        for slot in resource.slots:
            device = slot.device
            # For a device of an unknown entry, the specification of an earlier process is kept.
            if device.raw.entry != UNKNOWN_ENTRY and not device.raw.refused:
                entry = resource.entries[device.raw.entry]
                yield cdi.kind(entry.resource), _list_name(device, resource.flags), resource, device


def device_for_cdi(name: str, resource: Resource, device: Device, env: Mapping[str, str] = EMPTY) -> cdi.CdiDevice:
    """A device's edits for CDI, with these variables. Another variable names the device, so that it has an edit."""
    entry = resource.entries[device.raw.entry]
    prefix = visible_devices_env(entry.resource).removesuffix("_VISIBLE_DEVICES")
    variable = f"{prefix}_DEVICE_{device.ordinal.replace(':', '_')}"
    values = _values(resource, entry, device)
    return cdi.cdi_device(
        name,
        env={variable: device.id, **env},
        nodes=_nodes(entry, device, values, resource.flags, driver=True),
        mounts=_mounts(entry, device, values, resource.flags),
    )
