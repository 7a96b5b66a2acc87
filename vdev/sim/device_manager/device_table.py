"""The state of the kubelet's device manager: endpoints, device lists, allocated devices and their holders.

Pure: no I/O, no clock, no gRPC. As in the real kubelet, the key is the resource name alone, not the plugin instance.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...errors import VdevError
from ...pb import deviceplugin_v1beta1_pb2 as api

if TYPE_CHECKING:
    from .registration_server import PluginClient

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"
NO_NUMA = -1
GRACE_SECONDS = 300.0


def numa_nodes(device: api.Device) -> list[int]:
    return [node.ID for node in device.topology.nodes]


@dataclass(frozen=True, slots=True)
class Capacity:
    """Capacity and allocatable of the node: the number of devices by resource."""

    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]


@dataclass(slots=True)
class Endpoint:
    """The plugin instance that serves a resource."""

    client: "PluginClient | None"  # None after a kubelet restart, until the plugin registers
    options: api.DevicePluginOptions
    stopped: float | None = None  # the time of the disconnect
    lists: bool = False  # it has sent a list; before that, the table has the list of the previous instance


@dataclass(frozen=True, slots=True)
class Held:
    """The devices of one resource that a container holds."""

    pod: str  # its UID
    container: str
    resource: str
    by_numa: tuple[tuple[int, tuple[str, ...]], ...]  # NUMA node and ids; a device appears at each of its nodes
    response: bytes  # the encoded ContainerAllocateResponse

    @property
    def ids(self) -> frozenset[str]:
        """The ids of all devices, without their NUMA nodes."""
        return frozenset(id_ for _, ids in self.by_numa for id_ in ids)


class KubeletPanic(VdevError):
    """A plugin caused a situation in which a 1.36 kubelet panics. The embedded kubelet stops until `start()`."""


@dataclass(slots=True)
class DeviceTable:
    endpoints: dict[str, Endpoint] = field(default_factory=dict)
    devices: dict[str, dict[str, api.Device]] = field(default_factory=dict)  # the last list, by device id
    healthy: dict[str, set[str]] = field(default_factory=dict)
    unhealthy: dict[str, set[str]] = field(default_factory=dict)
    allocated: dict[str, set[str]] = field(default_factory=dict)
    holders: dict[tuple[str, str, str], Held] = field(default_factory=dict)  # by pod UID, container and resource
    in_flight: dict[str, set[str]] = field(default_factory=dict)  # ids in pending Allocate calls

    # --- plugins -----------------------------------------------------------------------------------------------

    def lists_now(self, resource: str) -> bool:
        """Whether the plugin is connected and has sent a list."""
        endpoint = self.endpoints.get(resource)
        return endpoint is not None and endpoint.stopped is None and endpoint.lists

    def listed(self, resource: str, devices: Collection[api.Device]) -> None:
        """Replace the resource's list.

        If an id is repeated, the last entry counts, but the id is in both health sets if the entries differ in health.
        Any health other than `Healthy` means unhealthy.
        """
        self.devices[resource] = {device.ID: device for device in devices}
        self.healthy[resource] = {device.ID for device in devices if device.health == HEALTHY}
        self.unhealthy[resource] = {device.ID for device in devices if device.health != HEALTHY}
        if resource in self.endpoints:
            self.endpoints[resource].lists = True

    def disconnected(self, client: "PluginClient", *, now: float, is_1_37: bool) -> bool:
        """Handle a disconnect: the resource's devices become unhealthy and its grace period starts.

        In 1.37, this has no effect if another socket has registered since. Returns whether anything changed.
        """
        resource = client.resource
        endpoint = self.endpoints.get(resource)
        if endpoint is None:
            return False
        if is_1_37 and endpoint.client is not None and endpoint.client.socket != client.socket:
            return False
        self.unhealthy.setdefault(resource, set()).update(self.healthy.get(resource, ()))
        if resource in self.healthy:
            self.healthy[resource] = set()
        endpoint.stopped = now
        return True

    # --- the node status ---------------------------------------------------------------------------------------

    def view(self) -> Capacity:
        """Return the current capacity and allocatable of all resources."""
        known = [r for r in {**self.healthy, **self.unhealthy} if r in self.endpoints]
        return Capacity(
            {r: len(self.healthy.get(r, ())) + len(self.unhealthy.get(r, ())) for r in known},
            {r: len(self.healthy.get(r, ())) for r in known},
        )

    def expire(self, *, now: float) -> set[str]:
        """Remove and return the resources whose plugin disconnected over five minutes ago."""
        removed = set()
        for resource in {**self.healthy, **self.unhealthy}:
            endpoint = self.endpoints.get(resource)
            if endpoint is None or (endpoint.stopped is not None and now - endpoint.stopped > GRACE_SECONDS):
                removed.add(resource)
                self.endpoints.pop(resource, None)
                self.healthy.pop(resource, None)
                self.unhealthy.pop(resource, None)
        return removed

    def is_plugin_resource(self, resource: str) -> bool:
        """Whether the device manager handles the resource. It silently skips all others."""
        return resource in self.healthy or resource in self.allocated

    def by_affinity(
        self, resource: str, affinity: frozenset[int] | None, available: set[str]
    ) -> tuple[set[str], set[str], set[str]]:
        """Split devices into those on the requested NUMA nodes, on other nodes, and without a node.

        Without affinity, or if no device of the resource has a NUMA node, all devices count as without a node.
        """
        nodes = {id_: numa_nodes(device) for id_, device in self.devices[resource].items()}
        if affinity is None or not any(nodes.values()):
            return set(), set(), set(available)
        aligned = {id_ for id_ in available if affinity.intersection(nodes[id_])}
        anywhere = {id_ for id_ in available if not nodes[id_]}
        return aligned, available - aligned - anywhere, anywhere

    def health_of(self, resource: str, id_: str) -> str:
        """Return the health for a pod's status. As in 1.36, a device that is not in the list is Healthy."""
        device = self.devices.get(resource, {}).get(id_)
        return HEALTHY if device is None or device.health == HEALTHY else UNHEALTHY

    # --- holders -----------------------------------------------------------------------------------------------

    def held(self, pod: str, container: str, resource: str) -> frozenset[str] | None:
        """Return the ids of a resource that a container holds, or None."""
        held = self.holders.get((pod, container, resource))
        return None if held is None else held.ids

    def held_by(self, pod: str, container: str) -> list[Held]:
        """Return the devices that a container holds, one entry per resource."""
        return [each for each in self.holders.values() if (each.pod, each.container) == (pod, container)]

    def hold(self, pod: str, container: str, resource: str, ids: Collection[str], response: bytes) -> None:
        """Record that a container holds devices. Raises KubeletPanic if one is no longer in the list."""
        by_numa: dict[int, list[str]] = {}
        listed = self.devices.get(resource, {})
        for id_ in sorted(ids):
            device = listed.get(id_)
            if device is None:
                raise KubeletPanic(
                    f"device {id_} was dropped from its list while its Allocate was in flight: "
                    "the kubelet panics with 'invalid memory address or nil pointer dereference'"
                )
            for node in numa_nodes(device) or (NO_NUMA,):
                by_numa.setdefault(node, []).append(id_)
        numbered = tuple((node, tuple(members)) for node, members in sorted(by_numa.items()))
        self.holders[pod, container, resource] = Held(pod, container, resource, numbered, response)

    def recount(self) -> None:
        """Compute the allocated devices from the holders, as the kubelet does after a failed Allocate."""
        self.allocated = {}
        for held in self.holders.values():
            self.allocated.setdefault(held.resource, set()).update(held.ids)
