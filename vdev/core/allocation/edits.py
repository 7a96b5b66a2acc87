"""What a container gets for an allocation: variables, nodes, mounts, annotations and CDI names.

The formats are the NVIDIA plugin's, byte for byte for NVIDIA presets: the device list through the strategies that are
on, real nodes whatever the strategy (as device specs, or in the CDI specification where only CDI strategies are on),
and the entry's own `container` block.
"""

import contextlib
import itertools
import operator
import posixpath
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ...errors import AllocationError
from ..grouping import grouped
from ..inventory.listed.sharing import mps_share
from ..inventory.resources import Inventory, Resource
from ..model.device import EMPTY, UNKNOWN_ENTRY, Device, DeviceNode, Mount, Slot
from ..model.syntax.names import visible_devices_env
from ..spec import DeviceListStrategy, EntrySpec, Flags, SharingKind
from . import cdi
from .device_edits import (
    ContainerEdits,
    DeviceEdits,
    Text,
    any_cdi,
    list_name,
    mounts_of,
    nodes_of,
    of_devices,
    values_of,
)
from .request import Allocation

_NAMESPACE = uuid.UUID("d1a3c3c2-0c0e-5d8e-8f55-6a9c1b7f2f4e")  # of annotation keys made here
_NOT_TWICE = {"NVIDIA_VISIBLE_DEVICES": "void"}  # keeps NVIDIA's runtime from injecting what comes by CDI again
_NVIDIA_LIST_ROOT = "/var/run/nvidia-container-devices"
_LIST_ROOT = "/var/run/vdev-container-devices"
_PREPARED = 256  # slots of a resource, up to which all are worked out ahead
_is_nvidia = operator.attrgetter("is_nvidia")


def container_edits(allocation: Allocation) -> ContainerEdits:
    """What the container of an allocation gets; it is kept for the next one, and not to be changed.

    Raises AllocationError when two of its devices want the same container path for different things.
    """
    resource = allocation.resource
    devices = of_devices(resource, allocation.devices)
    if len(devices) > 1 or _is_by_request(resource):
        return _together(allocation, devices)
    (its,) = devices
    if its.alone is None:
        its.alone = _together(allocation, devices)
    return its.alone


def prepared(resource: Resource) -> Iterator[tuple[Slot, ContainerEdits]]:
    """What a container gets with each slot alone, worked out ahead; of very many slots none."""
    if len(resource.slots) <= _PREPARED:
        for slot in resource.slots:
            if slot.health.healthy:
                with contextlib.suppress(AllocationError):  # which is for the one that asks
                    yield slot, container_edits(Allocation(resource, (slot,), (slot.device,)))


def _is_by_request(resource: Resource) -> bool:
    """Whether the same device may give different edits: they tell of the request, or of the replicas asked for."""
    is_mps = resource.sharing is not None and resource.sharing.kind is SharingKind.MPS
    return is_mps or DeviceListStrategy.CDI_ANNOTATIONS in resource.flags.device_list_strategies


def _together(allocation: Allocation, devices: Sequence[DeviceEdits]) -> ContainerEdits:
    edits = ContainerEdits()
    groups: list[Sequence[DeviceEdits]] = [devices]
    if len(allocation.resource.entries) > 1:
        groups = [*grouped((each.device.raw.entry, each) for each in devices).values()]
    devices = list(itertools.chain.from_iterable(groups))
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
    """Everything but the entries' own blocks: which devices these are, in the ways that the strategies say."""
    resource = allocation.resource
    strategies = resource.flags.device_list_strategies
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
    strategies = flags.device_list_strategies
    names = [each.cdi_name for each in devices]
    if DeviceListStrategy.CDI_ANNOTATIONS in strategies:
        owner = "nvidia-device-plugin" if any(map(_is_nvidia, devices)) else "vdev"
        # NVIDIA draws this id at random. Ours is made from the request, so the same request gets the same answer.
        unique = uuid.uuid5(_NAMESPACE, "\n".join((allocation.resource.name, *(slot.id for slot in allocation.slots))))
        edits.annotations[f"{flags.cdi_annotation_prefix}{owner}_{unique}"] = ",".join(names)
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
    """Let one edit do for what is there already and for this one of the device."""
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
    """The share of the device that MPS replicas stand for, per device, in the order of the device list.

    As on GKE, n replicas give n shares of memory and threads.
    """
    sharing = allocation.resource.sharing
    assert sharing is not None
    taken = Counter(slot.device.id for slot in allocation.slots if slot.device.id in sharing.replicas)
    shares = []
    for position, device in enumerate(allocation.devices):
        if device.id in taken:
            mib, percent = mps_share(sharing, device)
            shares.append(MpsShare(position, mib * taken[device.id], min(100, percent * taken[device.id])))
    mps_limits(edits, shares)
    root, name = allocation.resource.flags.mps_root, allocation.resource.name
    if shares and root:
        edits.env["CUDA_MPS_PIPE_DIRECTORY"] = f"/mps/{name}/pipe"
        edits.mounts[f"/mps/{name}/pipe"] = Mount(posixpath.join(root, name, "pipe"), f"/mps/{name}/pipe")
        edits.mounts["/dev/shm"] = Mount(posixpath.join(root, "shm"), "/dev/shm")  # a path of the container


@dataclass(frozen=True, slots=True)
class MpsShare:
    """What a container gets of the device at a position of its device list: memory in MiB, and per cent of the threads.

    0 is no limit.
    """

    position: int
    mib: int
    percent: int


def mps_limits(edits: ContainerEdits, shares: Sequence[MpsShare]) -> None:
    """Shares of devices, as the variables that CUDA's MPS client reads."""
    limits = [f"{share.position}={share.mib}M" for share in shares if share.mib]
    threads = [share.percent for share in shares if share.percent]
    if limits:
        edits.env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = ",".join(limits)
    if threads:
        edits.env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(min(threads))


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
                yield cdi.kind(entry.resource), list_name(device, resource.flags), resource, device


def cdi_device(name: str, resource: Resource, entry: EntrySpec, device: Device) -> cdi.CdiDevice:
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
