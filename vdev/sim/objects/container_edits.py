"""The edits of a container: the Allocate responses of its resources, merged like in the kubelet.

If two responses disagree, the kubelet uses the first one, in random order, and only logs the conflict. Here, conflicts
are returned.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ...pb import deviceplugin_v1beta1_pb2 as api

_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class Mount:
    """A bind mount from the host."""

    host_path: str
    container_path: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device node of the host that the container gets."""

    host_path: str
    container_path: str
    permissions: str  # r, w and m


@dataclass(frozen=True, slots=True)
class Edits:
    """All changes of plugins and CDI devices to a container. Variables in the pod's manifest override `envs`."""

    envs: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceNode, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()


def merge(responses: Iterable[tuple[str, api.ContainerAllocateResponse]]) -> tuple[Edits, list[str]]:
    """Merge responses by resource. For the same variable, path, annotation or CDI name, the first one wins.

    Also returns the conflicts as texts.
    """
    envs: dict[str, str] = {}
    mounts: dict[str, Mount] = {}
    nodes: dict[str, DeviceNode] = {}
    annotations: dict[str, str] = {}
    cdi: dict[str, None] = {}
    conflicts: list[str] = []

    def put(kind: str, table: dict[str, _V], key: str, value: _V, resource: str) -> None:
        if table.setdefault(key, value) != value:
            conflicts.append(f"{kind} {key}: {resource} gives {value!r}, but another resource gives {table[key]!r}")

    for resource, response in responses:
        for name, text in sorted(response.envs.items()):
            put("environment variable", envs, name, text, resource)
        for spec in response.devices:
            node = DeviceNode(spec.host_path, spec.container_path, spec.permissions)
            put("device", nodes, spec.container_path, node, resource)
        for item in response.mounts:
            mount = Mount(item.host_path, item.container_path, item.read_only)
            put("mount", mounts, item.container_path, mount, resource)
        for name, text in sorted(response.annotations.items()):
            put("annotation", annotations, name, text, resource)
        cdi.update(dict.fromkeys(device.name for device in response.cdi_devices))
    return Edits(envs, tuple(mounts.values()), tuple(nodes.values()), annotations, tuple(cdi)), conflicts


def edits_json(edits: Edits) -> dict[str, Any]:
    """Return the edits of a container as JSON with the keys of vdev's configuration file."""
    return {
        "env": dict(edits.envs),
        "deviceNodes": [
            {"hostPath": each.host_path, "containerPath": each.container_path, "permissions": each.permissions}
            for each in edits.devices
        ],
        "mounts": [
            {"hostPath": each.host_path, "containerPath": each.container_path, "readOnly": each.read_only}
            for each in edits.mounts
        ],
        "annotations": dict(edits.annotations),
        "cdiDevices": list(edits.cdi_devices),
    }
