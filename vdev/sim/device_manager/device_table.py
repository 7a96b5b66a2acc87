"""What the kubelet's device manager knows: endpoints, device lists, allocated devices and who holds them.

Pure: no I/O, no clock, no gRPC. As in the kubelet, everything is keyed by resource name alone. Which connection speaks
for a resource is decided in `registration_server`, which ids a container gets in `device_choice`.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from ...pb import deviceplugin_v1beta1_pb2 as api
from ..objects.node_devices import HEALTHY, UNHEALTHY, Capacity, Device

NO_NUMA = -1
GRACE_SECONDS = 300.0


@dataclass(slots=True)
class Endpoint:
    """The plugin that Allocate goes to. `options` is None, and `stopped` set, after a kubelet restart.

    `lists` becomes true with its first device list; until then the table has the list of its predecessor.
    """

    socket: str
    options: api.DevicePluginOptions | None
    stopped: float | None = None
    lists: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """The devices of one resource that one container has, and the encoded response that came with them."""

    by_numa: tuple[tuple[int, tuple[str, ...]], ...]
    response: bytes

    @property
    def ids(self) -> frozenset[str]:
        """The device ids, whatever their NUMA node."""
        return frozenset(id_ for _, ids in self.by_numa for id_ in ids)


class DeviceVanishedError(Exception):
    """A device that the real kubelet looks up was dropped from its list: it dereferences nil. The text says which."""


@dataclass(slots=True)
class DeviceTable:
    """The device manager's memory. `holders` is keyed by pod UID, container name and resource."""

    endpoints: dict[str, Endpoint] = field(default_factory=dict)
    devices: dict[str, dict[str, Device]] = field(default_factory=dict)
    healthy: dict[str, set[str]] = field(default_factory=dict)
    unhealthy: dict[str, set[str]] = field(default_factory=dict)
    allocated: dict[str, set[str]] = field(default_factory=dict)
    holders: dict[str, dict[str, dict[str, Held]]] = field(default_factory=dict)

    # --- what plugins do ---------------------------------------------------------------------------------------

    def connected(self, resource: str, *, socket: str, options: api.DevicePluginOptions) -> None:
        """A plugin registered. The health sets stay as they are until its first list."""
        self.endpoints[resource] = Endpoint(socket, options)

    def lists_now(self, resource: str) -> bool:
        """Whether the plugin of a resource is connected and has sent a list."""
        endpoint = self.endpoints.get(resource)
        return endpoint is not None and endpoint.stopped is None and endpoint.lists

    def listed(self, resource: str, devices: Iterable[Device]) -> frozenset[str]:
        """Replace the resource's list as a whole; returns the UIDs of pods whose device changed or came back."""
        before = self.devices.get(resource, {})
        now: dict[str, Device] = {}
        healthy: set[str] = set()
        unhealthy: set[str] = set()
        touched: set[str] = set()
        for device in devices:
            now[device.id] = device
            (healthy if device.healthy else unhealthy).add(device.id)
            old = before.get(device.id)
            if old is None or old.health != device.health:
                touched.add(device.id)
        self.devices[resource], self.healthy[resource], self.unhealthy[resource] = now, healthy, unhealthy
        if resource in self.endpoints:
            self.endpoints[resource].lists = True
        return frozenset(pod for pod in map(self._first_holder, touched) if pod is not None)

    def disconnected(self, resource: str, *, now: float, socket: str | None = None) -> bool:
        """A plugin disconnected: its devices become unhealthy and its grace starts.

        With `socket`, only if that is the endpoint's (1.37's rule). Returns whether anything changed.
        """
        endpoint = self.endpoints.get(resource)
        if endpoint is None or (socket is not None and endpoint.socket != socket):
            return False
        if resource in self.healthy:
            self.unhealthy.setdefault(resource, set()).update(self.healthy[resource])
            self.healthy[resource] = set()
        else:
            self.unhealthy.setdefault(resource, set())
        endpoint.stopped = now
        return True

    # --- what the node shows -----------------------------------------------------------------------------------

    def view(self) -> Capacity:
        """Current capacity and allocatable of every resource; drops none."""
        known = [r for r in {**self.healthy, **self.unhealthy} if r in self.endpoints]
        return Capacity(
            {r: len(self.healthy.get(r, ())) + len(self.unhealthy.get(r, ())) for r in known},
            {r: len(self.healthy.get(r, ())) for r in known},
        )

    def capacity(self, *, now: float) -> Capacity:
        """Capacity for the node status. Drops resources whose plugin has been gone for more than five minutes."""
        removed = set()
        for resource in {**self.healthy, **self.unhealthy}:
            endpoint = self.endpoints.get(resource)
            if endpoint is None or (endpoint.stopped is not None and now - endpoint.stopped > GRACE_SECONDS):
                removed.add(resource)
                self.endpoints.pop(resource, None)
                self.healthy.pop(resource, None)
                self.unhealthy.pop(resource, None)
        view = self.view()
        return Capacity(view.capacity, view.allocatable, frozenset(removed))

    def is_plugin_resource(self, resource: str) -> bool:
        """Whether the device manager handles the resource; it silently skips all others."""
        return resource in self.healthy or resource in self.allocated

    def has_topology(self, resource: str) -> bool:
        """Whether any device of the resource has a NUMA node, which makes the whole resource NUMA-aware."""
        return any(device.numa for device in self.devices.get(resource, {}).values())

    def allocatable_devices(self) -> dict[str, list[Device]]:
        """The devices that are healthy now, per resource, whether held or not."""
        return {r: [self.devices[r][id_] for id_ in sorted(ids)] for r, ids in sorted(self.healthy.items()) if ids}

    def health_of(self, resource: str, id_: str) -> str:
        """The health as pod status shows it. A device that is not in the list shows as Healthy, as in 1.36."""
        device = self.devices.get(resource, {}).get(id_)
        return HEALTHY if device is None or device.healthy else UNHEALTHY

    # --- who holds what ----------------------------------------------------------------------------------------

    def held(self, pod: str, container: str, resource: str) -> frozenset[str] | None:
        """The ids that a container has of a resource, or None if it has none."""
        held = self.holders.get(pod, {}).get(container, {}).get(resource)
        return None if held is None else held.ids

    def take(self, resource: str, id_: str) -> None:
        """Mark a device as allocated, before the plugin has answered and its holder is known."""
        self.allocated.setdefault(resource, set()).add(id_)

    def hold(self, pod: str, container: str, resource: str, ids: Collection[str], response: bytes) -> None:
        """A container got its devices. Raises DeviceVanishedError if one of them is no longer in the list."""
        by_numa: dict[int, list[str]] = {}
        listed = self.devices.get(resource, {})
        for id_ in sorted(ids):
            device = listed.get(id_)
            if device is None:
                raise DeviceVanishedError(f"device {id_} was dropped from its list while its Allocate was in flight")
            for node in device.numa or (NO_NUMA,):
                by_numa.setdefault(node, []).append(id_)
        held = Held(tuple((node, tuple(members)) for node, members in sorted(by_numa.items())), response)
        self.holders.setdefault(pod, {}).setdefault(container, {})[resource] = held

    def free_all_but(self, active: Collection[str]) -> bool:
        """Forget the pods that are not active (UIDs) and what they held; returns whether there were any."""
        gone = [pod for pod in self.holders if pod not in active]
        for pod in gone:
            del self.holders[pod]
        if gone:
            self.recount()
        return bool(gone)

    def recount(self) -> None:
        """Compute from the holders what is allocated, as the kubelet does after a failed Allocate."""
        allocated: dict[str, set[str]] = {}
        for containers in self.holders.values():
            for resources in containers.values():
                for resource, held in resources.items():
                    allocated.setdefault(resource, set()).update(held.ids)
        self.allocated = allocated

    def holders_of(self, resource: str) -> Iterator[tuple[str, str, frozenset[str]]]:
        """Who holds devices of a resource: UID of the pod, name of the container, and their ids."""
        for pod, containers in self.holders.items():
            for container, held in containers.items():
                if resource in held:
                    yield pod, container, held[resource].ids

    def _first_holder(self, id_: str) -> str | None:
        """Looked up by the id alone, over all resources, as in the kubelet: ids should be unique on a node."""
        for pod, containers in self.holders.items():
            for resources in containers.values():
                if any(id_ in held.ids for held in resources.values()):
                    return pod
        return None
