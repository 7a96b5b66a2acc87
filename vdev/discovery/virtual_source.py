"""Devices that exist only in the configuration, or as the data of a preset."""

import functools
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..hostfs import HostRoot
from ..model.device import DeviceNode, IdStyle, RawDevice, facts
from ..model.entry import Entry
from ..model.virtual import DriverNode, VirtualDevices, with_placeholder
from ..planning.inventory import virtual_devices
from .device_nodes import read_table
from .found import Found

# A container needs the nodes of a MIG instance and the node of the GPU. Source: NVIDIA/k8s-device-plugin v0.20.0,
# `internal/mig/mig-dp.go`. The driver's table has a line for each access right, such as `gpu0/gi1/access 12` and
# `gpu0/gi1/ci0/access 13`.
_CAPS = "/dev/nvidia-caps"
_MINORS = "/proc/driver/nvidia-caps/mig-minors"
_ACCESS = re.compile(r"gpu(\d+)/gi(\d+)(?:/ci0)?/access (\d+)")


def discover(
    entry: Entry,
    source: VirtualDevices,
    host: HostRoot,
    *,
    node: str,
    device_dir: str,
    smi_dir: str,
) -> Found:
    """The virtual devices of the source, with those nodes of the real device that the host has.

    `device_dir` is the host's directory for placeholder nodes, and `smi_dir` for the vendors' tools.
    """
    bare: Iterable[RawDevice] = virtual_devices(entry, source, node)
    if entry.smi_tool is not None:
        bare = (replace(each, tools=smi_dir) for each in bare)
    if source.node is not None:
        own = source.node
        bare = (with_placeholder(each, own, facts(each, entry.resource_of(each)), device_dir) for each in bare)
    model = source.model
    if not (model.device_nodes or model.nodes_of_partitions):
        return Found(devices=tuple(bare))
    watch: set[str] = set()
    exists = functools.cache(host.exists)  # devices have nodes in common

    def present(wanted: Iterable[DriverNode], device: RawDevice, known: Mapping[str, str]) -> tuple[DeviceNode, ...]:
        paths = [
            (each.path.render({**known, "index": str(device.index + each.first_index)}), each.permissions)
            for each in wanted
        ]
        watch.update(posixpath.dirname(path) for path, _ in paths)
        return tuple(DeviceNode(path, path, permissions) for path, permissions in paths if exists(path))

    instances: Mapping[int, Mapping[int, tuple[DeviceNode, ...]]] = {}
    if entry.geometry and model.id_style is IdStyle.NVIDIA:
        instances = _instance_nodes(host)
        watch.add(_CAPS)
    devices = []
    for device in bare:
        known = facts(device, entry.resource_of(device))
        found = replace(
            device,
            driver_nodes=present(model.device_nodes, device, known),
            partition_nodes=present(model.nodes_of_partitions, device, known),
            instance_nodes=instances.get(device.index, {}),
        )
        devices.append(found)
    return Found(devices=tuple(devices), watch=frozenset(watch))


def _instance_nodes(host: HostRoot) -> Mapping[int, Mapping[int, tuple[DeviceNode, ...]]]:
    """The nodes of each GPU instance and of its first compute instance that the host has, by GPU and instance."""
    found: dict[int, dict[int, tuple[DeviceNode, ...]]] = {}
    for line in read_table(host, _MINORS).splitlines():
        if access := _ACCESS.fullmatch(line.strip()):
            gpu, instance, minor = map(int, access.groups())
            path = f"{_CAPS}/nvidia-cap{minor}"
            if host.exists(path):
                nodes = found.setdefault(gpu, {}).get(instance, ())
                found[gpu][instance] = (*nodes, DeviceNode(path, path))
    return found
